//! AuthorizationPolicy: access control for workloads.

use std::sync::Arc;

use crate::istio::selection::{ONE_TARGET, PolicySelector, PolicyTargetReference};

message! {
    /// Allows, denies, audits or delegates the authorization of requests and connections to workloads.
    pub struct AuthorizationPolicy: Relations where [
        exclusive(selector, targetRef, targetRefs),
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// Selects the workloads that the policy applies to. If omitted, the policy applies to all workloads in its
        /// namespace, or in the mesh if it is in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Gateway or service that the policy is attached to, instead of `selector`. Deprecated in favor of
        /// `targetRefs`.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// Gateways or services that the policy is attached to, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Rules that select requests. The action applies to a request that matches at least one rule. Without rules,
        /// nothing matches, so an `ALLOW` policy denies all requests. The rule `{}` matches all requests.
        pub rules: Vec<Rule> where [max 512],
        /// Action for matching requests. Defaults to `ALLOW`.
        pub action: AuthorizationAction,
        /// External authorization provider. Used only with the action `CUSTOM`.
        pub provider: Option<AuthorizationProvider>,
    }
}

enumeration! {
    /// Action for matching requests. Policies are evaluated in the order `CUSTOM`, `DENY`, `ALLOW`.
    pub enum AuthorizationAction {
        /// Allows matching requests. If a workload has an `ALLOW` policy, requests that match none of its `ALLOW`
        /// policies are denied.
        #[default]
        Allow = "ALLOW" 0,
        /// Denies matching requests.
        Deny = "DENY" 1,
        /// Marks matching requests for audit logging.
        Audit = "AUDIT" 2,
        /// Delegates the decision to an external provider, an entry of `extensionProviders` in the mesh configuration.
        Custom = "CUSTOM" 3,
    }
}

message! {
    /// Reference to an external authorization provider.
    pub struct AuthorizationProvider {
        /// Name of the entry of `extensionProviders` in the mesh configuration.
        pub name: Arc<str> where [needed],
    }
}

message! {
    /// Conditions on a request. A condition that is omitted always matches.
    pub struct Rule {
        /// Sources of the request, of which at least one must match.
        pub from: Vec<From> where [max 512],
        /// Operations of the request, of which at least one must match.
        pub to: Vec<To>,
        /// Additional conditions, all of which must match.
        pub when: Vec<Condition>,
    }
}

message! {
    /// Source of a request.
    pub struct From {
        /// Conditions on the source.
        pub source: Option<Source> where [needed],
    }
}

message! {
    /// Operation of a request.
    pub struct To {
        /// Conditions on the operation.
        pub operation: Option<Operation> where [needed],
    }
}

message! {
    /// Conditions on the source of a request, all of which must match. A list matches if one of its entries matches; a
    /// list whose name starts with `not` matches if none does. A `*` at the start or end of an entry matches any text.
    pub struct Source: Relations where [
        rule "!((has(self.serviceAccounts) || has(self.notServiceAccounts)) && (has(self.principals) || \
              has(self.notPrincipals) || has(self.namespaces) || has(self.notNamespaces)))"
            "serviceAccounts cannot be combined with principals or namespaces",
    ] {
        /// Peer identities from the client certificate, as `TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
        pub principals: Vec<Arc<str>> where [is text],
        /// Peer identities that must not match.
        pub not_principals: Vec<Arc<str>> where [is text],
        /// Identities from the request's JWT, as `ISSUER/SUBJECT`. Requires a RequestAuthentication.
        pub request_principals: Vec<Arc<str>> where [is text],
        /// JWT identities that must not match.
        pub not_request_principals: Vec<Arc<str>> where [is text],
        /// Namespaces from the client certificate.
        pub namespaces: Vec<Arc<str>> where [is text],
        /// Namespaces that must not match.
        pub not_namespaces: Vec<Arc<str>> where [is text],
        /// Service accounts from the client certificate, as `NAMESPACE/NAME`, or as `NAME` in the policy's namespace.
        /// Wildcards are not supported.
        pub service_accounts: Vec<Arc<str>> where [max 16, items(max 320), is service_account],
        /// Service accounts that must not match.
        pub not_service_accounts: Vec<Arc<str>> where [max 16, items(max 320), is service_account],
        /// Source IP addresses of the connection, as addresses or CIDR ranges.
        pub ip_blocks: Vec<Arc<str>> where [is subnet],
        /// Source IP addresses or CIDR ranges that must not match.
        pub not_ip_blocks: Vec<Arc<str>> where [is subnet],
        /// IP addresses of the original client, from `X-Forwarded-For` or the PROXY protocol, as addresses or CIDR
        /// ranges.
        pub remote_ip_blocks: Vec<Arc<str>> where [is subnet],
        /// Original client addresses or CIDR ranges that must not match.
        pub not_remote_ip_blocks: Vec<Arc<str>> where [is subnet],
        /// Trust domains from the client certificate.
        pub trust_domains: Vec<Arc<str>> where [is trust_domain_pattern],
        /// Trust domains that must not match.
        pub not_trust_domains: Vec<Arc<str>> where [is trust_domain_pattern],
    }
}

message! {
    /// Conditions on the operation of a request, all of which must match. A list matches if one of its entries matches;
    /// a list whose name starts with `not` matches if none does. A `*` at the start or end of an entry matches any
    /// text.
    pub struct Operation: Relations {
        /// Hosts of the request, compared case-insensitively and without the port.
        pub hosts: Vec<Arc<str>> where [is text],
        /// Hosts that must not match.
        pub not_hosts: Vec<Arc<str>> where [is text],
        /// Ports of the workload.
        pub ports: Vec<Arc<str>> where [is port_or_zero],
        /// Ports that must not match.
        pub not_ports: Vec<Arc<str>> where [is port_or_zero],
        /// HTTP methods. For gRPC, the method is always `POST`.
        pub methods: Vec<Arc<str>> where [is text],
        /// HTTP methods that must not match.
        pub not_methods: Vec<Arc<str>> where [is text],
        /// Paths of the request; for gRPC, `/PACKAGE.SERVICE/METHOD`. `{*}` matches one path segment, `{**}` matches
        /// any number of segments.
        pub paths: Vec<Arc<str>> where [is path_template],
        /// Paths that must not match.
        pub not_paths: Vec<Arc<str>> where [is path_template],
    }
}

message! {
    /// Condition on an attribute. Requires `values`, `notValues` or both.
    pub struct Condition: Relations where [any(values, notValues)] {
        /// Name of the attribute, such as `request.headers[User-Agent]`, `source.ip` or `request.auth.claims[iss]`.
        pub key: Arc<str> where [required, needed, is attribute],
        /// Accepted values of the attribute, of which one must match.
        pub values: Vec<Arc<str>>,
        /// Values that must not match.
        pub not_values: Vec<Arc<str>>,
    }
}
