//! Nested messages of MeshConfig.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::{ClientTlsSettings, ConnectionPoolSettings, OutboundMode, OutlierDetection};
use crate::object::StringMap;

enumeration! {
    /// Which Ingress objects are processed.
    pub enum IngressControllerMode {
        /// Same as `OFF`.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// Processes no Ingress objects.
        Off = "OFF" 1,
        /// Processes Ingress objects of the configured class and those without a class.
        Default = "DEFAULT" 2,
        /// Processes Ingress objects of the configured class.
        Strict = "STRICT" 3,
    }
}

enumeration! {
    /// Encoding of access logs.
    pub enum AccessLogEncoding {
        /// Text.
        #[default]
        Text = "TEXT" 0,
        /// JSON.
        Json = "JSON" 1,
    }
}

/// Why root certificates are not served.
const ROOTS: &str = "this is for the certificate authority and for agents that receive its roots, which is not there \
                     yet; clients of the trustDomains beside it are let in where their agents' roots allow it";

message! {
    /// Handling of outbound traffic to unknown destinations.
    pub struct MeshOutboundTrafficPolicy {
        /// Whether the traffic is allowed.
        pub mode: OutboundMode,
        /// TLS settings for connections to hosts that are resolved per request.
        pub tls: Option<ClientTlsSettings>,
    }
}

message! {
    /// Destination address of inbound traffic.
    pub struct InboundTrafficPolicy {
        /// Mode.
        pub mode: InboundMode,
    }
}

enumeration! {
    /// Destination address of inbound traffic.
    pub enum InboundMode {
        /// The original destination address.
        #[default]
        Passthrough = "PASSTHROUGH" 0,
        /// The loopback address.
        Localhost = "LOCALHOST" 1,
    }
}

enumeration! {
    /// Whether HTTP/1.1 connections between sidecars are upgraded to HTTP/2.
    pub enum MeshH2UpgradePolicy {
        /// Does not upgrade.
        #[default]
        DoNotUpgrade = "DO_NOT_UPGRADE" 0,
        /// Upgrades to HTTP/2.
        Upgrade = "UPGRADE" 1,
    }
}

message! {
    /// Source of configuration.
    pub struct ConfigSource {
        /// Address: `fs:///path`, `xds://host:port` or `k8s://`.
        pub address: Arc<str>,
        /// TLS settings for connections to the source.
        pub tls_settings: Option<ClientTlsSettings>,
        /// Kinds of resources to read from the source.
        pub subscribed_resources: Vec<SubscribedResource> where [
            warn "not-served" "as with Istio it has no effect: all kinds are read from the source",
        ],
    }
}

enumeration! {
    /// Kind of resources to read from a source.
    pub enum SubscribedResource {
        /// Services and endpoints.
        #[default]
        ServiceRegistry = "SERVICE_REGISTRY" 0,
    }
}

message! {
    /// Root certificates.
    pub struct CertificateData {
        /// Source of the certificates.
        pub data: Option<CertificateSource>,
        /// Certificate signers that the certificates belong to.
        pub cert_signers: Vec<Arc<str>> where [warn "not-served" ROOTS],
        /// Trust domains that the certificates belong to.
        pub trust_domains: Vec<Arc<str>>,
    }
}

oneof! {
    /// Source of root certificates.
    pub enum CertificateSource {
        /// Inline certificates in PEM format.
        Pem(Arc<str>) = "pem" where [warn "not-served" ROOTS],
        /// URL of a SPIFFE trust bundle.
        SpiffeBundleUrl(Arc<str>) = "spiffeBundleUrl" where [warn "not-served" ROOTS],
    }
}

message! {
    /// Certificate for DNS names. Deprecated.
    pub struct Certificate {
        /// Secret that the certificate is written to.
        pub secret_name: Arc<str>,
        /// DNS names of the certificate.
        pub dns_names: Vec<Arc<str>>,
    }
}

message! {
    /// Settings of a group of services.
    pub struct ServiceSettings {
        /// Settings that apply to the services.
        pub settings: Option<ServiceSettingsValues>,
        /// Host names of the services; wildcards are allowed.
        pub hosts: Vec<Arc<str>> where [is host],
    }
}

message! {
    /// Settings of services.
    pub struct ServiceSettingsValues {
        /// Whether clients only use endpoints in their own cluster.
        pub cluster_local: bool,
    }
}

message! {
    /// Scope of services.
    pub struct ServiceScopeConfig {
        /// Namespaces of the services.
        pub namespace_selector: Option<LabelSelector>,
        /// Services in these namespaces.
        pub services_selector: Option<LabelSelector>,
        /// Scope of the services.
        pub scope: ServiceScope,
    }
}

enumeration! {
    /// Scope of a service.
    pub enum ServiceScope {
        /// Visible in its own cluster.
        #[default]
        Local = "LOCAL" 0,
        /// Visible in all clusters of the mesh.
        Global = "GLOBAL" 1,
    }
}

message! {
    /// External certificate authority.
    pub struct CaConfig {
        /// Address of the CA.
        pub address: Arc<str>,
        /// TLS settings for connections to the CA.
        pub tls_settings: Option<ClientTlsSettings>,
        /// Timeout of a request. Defaults to 10s.
        pub request_timeout: Option<Duration>,
        /// Whether the control plane connects to the CA instead of the agents.
        pub istiod_side: bool,
    }
}

message! {
    /// Providers that are used if a Telemetry object names none.
    pub struct DefaultProviders {
        /// Providers for tracing.
        pub tracing: Vec<Arc<str>>,
        /// Providers for metrics.
        pub metrics: Vec<Arc<str>>,
        /// Providers for access logs.
        pub access_logging: Vec<Arc<str>>,
    }
}

message! {
    /// Label selector. All conditions must match.
    pub struct LabelSelector {
        /// Required labels and their values.
        pub match_labels: StringMap,
        /// Additional conditions.
        pub match_expressions: Vec<LabelSelectorRequirement>,
    }
}

impl LabelSelector {
    /// Whether labels match all conditions. A condition with an unknown operator never matches.
    pub fn matches(&self, labels: &StringMap) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|e| e.matches(labels))
    }
}

message! {
    /// Condition on one label.
    pub struct LabelSelectorRequirement {
        /// Name of the label.
        pub key: Arc<str>,
        /// Operator: `In`, `NotIn`, `Exists` or `DoesNotExist`.
        pub operator: Arc<str>,
        /// Values for `In` and `NotIn`.
        pub values: Vec<Arc<str>>,
    }
}

impl LabelSelectorRequirement {
    fn matches(&self, labels: &StringMap) -> bool {
        let value = labels.get(&self.key);
        match &*self.operator {
            "In" => value.is_some_and(|v| self.values.contains(v)),
            "NotIn" => value.is_none_or(|v| !self.values.contains(v)),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

message! {
    /// Normalization of request paths.
    pub struct PathNormalization {
        /// Type of normalization.
        pub normalization: NormalizationType,
    }
}

enumeration! {
    /// Type of path normalization.
    pub enum NormalizationType {
        /// Same as `BASE`.
        #[default]
        Default = "DEFAULT" 0,
        /// No normalization.
        None = "NONE" 1,
        /// Normalization according to RFC 3986.
        Base = "BASE" 2,
        /// `BASE`, and adjacent slashes are merged.
        MergeSlashes = "MERGE_SLASHES" 3,
        /// `MERGE_SLASHES`, and escaped slashes are decoded first.
        DecodeAndMergeSlashes = "DECODE_AND_MERGE_SLASHES" 4,
    }
}

message! {
    /// TLS settings.
    pub struct TlsConfig {
        /// Minimum TLS version.
        pub min_protocol_version: MeshTlsProtocol,
        /// Curves for the ECDH key exchange.
        pub ecdh_curves: Vec<Arc<str>>,
        /// Cipher suites.
        pub cipher_suites: Vec<Arc<str>>,
    }
}

enumeration! {
    /// TLS version.
    pub enum MeshTlsProtocol {
        /// Default, the same as `TLSV1_2`.
        #[default]
        Auto = "TLS_AUTO" 0,
        /// TLS 1.2.
        V1_2 = "TLSV1_2" 1,
        /// TLS 1.3.
        V1_3 = "TLSV1_3" 2,
    }
}

message! {
    /// Default traffic policy of all destinations. DestinationRules override it.
    pub struct DefaultTrafficPolicy {
        /// Limits for connections and requests.
        pub connection_pool: Option<ConnectionPoolSettings>,
        /// Outlier detection settings.
        pub outlier_detection: Option<OutlierDetection>,
    }
}

message! {
    /// Visibility of ServiceEntries.
    pub struct ServiceEntryVisibility {
        /// Visibility of ServiceEntries that no policy matches.
        pub default_visibility: Visibility,
        /// Whether the setting also applies to sidecars.
        pub apply_to_sidecars: bool,
        /// Exceptions. The first policy that matches applies.
        pub policies: Vec<VisibilityPolicy>,
    }
}

enumeration! {
    /// Visibility of a ServiceEntry.
    pub enum Visibility {
        /// Same as `PUBLIC`.
        #[default]
        Unspecified = "VISIBILITY_UNSPECIFIED" 0,
        /// Not visible.
        None = "NONE" 1,
        /// Visible in its namespace.
        Namespace = "NAMESPACE" 2,
        /// Visible in all namespaces.
        Public = "PUBLIC" 3,
    }
}

message! {
    /// Exception to the default visibility.
    pub struct VisibilityPolicy {
        /// Visibility of matching ServiceEntries.
        pub visibility: Visibility,
        /// Conditions, of which at least one must match.
        pub matching_rules: Vec<VisibilityMatch>,
    }
}

choice! {
    /// Condition of a visibility policy.
    pub enum VisibilityMatch {
        /// Matches nothing.
        else Nothing,
        /// Matches ServiceEntries in namespaces with these labels.
        NamespaceSelector(LabelSelector) = "namespaceSelector",
    }
}
