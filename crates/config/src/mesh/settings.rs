//! The smaller messages of MeshConfig.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::{ClientTlsSettings, ConnectionPoolSettings, OutboundMode, OutlierDetection};
use crate::object::StringMap;

enumeration! {
    /// Which Ingress objects count.
    pub enum IngressControllerMode {
        /// As `OFF`.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// None.
        Off = "OFF" 1,
        /// Those of the class and those without one.
        Default = "DEFAULT" 2,
        /// Those of the class.
        Strict = "STRICT" 3,
    }
}

enumeration! {
    /// How access log lines are written.
    pub enum AccessLogEncoding {
        /// As text.
        #[default]
        Text = "TEXT" 0,
        /// As JSON.
        Json = "JSON" 1,
    }
}

message! {
    /// What happens to traffic to unknown destinations.
    pub struct MeshOutboundTrafficPolicy {
        /// Whether it passes.
        pub mode: OutboundMode,
        /// TLS towards hosts that are resolved per request.
        pub tls: Option<ClientTlsSettings>,
    }
}

message! {
    /// Where traffic that arrives is passed on to.
    pub struct InboundTrafficPolicy {
        /// Where.
        pub mode: InboundMode,
    }
}

enumeration! {
    /// Where traffic that arrives is passed on to.
    pub enum InboundMode {
        /// To the address that it came to.
        #[default]
        Passthrough = "PASSTHROUGH" 0,
        /// To localhost.
        Localhost = "LOCALHOST" 1,
    }
}

enumeration! {
    /// Whether HTTP/1.1 becomes HTTP/2 between sidecars.
    pub enum MeshH2UpgradePolicy {
        /// It stays.
        #[default]
        DoNotUpgrade = "DO_NOT_UPGRADE" 0,
        /// It does.
        Upgrade = "UPGRADE" 1,
    }
}

message! {
    /// A place that configuration comes from.
    pub struct ConfigSource {
        /// `fs:///path`, `xds://host:port`, `k8s://`.
        pub address: Arc<str>,
        /// TLS towards it.
        pub tls_settings: Option<ClientTlsSettings>,
        /// What is taken from it.
        pub subscribed_resources: Vec<SubscribedResource>,
    }
}

enumeration! {
    /// What is taken from a source.
    pub enum SubscribedResource {
        /// Services and endpoints.
        #[default]
        ServiceRegistry = "SERVICE_REGISTRY" 0,
    }
}

message! {
    /// Root certificates.
    pub struct CertificateData {
        /// Where they come from.
        pub data: Option<CertificateSource>,
        /// The signers whose roots they are.
        pub cert_signers: Vec<Arc<str>>,
        /// The trust domains whose roots they are.
        pub trust_domains: Vec<Arc<str>>,
    }
}

oneof! {
    /// Where root certificates come from.
    pub enum CertificateSource {
        /// The certificates themselves.
        Pem(Arc<str>) = "pem",
        /// An address that serves them.
        SpiffeBundleUrl(Arc<str>) = "spiffeBundleUrl",
    }
}

message! {
    /// A certificate for DNS names; deprecated.
    pub struct Certificate {
        /// The secret to put it into.
        pub secret_name: Arc<str>,
        /// The names.
        pub dns_names: Vec<Arc<str>>,
    }
}

message! {
    /// Settings of a group of services.
    pub struct ServiceSettings {
        /// The settings.
        pub settings: Option<ServiceSettingsValues>,
        /// The services' hosts; wildcards are allowed.
        pub hosts: Vec<Arc<str>>,
    }
}

message! {
    /// The values of service settings.
    pub struct ServiceSettingsValues {
        /// Whether clients use endpoints of their own cluster only.
        pub cluster_local: bool,
    }
}

message! {
    /// Which services are known to other clusters.
    pub struct ServiceScopeConfig {
        /// Namespaces.
        pub namespace_selector: Option<LabelSelector>,
        /// Services in them.
        pub services_selector: Option<LabelSelector>,
        /// Where they are known.
        pub scope: ServiceScope,
    }
}

enumeration! {
    /// Where a service is known.
    pub enum ServiceScope {
        /// In its cluster.
        #[default]
        Local = "LOCAL" 0,
        /// In the whole mesh.
        Global = "GLOBAL" 1,
    }
}

message! {
    /// An external CA.
    pub struct CaConfig {
        /// Its address.
        pub address: Arc<str>,
        /// TLS towards it.
        pub tls_settings: Option<ClientTlsSettings>,
        /// The time for a request; absent means 10s.
        pub request_timeout: Option<Duration>,
        /// Whether the control plane talks to it, and not the agents.
        pub istiod_side: bool,
    }
}

message! {
    /// Providers that are used without being named.
    pub struct DefaultProviders {
        /// For tracing.
        pub tracing: Vec<Arc<str>>,
        /// For metrics.
        pub metrics: Vec<Arc<str>>,
        /// For access logs.
        pub access_logging: Vec<Arc<str>>,
    }
}

message! {
    /// Selects by labels; all conditions must hold.
    pub struct LabelSelector {
        /// Labels and their values.
        pub match_labels: StringMap,
        /// More conditions.
        pub match_expressions: Vec<LabelSelectorRequirement>,
    }
}

impl LabelSelector {
    /// Whether labels fulfil all conditions. An operator that is unknown holds for nothing.
    pub fn matches(&self, labels: &StringMap) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|e| e.matches(labels))
    }
}

message! {
    /// A condition on one label.
    pub struct LabelSelectorRequirement {
        /// The label.
        pub key: Arc<str>,
        /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
        pub operator: Arc<str>,
        /// The values for `In` and `NotIn`.
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
    /// How request paths are normalized.
    pub struct PathNormalization {
        /// How.
        pub normalization: NormalizationType,
    }
}

enumeration! {
    /// How request paths are normalized.
    pub enum NormalizationType {
        /// As `BASE`.
        #[default]
        Default = "DEFAULT" 0,
        /// Not at all.
        None = "NONE" 1,
        /// By RFC 3986.
        Base = "BASE" 2,
        /// Slashes in a row become one.
        MergeSlashes = "MERGE_SLASHES" 3,
        /// Escaped slashes are unescaped first.
        DecodeAndMergeSlashes = "DECODE_AND_MERGE_SLASHES" 4,
    }
}

message! {
    /// Settings of TLS.
    pub struct TlsConfig {
        /// The least version.
        pub min_protocol_version: MeshTlsProtocol,
        /// Curves for the key exchange.
        pub ecdh_curves: Vec<Arc<str>>,
        /// Cipher suites.
        pub cipher_suites: Vec<Arc<str>>,
    }
}

enumeration! {
    /// A version of TLS.
    pub enum MeshTlsProtocol {
        /// 1.2
        #[default]
        Auto = "TLS_AUTO" 0,
        /// 1.2
        V1_2 = "TLSV1_2" 1,
        /// 1.3
        V1_3 = "TLSV1_3" 2,
    }
}

message! {
    /// The policy under every DestinationRule.
    pub struct DefaultTrafficPolicy {
        /// Limits on connections and requests.
        pub connection_pool: Option<ConnectionPoolSettings>,
        /// When an endpoint is taken out.
        pub outlier_detection: Option<OutlierDetection>,
    }
}

message! {
    /// Who sees ServiceEntries.
    pub struct ServiceEntryVisibility {
        /// Where no policy says otherwise.
        pub default_visibility: Visibility,
        /// Whether it holds for sidecars, too.
        pub apply_to_sidecars: bool,
        /// Exceptions; the first that matches wins.
        pub policies: Vec<VisibilityPolicy>,
    }
}

enumeration! {
    /// Who sees a ServiceEntry.
    pub enum Visibility {
        /// As `PUBLIC`.
        #[default]
        Unspecified = "VISIBILITY_UNSPECIFIED" 0,
        /// Nobody.
        None = "NONE" 1,
        /// Its namespace.
        Namespace = "NAMESPACE" 2,
        /// Everybody.
        Public = "PUBLIC" 3,
    }
}

message! {
    /// An exception from the default visibility.
    pub struct VisibilityPolicy {
        /// Who sees the entry.
        pub visibility: Visibility,
        /// When; one of these.
        pub matching_rules: Vec<VisibilityMatch>,
    }
}

choice! {
    /// When a visibility policy applies.
    pub enum VisibilityMatch {
        /// Never.
        else Nothing,
        /// In namespaces with labels.
        NamespaceSelector(LabelSelector) = "namespaceSelector",
    }
}
