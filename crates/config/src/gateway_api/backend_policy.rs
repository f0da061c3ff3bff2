//! BackendTLSPolicy and XBackendTrafficPolicy: how gateways and the mesh speak to backends.

use std::sync::Arc;

use crate::gateway_api::GatewayDuration;
use crate::gateway_api::reference::{LocalObjectReference, PolicyTarget};
use crate::gateway_api::session::SessionPersistence;
use crate::gateway_api::text::{ABSOLUTE_URI, DNS_NAME, HOSTNAME, WELL_KNOWN_CAS};
use crate::object::StringMap;

message! {
    /// TLS towards a backend.
    pub struct BackendTlsPolicy {
        /// The Services, or ports of them, that it applies to.
        pub target_refs: Vec<PolicyTarget> where [
            required, min 1, max 16,
            rule "self.all(p1, self.all(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name ? ((!has(p1.sectionName) || p1.sectionName == '') == (!has(p2.sectionName) || p2.sectionName == '')) : true))"
                "a target that is named more than once needs sectionName each time",
            rule "self.all(p1, self.exists_one(p2, p1.group == p2.group && p1.kind == p2.kind && p1.name == p2.name && (((!has(p1.sectionName) || p1.sectionName == '') && (!has(p2.sectionName) || p2.sectionName == '')) || (has(p1.sectionName) && has(p2.sectionName) && p1.sectionName == p2.sectionName))))"
                "the same part of a target is named twice",
        ],
        /// How the backend's certificate is checked.
        pub validation: BackendTlsValidation where [required],
        /// More settings, by names that begin with a domain.
        pub options: StringMap where [max 16, values(min 0, max 4096)],
    }
}

message! {
    /// How a backend's certificate is checked.
    pub struct BackendTlsValidation where [
        rule "!(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0 && has(self.wellKnownCACertificates) && self.wellKnownCACertificates != '')"
            "caCertificateRefs and wellKnownCACertificates exclude each other",
        rule "(has(self.caCertificateRefs) && size(self.caCertificateRefs) > 0) || (has(self.wellKnownCACertificates) && self.wellKnownCACertificates != '')"
            "caCertificateRefs or wellKnownCACertificates is needed",
    ] {
        /// ConfigMaps or secrets with CA certificates that vouch for the backend.
        pub ca_certificate_refs: Vec<LocalObjectReference> as "caCertificateRefs" where [max 8],
        /// CA certificates that the proxy has: `System`, or a domain's own set.
        pub well_known_ca_certificates: Option<Arc<str>> as "wellKnownCACertificates" where [
            min 1, max 253, pattern WELL_KNOWN_CAS,
        ],
        /// The server name to send, and to find in the certificate unless `subjectAltNames` says otherwise.
        pub hostname: Arc<str> where [required, min 1, max 253, pattern DNS_NAME],
        /// Names of which the certificate must have one.
        pub subject_alt_names: Vec<SubjectAltName> where [max 5],
    }
}

message! {
    /// A name in a certificate.
    pub struct SubjectAltName where [
        rule "(self.type == 'Hostname') == (has(self.hostname) && self.hostname != '')" "hostname goes together with the type Hostname",
        rule "(self.type == 'URI') == (has(self.uri) && self.uri != '')" "uri goes together with the type URI",
    ] {
        /// What sort of name it is.
        pub kind: SubjectAltNameType as "type" where [required],
        /// The host name; with the type `Hostname`.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern HOSTNAME],
        /// The URI, such as a SPIFFE id; with the type `URI`.
        pub uri: Option<Arc<str>> where [min 1, max 253, pattern ABSOLUTE_URI],
    }
}

enumeration! {
    /// A sort of names in certificates.
    pub enum SubjectAltNameType {
        /// A DNS name.
        #[default]
        Hostname = "Hostname",
        /// A URI.
        Uri = "URI",
    }
}

message! {
    /// How traffic to a backend is sent.
    pub struct BackendTrafficPolicy {
        /// The Services that it applies to.
        pub target_refs: Vec<TrafficPolicyTarget> where [required, min 1, max 16, key group, key kind, key name],
        /// A limit on retries.
        pub retry_constraint: Option<RetryConstraint>,
        /// Requests of a session go to the same endpoint.
        pub session_persistence: Option<SessionPersistence>,
    }
}

message! {
    /// Names what a policy is attached to, in the policy's namespace.
    pub struct TrafficPolicyTarget {
        /// The API group of its kind; empty means the core group.
        pub group: Arc<str> where [required, max 253, pattern crate::gateway_api::text::GROUP],
        /// Its kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern crate::gateway_api::text::KIND],
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
    }
}

message! {
    /// A limit on retries.
    pub struct RetryConstraint {
        /// The share of requests that may be retries.
        pub budget: BudgetDetails where [default {"percent": 20, "interval": "10s"}],
        /// Retries that are always allowed.
        pub min_retry_rate: RequestRate where [default {"count": 10, "interval": "1s"}] = RequestRate {
            count: Some(10),
            interval: Some(GatewayDuration::from_secs(1)),
        },
    }
}

message! {
    /// A share of requests.
    pub struct BudgetDetails {
        /// The percentage.
        pub percent: u32 where [min 0, max 100, default 20] = 20,
        /// The time over which requests are counted, 1s to 1h.
        pub interval: GatewayDuration where [
            default "10s",
            rule "!(duration(self) < duration('1s') || duration(self) > duration('1h'))" "the interval must be from 1s to 1h",
        ] = GatewayDuration::from_secs(10),
    }
}

message! {
    /// A number of requests in a time.
    pub struct RequestRate {
        /// The number.
        pub count: Option<u32> where [min 1, max 1000000],
        /// The time, 1h at most.
        pub interval: Option<GatewayDuration> where [
            rule "!(duration(self) == duration('0s') || duration(self) > duration('1h'))" "the interval must not be zero or longer than 1h",
        ],
    }
}
