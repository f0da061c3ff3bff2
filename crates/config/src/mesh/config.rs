//! The MeshConfig itself.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::{HttpRetry, LocalityLoadBalancerSetting, OutboundMode, TcpKeepalive, ZoneAwareLoadBalancerSetting};
use crate::mesh::provider::{ExtensionProvider, default_extension_providers};
use crate::mesh::proxy::ProxyConfig;
use crate::mesh::settings::*;

message! {
    /// Settings of the whole mesh. [`MeshConfig::default`] has Istio's defaults; a field that is written replaces its
    /// default, only those of `default_config` and the entries of `extension_providers` are merged one by one.
    pub struct MeshConfig {
        /// The port of sidecars for captured traffic that leaves.
        pub proxy_listen_port: i32 = 15001,
        /// The port of sidecars for captured traffic that arrives.
        pub proxy_inbound_listen_port: i32 = 15006,
        /// The port of sidecars for applications that use an HTTP proxy; 0: none.
        pub proxy_http_port: i32,
        /// The time to connect to an endpoint.
        pub connect_timeout: Duration = Duration::from_secs(10),
        /// How long an HBONE connection may be idle; absent: Envoy's default, an hour.
        pub hbone_idle_timeout: Option<Duration>,
        /// How long to wait for the first bytes of a connection whose protocol is not declared; zero: for ever.
        pub protocol_detection_timeout: Duration,
        /// Keepalive probes towards endpoints.
        pub tcp_keepalive: Option<TcpKeepalive>,
        /// The class of Ingress objects that count.
        pub ingress_class: Arc<str> = "istio".into(),
        /// The service of the ingress gateway.
        pub ingress_service: Arc<str> = "istio-ingressgateway".into(),
        /// Which Ingress objects count.
        pub ingress_controller_mode: IngressControllerMode = IngressControllerMode::Strict,
        /// The label `istio` of the ingress gateway's Pods; empty means `ingressgateway`.
        pub ingress_selector: Arc<str>,
        /// Whether requests are traced.
        pub enable_tracing: bool = true,
        /// The file that the access log goes to, such as `/dev/stdout`; empty: none.
        pub access_log_file: Arc<str>,
        /// The format of the access log; empty: Istio's default.
        pub access_log_format: Arc<str>,
        /// Whether the access log is text or JSON.
        pub access_log_encoding: AccessLogEncoding,
        /// Whether the access log goes to the service in the proxy's configuration.
        pub enable_envoy_access_log_service: bool,
        /// Whether listeners do without an access log.
        pub disable_envoy_listener_log: bool,
        /// Defaults for proxies.
        pub default_config: Box<ProxyConfig>,
        /// What happens to traffic to unknown destinations.
        pub outbound_traffic_policy: MeshOutboundTrafficPolicy = MeshOutboundTrafficPolicy {
            mode: OutboundMode::AllowAny, tls: None,
        },
        /// Where traffic that arrives is passed on to.
        pub inbound_traffic_policy: InboundTrafficPolicy,
        /// Where configuration comes from.
        pub config_sources: Vec<ConfigSource>,
        /// Whether sidecars use mutual TLS among themselves without being told.
        pub enable_auto_mtls: bool = true,
        /// The trust domain of the mesh's identities.
        pub trust_domain: Arc<str> = "cluster.local".into(),
        /// Other trust domains whose identities count as the mesh's.
        pub trust_domain_aliases: Vec<Arc<str>>,
        /// More root certificates.
        pub ca_certificates: Vec<CertificateData>,
        /// `exportTo` of services that say nothing.
        pub default_service_export_to: Vec<Arc<str>> = vec!["*".into()],
        /// `exportTo` of VirtualServices that say nothing.
        pub default_virtual_service_export_to: Vec<Arc<str>> = vec!["*".into()],
        /// `exportTo` of DestinationRules that say nothing.
        pub default_destination_rule_export_to: Vec<Arc<str>> = vec!["*".into()],
        /// The namespace whose objects hold for the whole mesh.
        pub root_namespace: Arc<str> = "istio-system".into(),
        /// Preferences by locality.
        pub locality_lb_setting: Option<LocalityLoadBalancerSetting> = Some(LocalityLoadBalancerSetting {
            enabled: Some(true), ..LocalityLoadBalancerSetting::default()
        }),
        /// Preferences by zone.
        pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
        /// How often DNS is asked again after a failure.
        pub dns_refresh_rate: Duration = Duration::from_secs(60),
        /// Whether HTTP/1.1 becomes HTTP/2 between sidecars.
        pub h2_upgrade_policy: MeshH2UpgradePolicy,
        /// The pattern of inbound clusters' names in statistics.
        pub inbound_cluster_stat_name: Arc<str>,
        /// The pattern of outbound clusters' names in statistics.
        pub outbound_cluster_stat_name: Arc<str>,
        /// Deprecated and without effect.
        pub certificates: Vec<Certificate>,
        /// Settings of groups of services.
        pub service_settings: Vec<ServiceSettings>,
        /// Which services are known to other clusters.
        pub service_scope_configs: Vec<ServiceScopeConfig>,
        /// Whether the metrics of application and proxy are merged.
        pub enable_prometheus_merge: bool = true,
        /// Whether servers are checked against the system's CA certificates; deprecated.
        pub verify_certificate_at_client: Option<bool>,
        /// An external CA.
        pub ca: Option<CaConfig>,
        /// What telemetry and authorization may refer to by name.
        pub extension_providers: Vec<ExtensionProvider> = default_extension_providers(),
        /// Providers that are used without being named.
        pub default_providers: DefaultProviders,
        /// Which namespaces count; empty: all.
        pub discovery_selectors: Vec<LabelSelector>,
        /// How request paths are normalized.
        pub path_normalization: PathNormalization,
        /// Retries of routes that say nothing; absent: 2 attempts on connection failures.
        pub default_http_retry_policy: Option<HttpRetry>,
        /// TLS between workloads.
        pub mesh_mtls: Option<TlsConfig> as "meshMTLS",
        /// TLS elsewhere.
        pub tls_defaults: Option<TlsConfig>,
        /// The policy under every DestinationRule.
        pub default_traffic_policy: Option<DefaultTrafficPolicy>,
        /// Who sees ServiceEntries.
        pub service_entry_visibility: Option<ServiceEntryVisibility>,
    }
}

impl MeshConfig {
    /// Puts back the default providers that a configuration did not redefine, before its own.
    pub(crate) fn keep_default_providers(&mut self) {
        let mut merged = default_extension_providers();
        merged.retain(|default| self.extension_providers.iter().all(|p| p.name != default.name));
        merged.append(&mut self.extension_providers);
        self.extension_providers = merged;
    }

    /// The trust domain, and those that it goes by, too.
    pub fn trust_domains(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.trust_domain).chain(&self.trust_domain_aliases)
    }

    /// What of the environment of the control plane headers of providers take (`envName`).
    pub fn environment(&self) -> impl Iterator<Item = Arc<str>> {
        self.extension_providers.iter().flat_map(ExtensionProvider::environment)
    }

    /// The settings as JSON, those left at the type's zero value left out.
    pub fn to_json(&self) -> serde_json::Value {
        crate::decode::Decode::encode(self)
    }
}
