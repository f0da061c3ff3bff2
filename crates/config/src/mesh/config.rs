//! The message `MeshConfig`.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::{HttpRetry, LocalityLoadBalancerSetting, OutboundMode, TcpKeepalive, ZoneAwareLoadBalancerSetting};
use crate::mesh::provider::{ExtensionProvider, default_extension_providers};
use crate::mesh::proxy::ProxyConfig;
use crate::mesh::settings::*;

message! {
    /// Mesh-wide configuration. [`MeshConfig::default`] has Istio's defaults. A field that is set replaces its default;
    /// only `defaultConfig` is merged by field and `extensionProviders` by entry.
    pub struct MeshConfig: Relations {
        /// Port of sidecars for captured outbound traffic.
        pub proxy_listen_port: i32 where [from 1, to 65535] = 15001,
        /// Port of sidecars for captured inbound traffic.
        pub proxy_inbound_listen_port: i32 where [from 1, to 65535] = 15006,
        /// Port of sidecars for applications that use an HTTP proxy. 0 disables the port.
        pub proxy_http_port: i32 where [from 0, to 65535],
        /// Timeout for connections to endpoints.
        pub connect_timeout: Duration where [is duration] = Duration::from_secs(10),
        /// Idle timeout of HBONE connections. Defaults to Envoy's default of 1h.
        pub hbone_idle_timeout: Option<Duration> where [
            is duration,
            warn "not-served" "this is for connections of the ambient mode, which is not there yet; for sidecars \
                 and gateways nothing depends on it",
        ],
        /// Time to wait for the first bytes of a connection whose protocol is not declared. Zero means no limit.
        pub protocol_detection_timeout: Duration where [is duration_or_zero],
        /// TCP keepalive settings for connections to endpoints.
        pub tcp_keepalive: Option<TcpKeepalive>,
        /// Class of the Ingress objects to process.
        pub ingress_class: Arc<str> = "istio".into(),
        /// Name of the ingress gateway's Service.
        pub ingress_service: Arc<str> = "istio-ingressgateway".into(),
        /// Which Ingress objects are processed.
        pub ingress_controller_mode: IngressControllerMode = IngressControllerMode::Strict,
        /// Value of the label `istio` on the ingress gateway's Pods. Defaults to `ingressgateway`.
        pub ingress_selector: Arc<str>,
        /// Whether tracing is enabled.
        pub enable_tracing: bool = true,
        /// File that access logs are written to, such as `/dev/stdout`. If empty, access logging is disabled.
        pub access_log_file: Arc<str> where [is log_file],
        /// Format of access logs. If empty, Istio's default format is used.
        pub access_log_format: Arc<str>,
        /// Encoding of access logs: text or JSON.
        pub access_log_encoding: AccessLogEncoding,
        /// Whether access logs are sent to the access log service of the proxy configuration.
        pub enable_envoy_access_log_service: bool,
        /// Whether the access logs of listeners are disabled.
        pub disable_envoy_listener_log: bool,
        /// Default configuration of proxies.
        pub default_config: Box<ProxyConfig>,
        /// Handling of outbound traffic to unknown destinations.
        pub outbound_traffic_policy: MeshOutboundTrafficPolicy = MeshOutboundTrafficPolicy {
            mode: OutboundMode::AllowAny, tls: None,
        },
        /// Destination address of inbound traffic.
        pub inbound_traffic_policy: InboundTrafficPolicy,
        /// Sources of configuration.
        pub config_sources: Vec<ConfigSource>,
        /// Whether sidecars use mutual TLS automatically for services whose endpoints support it.
        pub enable_auto_mtls: bool = true,
        /// Trust domain of the identities in the mesh.
        pub trust_domain: Arc<str> where [is trust_domain] = "cluster.local".into(),
        /// Additional trust domains whose identities are treated as identities of the mesh.
        pub trust_domain_aliases: Vec<Arc<str>> where [is trust_domain],
        /// Additional root certificates.
        pub ca_certificates: Vec<CertificateData>,
        /// Default `exportTo` of services.
        pub default_service_export_to: Vec<Arc<str>> = vec!["*".into()],
        /// Default `exportTo` of VirtualServices.
        pub default_virtual_service_export_to: Vec<Arc<str>> = vec!["*".into()],
        /// Default `exportTo` of DestinationRules.
        pub default_destination_rule_export_to: Vec<Arc<str>> = vec!["*".into()],
        /// Root namespace. Policies in this namespace apply to the whole mesh.
        pub root_namespace: Arc<str> where [is label] = "istio-system".into(),
        /// Default locality preferences of load balancing.
        pub locality_lb_setting: Option<LocalityLoadBalancerSetting> = Some(LocalityLoadBalancerSetting {
            enabled: Some(true), ..LocalityLoadBalancerSetting::default()
        }),
        /// Default zone-aware routing settings.
        pub zone_aware_lb_setting: Option<ZoneAwareLoadBalancerSetting>,
        /// Refresh rate of DNS resolution in proxies.
        pub dns_refresh_rate: Duration where [is duration_or_zero] = Duration::from_secs(60),
        /// Whether HTTP/1.1 connections between sidecars are upgraded to HTTP/2.
        pub h2_upgrade_policy: MeshH2UpgradePolicy,
        /// Pattern of inbound cluster names in statistics.
        pub inbound_cluster_stat_name: Arc<str>,
        /// Pattern of outbound cluster names in statistics.
        pub outbound_cluster_stat_name: Arc<str>,
        /// Deprecated. Has no effect.
        pub certificates: Vec<Certificate> where [
            warn "not-served" "no version of Istio that is supported makes certificates for DNS names, and \
                 neither does this one: it has no effect",
        ],
        /// Settings of groups of services.
        pub service_settings: Vec<ServiceSettings>,
        /// Scope of services: local to their cluster or visible in all clusters.
        pub service_scope_configs: Vec<ServiceScopeConfig> where [
            warn "not-served" "this is for services of the ambient mode, which is not there yet; for sidecars \
                 and gateways nothing depends on it",
        ],
        /// Whether the agent merges application and proxy metrics on one Prometheus endpoint.
        pub enable_prometheus_merge: bool where [
            inform "not-served" "this is for injection, which tells agents to add the application's metrics to \
                 the proxy's; nothing is served because of it",
        ] = true,
        /// Whether server certificates are verified against the operating system's CA certificates. Deprecated.
        pub verify_certificate_at_client: Option<bool>,
        /// External certificate authority.
        pub ca: Option<CaConfig> where [
            warn "not-served" "as with Istio it has no effect: the agents learn of another authority from the \
                 address CA_ADDR in their environment",
        ],
        /// Providers of telemetry and authorization that other resources refer to by name.
        pub extension_providers: Vec<ExtensionProvider> where [unique "name"] = default_extension_providers(),
        /// Providers that are used if a Telemetry object names none.
        pub default_providers: DefaultProviders,
        /// Namespaces to watch. If empty, all namespaces are watched.
        pub discovery_selectors: Vec<LabelSelector>,
        /// Normalization of request paths.
        pub path_normalization: PathNormalization,
        /// Default retry policy of HTTP routes. If omitted, 2 attempts on connection failures.
        pub default_http_retry_policy: Option<HttpRetry>,
        /// Retry policy of inbound HTTP routes, except those of gRPC ports. Only `attempts`, `retryOn` and `backoff` apply. If
        /// omitted, 2 attempts if the application resets the connection before it answers.
        pub default_inbound_http_retry_policy: Option<HttpRetry>,
        /// TLS settings of connections between workloads.
        pub mesh_mtls: Option<TlsConfig> as "meshMTLS",
        /// TLS settings of all other connections.
        pub tls_defaults: Option<TlsConfig>,
        /// Default traffic policy of all destinations. DestinationRules override it.
        pub default_traffic_policy: Option<DefaultTrafficPolicy>,
        /// Visibility of ServiceEntries.
        pub service_entry_visibility: Option<ServiceEntryVisibility>,
    }
}

impl MeshConfig {
    /// Adds the default providers that the configuration does not redefine, before its own providers.
    pub(crate) fn keep_default_providers(&mut self) {
        let mut merged = default_extension_providers();
        merged.retain(|default| self.extension_providers.iter().all(|p| p.name != default.name));
        merged.append(&mut self.extension_providers);
        self.extension_providers = merged;
    }

    /// The trust domain and its aliases.
    pub fn trust_domains(&self) -> impl Iterator<Item = &Arc<str>> {
        std::iter::once(&self.trust_domain).chain(&self.trust_domain_aliases)
    }

    /// Environment variables of the control plane that provider headers refer to (`envName`).
    pub fn environment(&self) -> impl Iterator<Item = Arc<str>> {
        self.extension_providers.iter().flat_map(ExtensionProvider::environment)
    }

    /// Encodes the configuration as JSON. Fields with the zero value of their type are omitted.
    pub fn to_json(&self) -> serde_json::Value {
        crate::decode::Decode::encode(self)
    }
}
