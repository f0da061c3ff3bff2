//! PeerAuthentication and RequestAuthentication: mutual TLS and JWT validation.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::selection::{ONE_TARGET, PolicySelector, PolicyTargetReference};

/// Pattern of the header names that a claim can be copied to.
const HEADER: &str = "^[-_A-Za-z0-9]+$";

message! {
    /// Defines whether workloads accept plaintext connections, mutual TLS connections or both.
    pub struct PeerAuthentication: Relations where [
        rule "!has(self.portLevelMtls) || (has(self.selector) && has(self.selector.matchLabels) && \
              self.selector.matchLabels.size() > 0)"
            "portLevelMtls requires a selector with labels",
    ] {
        /// Selects the workloads that the policy applies to. If omitted, the policy applies to all workloads in its
        /// namespace, or in the mesh if it is in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Mutual TLS settings of all ports. If omitted, they are inherited from the namespace-wide or mesh-wide
        /// policy.
        pub mtls: Option<MutualTls>,
        /// Mutual TLS settings of individual workload ports, by port number. Requires a selector.
        pub port_level_mtls: BTreeMap<Arc<str>, MutualTls> where [
            min 1,
            rule "self.all(key, 0 < int(key) && int(key) <= 65535)" "a port must be a number from 1 to 65535",
            keys(port_number),
        ],
    }
}

message! {
    /// Settings of mutual TLS.
    pub struct MutualTls {
        /// Accepted kinds of connections.
        pub mode: MutualTlsMode,
    }
}

enumeration! {
    /// Mutual TLS mode of a workload.
    pub enum MutualTlsMode {
        /// Inherits the mode of the namespace-wide or mesh-wide policy; `PERMISSIVE` if there is none.
        #[default]
        Unset = "UNSET" 0,
        /// Accepts plaintext connections only.
        Disable = "DISABLE" 1,
        /// Accepts plaintext and mutual TLS connections.
        Permissive = "PERMISSIVE" 2,
        /// Accepts mutual TLS connections only.
        Strict = "STRICT" 3,
    }
}

message! {
    /// Defines the JSON Web Tokens (JWTs) that workloads accept. Requests with an invalid token are rejected. Requests
    /// without a token are allowed unless an AuthorizationPolicy requires one.
    pub struct RequestAuthentication where [
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
        /// Accepted tokens, one rule per issuer.
        pub jwt_rules: Vec<JwtRule> where [max 4096],
    }
}

message! {
    /// Validation of the JSON Web Tokens of one issuer.
    pub struct JwtRule where [
        any(issuer, jwksUri), exclusive(jwksUri, jwks),
        rule "!(has(self.jwksUri) && has(self.jwks))" "jwks and jwksUri are mutually exclusive",
    ] {
        /// Required value of the token's `iss` claim. If empty, any issuer is accepted, and `jwksUri`
        /// is required.
        pub issuer: Arc<str> where [min 1],
        /// Accepted audiences. The token's `aud` claim must contain at least one of them. If empty, any audience is
        /// accepted.
        pub audiences: Vec<Arc<str>> where [items(min 1)],
        /// URL (`http://` or `https://`) of the issuer's public keys, a JSON Web Key Set. If both `jwksUri` and `jwks`
        /// are omitted, the URL is taken from the issuer's OpenID Connect discovery document.
        pub jwks_uri: Arc<str> where [
            min 1, max 2048,
            rule "self.startsWith('http://') || self.startsWith('https://')" "the URL must start with http:// or https://",
            is http_url, spelling "jwks_uri",
        ],
        /// Public keys of the issuer as an inline JSON Web Key Set.
        pub jwks: Arc<str> where [is key_set],
        /// Headers that can carry the token. If no location is set, the token is read from `Authorization: Bearer` and
        /// from the query parameter `access_token`.
        pub from_headers: Vec<JwtHeader>,
        /// Query parameters that can carry the token.
        pub from_params: Vec<Arc<str>> where [items(min 1)],
        /// Header in which the base64-encoded payload of a valid token is forwarded.
        pub output_payload_to_header: Arc<str>,
        /// Cookies that can carry the token.
        pub from_cookies: Vec<Arc<str>> where [items(min 1)],
        /// Whether the token is kept in the forwarded request. Defaults to false.
        pub forward_original_token: bool,
        /// Claims that are copied to headers of the forwarded request.
        pub output_claim_to_headers: Vec<ClaimToHeader>,
        /// Whether a request without a token of this rule is rejected.
        pub presence: Option<JwtPresence> where [
            warn "not-served" "istiod has no effect for this field either; require a token with an AuthorizationPolicy",
        ],
        /// Timeout for fetching the keys. Defaults to 5s.
        pub timeout: Option<Duration> where [is duration],
        /// Claims, in addition to `scope` and `permission`, whose value is parsed as a space-delimited list.
        pub space_delimited_claims: Vec<Arc<str>> where [max 64, items(min 1)],
    }
}

enumeration! {
    /// Whether requests must have a token.
    pub enum JwtPresence {
        /// Requests without a token are allowed.
        #[default]
        Optional = "OPTIONAL" 0,
        /// Requests without a token are rejected.
        Required = "REQUIRED" 1,
    }
}

message! {
    /// Header that can carry a token.
    pub struct JwtHeader {
        /// Name of the header.
        pub name: Arc<str> where [required, min 1],
        /// Prefix that precedes the token in the header value, such as `"Bearer "`.
        pub prefix: Arc<str>,
    }
}

message! {
    /// Claim that is copied to a request header.
    pub struct ClaimToHeader {
        /// Name of the header to write.
        pub header: Arc<str> where [required, min 1, pattern HEADER],
        /// Name of the claim. Dots separate the names of nested claims.
        pub claim: Arc<str> where [required, min 1],
    }
}
