//! PeerAuthentication and RequestAuthentication: how clients and users prove who they are.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::selection::{PolicySelector, PolicyTargetReference};

/// Why a policy can be attached in one way only.
const ONE_TARGET: &str = "selector, targetRef and targetRefs exclude each other";
/// The name of a header that tokens are copied to.
const HEADER: &str = "^[-_A-Za-z0-9]+$";

message! {
    /// What connections to workloads may be: plain or mutual TLS.
    pub struct PeerAuthentication where [
        rule "!has(self.portLevelMtls) || (has(self.selector) && has(self.selector.matchLabels) && \
              self.selector.matchLabels.size() > 0)"
            "portLevelMtls needs a selector with labels",
    ] {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// For all ports; absent: as the wider policy says.
        pub mtls: Option<MutualTls>,
        /// For single ports of the workload, by number; needs a selector.
        pub port_level_mtls: BTreeMap<Arc<str>, MutualTls> where [
            min 1,
            rule "self.all(key, 0 < int(key) && int(key) <= 65535)" "a port is a number from 1 to 65535",
        ],
    }
}

message! {
    /// Settings of mutual TLS.
    pub struct MutualTls {
        /// What is accepted.
        pub mode: MutualTlsMode,
    }
}

enumeration! {
    /// What a workload accepts.
    pub enum MutualTlsMode {
        /// As the wider policy says; `PERMISSIVE` where there is none.
        #[default]
        Unset = "UNSET" 0,
        /// Plain connections only.
        Disable = "DISABLE" 1,
        /// Plain connections and mutual TLS.
        Permissive = "PERMISSIVE" 2,
        /// Mutual TLS only.
        Strict = "STRICT" 3,
    }
}

message! {
    /// Which tokens requests may bring. A request with a bad token is refused; one without passes, unless an
    /// AuthorizationPolicy asks for one.
    pub struct RequestAuthentication where [
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// The gateway or service, instead of `selector`; `targetRefs` takes its place.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// The gateways or services, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// The tokens that are accepted, one of each issuer.
        pub jwt_rules: Vec<JwtRule> where [max 4096],
    }
}

message! {
    /// JSON Web Tokens of one issuer.
    pub struct JwtRule where [
        rule "!(has(self.jwksUri) && has(self.jwks))" "jwks and jwksUri exclude each other",
    ] {
        /// Who issued the token: its claim `iss`. Empty: any issuer whose keys `jwksUri` or `jwks` has.
        pub issuer: Arc<str> where [min 1],
        /// Of these the token's claim `aud` must have one; empty: any.
        pub audiences: Vec<Arc<str>> where [items(min 1)],
        /// Where the issuer's public keys are (`http://` or `https://`); absent: found by OpenID's discovery.
        pub jwks_uri: Arc<str> where [
            min 1, max 2048,
            rule "self.startsWith('http://') || self.startsWith('https://')" "the address must begin with http:// or https://",
        ],
        /// The issuer's public keys themselves, a JSON Web Key Set.
        pub jwks: Arc<str>,
        /// Headers that the token is looked for in. Without a place: `Authorization: Bearer` and the parameter `access_token`.
        pub from_headers: Vec<JwtHeader>,
        /// Query parameters that the token is looked for in.
        pub from_params: Vec<Arc<str>> where [items(min 1)],
        /// The header that the token's payload is passed on in, as base64.
        pub output_payload_to_header: Arc<str>,
        /// Cookies that the token is looked for in.
        pub from_cookies: Vec<Arc<str>> where [items(min 1)],
        /// Whether the token itself is passed on.
        pub forward_original_token: bool,
        /// Claims that are passed on in headers.
        pub output_claim_to_headers: Vec<ClaimToHeader>,
        /// How long fetching the keys may take; absent means 5s.
        pub timeout: Option<Duration>,
        /// Claims whose text is a list that spaces separate, beside `scope` and `permission`.
        pub space_delimited_claims: Vec<Arc<str>> where [max 64, items(min 1)],
    }
}

message! {
    /// A header with a token.
    pub struct JwtHeader {
        /// The header's name.
        pub name: Arc<str> where [required, min 1],
        /// The text before the token, such as `"Bearer "`.
        pub prefix: Arc<str>,
    }
}

message! {
    /// A claim that is passed on in a header.
    pub struct ClaimToHeader {
        /// The header's name.
        pub header: Arc<str> where [required, min 1, pattern HEADER],
        /// The claim; dots lead into nested ones.
        pub claim: Arc<str> where [required, min 1],
    }
}
