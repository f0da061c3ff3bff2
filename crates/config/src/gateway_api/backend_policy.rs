//! BackendTLSPolicy and XBackendTrafficPolicy: settings for traffic to backends.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::reference::{LocalObjectReference, PolicyTarget};
use crate::gateway_api::session::SessionPersistence;
use crate::gateway_api::text::{ABSOLUTE_URI, DNS_NAME, HOSTNAME, WELL_KNOWN_CAS};
use crate::object::StringMap;

message! {
    /// TLS settings for connections to a backend.
    pub struct BackendTlsPolicy {
        /// Services, or individual Service ports, that the policy applies to.
        pub target_refs: Vec<PolicyTarget> where [
            required, min 1, max 16,
            rule "self.all(p1, self.all(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name ? ((!has(p1.sectionName) || p1.sectionName == '') == (!has(p2.sectionName) || p2.sectionName == '')) : true))"
                "sectionName is required if a target is listed more than once",
            rule "self.all(p1, self.exists_one(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.sectionName) || p1.sectionName == '') && (!has(p2.sectionName) || p2.sectionName == '')) || (has(p1.sectionName) && has(p2.sectionName) && p1.sectionName == p2.sectionName))))"
                "the combination of target and sectionName must be unique",
        ],
        /// Verification of the backend's certificate.
        pub validation: BackendTlsValidation where [required],
        /// Implementation-specific settings, by domain-prefixed name.
        pub options: StringMap where [max 16, values(min 0, max 4096), warn "no-effect" "no options are known, so that the field has no effect"],
    }
}

message! {
    /// Verification of a backend's certificate.
    pub struct BackendTlsValidation where [
        rule "!(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 && has(self.wellKnownCACertificates) && self.wellKnownCACertificates != '')"
            "caCertificateRefs and wellKnownCACertificates are mutually exclusive",
        rule "(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0) || (has(self.wellKnownCACertificates) && self.wellKnownCACertificates != '')"
            "caCertificateRefs or wellKnownCACertificates is required",
    ] {
        /// ConfigMaps or Secrets with the CA certificates that verify the backend's certificate.
        pub ca_certificate_refs: Vec<LocalObjectReference> as "caCertificateRefs" where [max 8],
        /// CA certificates that the proxy provides: `System` or an implementation-specific set.
        pub well_known_ca_certificates: Option<Arc<str>> as "wellKnownCACertificates" where [
            min 1, max 253, pattern WELL_KNOWN_CAS,
        ],
        /// Server name (SNI) of the connection. The backend's certificate must match it unless `subjectAltNames` is
        /// set.
        pub hostname: Arc<str> where [required, min 1, max 253, pattern DNS_NAME],
        /// Subject alternative names, of which the backend's certificate must contain one.
        pub subject_alt_names: Vec<SubjectAltName> where [max 5],
    }
}

message! {
    /// Subject alternative name of a certificate.
    pub struct SubjectAltName where [
        rule "(self.type == 'Hostname') == (has(self.hostname) && self.hostname != '')" "hostname must be set if and only if the type is Hostname",
        rule "(self.type == 'URI') == (has(self.uri) && self.uri != '')" "uri must be set if and only if the type is URI",
    ] {
        /// Type of the name.
        pub kind: SubjectAltNameType as "type" where [required],
        /// Host name. Requires the type `Hostname`.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern HOSTNAME],
        /// URI, such as a SPIFFE ID. Requires the type `URI`.
        pub uri: Option<Arc<str>> where [min 1, max 253, pattern ABSOLUTE_URI],
    }
}

enumeration! {
    /// Type of a subject alternative name.
    pub enum SubjectAltNameType {
        /// DNS name.
        #[default]
        Hostname = "Hostname",
        /// URI.
        Uri = "URI",
    }
}

message! {
    /// Traffic settings for a backend.
    pub struct BackendTrafficPolicy {
        /// Services that the policy applies to.
        pub target_refs: Vec<TrafficPolicyTarget> where [required, min 1, max 16, key group, key kind, key name],
        /// Limit for retries.
        pub retry_constraint: Option<RetryConstraint>,
        /// Session persistence: requests of a session are sent to the same endpoint.
        pub session_persistence: Option<SessionPersistence>,
    }
}

message! {
    /// Object in the policy's namespace that a policy is attached to.
    pub struct TrafficPolicyTarget {
        /// API group of the referenced object. Empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern crate::gateway_api::text::GROUP],
        /// Kind of the referenced object.
        pub kind: Arc<str> where [required, min 1, max 63, pattern crate::gateway_api::text::KIND],
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
    }
}

message! {
    /// Limit for retries.
    pub struct RetryConstraint {
        /// Percentage of requests that can be retries.
        pub budget: BudgetDetails where [default {"percent": 20, "interval": "10s"}],
        /// Rate of retries that is always allowed.
        pub min_retry_rate: RequestRate where [default {"count": 10, "interval": "1s"}] = RequestRate {
            count: Some(10),
            interval: Some(RequestRate::INTERVAL),
        },
    }
}

message! {
    /// Retry budget as a percentage of requests.
    pub struct BudgetDetails {
        /// Percentage of requests.
        pub percent: u32 where [min 0, max 100, default 20] = 20,
        /// Time window over which requests are counted, 1s to 1h.
        pub interval: GatewayDuration where [
            default "10s",
            rule "!(duration(self) < duration('1s') || duration(self) > duration('1h'))" "the interval must be from 1s to 1h",
        ] = GatewayDuration::from_secs(10),
    }
}

message! {
    /// Rate of requests. Envoy limits concurrent retries instead.
    pub struct RequestRate: Relations {
        /// Number of requests, which becomes the number of concurrent retries that is always allowed.
        pub count: Option<u32> where [min 1, max 1000000],
        /// Time window, at most 1h. It has no effect.
        pub interval: Option<GatewayDuration> where [
            rule "!(duration(self) == duration('0s') || duration(self) > duration('1h'))" "the interval must not be zero or longer than 1h",
        ],
    }
}

impl RequestRate {
    /// The default of `minRetryRate.interval`.
    pub(crate) const INTERVAL: GatewayDuration = GatewayDuration::from_secs(1);
}
