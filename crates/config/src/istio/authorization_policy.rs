//! AuthorizationPolicy: who may do what.

use std::sync::Arc;

use crate::istio::selection::{PolicySelector, PolicyTargetReference};

/// Why a policy can be attached in one way only.
const ONE_TARGET: &str = "selector, targetRef and targetRefs exclude each other";

message! {
    /// Allows or denies requests and connections to workloads.
    pub struct AuthorizationPolicy where [
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// The gateway or service, instead of `selector`; `targetRefs` takes its place.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// The gateways or services, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// The policy applies to what at least one of these matches. Without rules it applies to nothing, so that `ALLOW`
        /// denies everything; a rule `{}` matches everything.
        pub rules: Vec<Rule> where [max 512],
        /// What happens to what matches.
        pub action: AuthorizationAction,
        /// Who decides, with the action `CUSTOM`.
        pub provider: Option<AuthorizationProvider>,
    }
}

enumeration! {
    /// What happens to requests that match. They are looked at in the order `CUSTOM`, `DENY`, `ALLOW`.
    pub enum AuthorizationAction {
        /// They pass, and what no such policy of the workload matches is denied.
        #[default]
        Allow = "ALLOW" 0,
        /// They are denied.
        Deny = "DENY" 1,
        /// They are marked for the access log.
        Audit = "AUDIT" 2,
        /// A service of the mesh's settings decides (`extensionProviders`).
        Custom = "CUSTOM" 3,
    }
}

message! {
    /// Names who decides.
    pub struct AuthorizationProvider {
        /// The name of an entry in the mesh's `extensionProviders`.
        pub name: Arc<str>,
    }
}

message! {
    /// Conditions on a request; what is absent holds always.
    pub struct Rule {
        /// Who sends; one of these must match.
        pub from: Vec<From> where [max 512],
        /// What is asked for; one of these must match.
        pub to: Vec<To>,
        /// More conditions, all of which must hold.
        pub when: Vec<Condition>,
    }
}

message! {
    /// Who sends.
    pub struct From {
        /// The conditions on the sender.
        pub source: Option<Source>,
    }
}

message! {
    /// What is asked for.
    pub struct To {
        /// The conditions on what is asked for.
        pub operation: Option<Operation>,
    }
}

message! {
    /// Conditions on who sends, all of which must hold. In each list one entry must match; in a list of `not…` none may.
    /// A `*` at the beginning or end of an entry stands for any text.
    pub struct Source where [
        rule "!((has(self.serviceAccounts) || has(self.notServiceAccounts)) && (has(self.principals) || \
              has(self.notPrincipals) || has(self.namespaces) || has(self.notNamespaces)))"
            "serviceAccounts cannot be combined with principals or namespaces",
    ] {
        /// Identities in the client's certificate, as `TRUST-DOMAIN/ns/NAMESPACE/sa/SERVICE-ACCOUNT`.
        pub principals: Vec<Arc<str>>,
        /// Identities that the client must not have.
        pub not_principals: Vec<Arc<str>>,
        /// Identities in the request's token, as `ISSUER/SUBJECT`; they need a RequestAuthentication.
        pub request_principals: Vec<Arc<str>>,
        /// Identities that the request's token must not have.
        pub not_request_principals: Vec<Arc<str>>,
        /// Namespaces in the client's certificate.
        pub namespaces: Vec<Arc<str>>,
        /// Namespaces that the client must not be of.
        pub not_namespaces: Vec<Arc<str>>,
        /// Service accounts in the client's certificate, as `NAMESPACE/NAME`, or `NAME` for the policy's namespace.
        /// Wildcards are not supported.
        pub service_accounts: Vec<Arc<str>> where [max 16, items(max 320)],
        /// Service accounts that the client must not have.
        pub not_service_accounts: Vec<Arc<str>> where [max 16, items(max 320)],
        /// Addresses or CIDR ranges that the connection comes from.
        pub ip_blocks: Vec<Arc<str>>,
        /// Addresses or CIDR ranges that the connection must not come from.
        pub not_ip_blocks: Vec<Arc<str>>,
        /// Addresses or CIDR ranges of the original client, from `X-Forwarded-For` or the PROXY protocol.
        pub remote_ip_blocks: Vec<Arc<str>>,
        /// Addresses or CIDR ranges that the original client must not have.
        pub not_remote_ip_blocks: Vec<Arc<str>>,
        /// Trust domains in the client's certificate.
        pub trust_domains: Vec<Arc<str>>,
        /// Trust domains that the client must not be of.
        pub not_trust_domains: Vec<Arc<str>>,
    }
}

message! {
    /// Conditions on what is asked for, all of which must hold. In each list one entry must match; in a list of `not…` none
    /// may. A `*` at the beginning or end of an entry stands for any text.
    pub struct Operation {
        /// Hosts of the request; case and port do not count.
        pub hosts: Vec<Arc<str>>,
        /// Hosts that the request must not have.
        pub not_hosts: Vec<Arc<str>>,
        /// Ports of the workload.
        pub ports: Vec<Arc<str>>,
        /// Ports that the connection must not be to.
        pub not_ports: Vec<Arc<str>>,
        /// Methods of the request. For gRPC it is always POST.
        pub methods: Vec<Arc<str>>,
        /// Methods that the request must not have.
        pub not_methods: Vec<Arc<str>>,
        /// Paths of the request, for gRPC `/PACKAGE.SERVICE/METHOD`. `{*}` stands for one segment, `{**}` for any number.
        pub paths: Vec<Arc<str>>,
        /// Paths that the request must not have.
        pub not_paths: Vec<Arc<str>>,
    }
}

message! {
    /// A condition on an attribute. It needs `values` or `notValues`.
    pub struct Condition {
        /// The attribute, such as `request.headers[User-Agent]`, `source.ip` or `request.auth.claims[iss]`.
        pub key: Arc<str> where [required],
        /// Values of which the attribute must have one.
        pub values: Vec<Arc<str>>,
        /// Values that the attribute must not have.
        pub not_values: Vec<Arc<str>>,
    }
}
