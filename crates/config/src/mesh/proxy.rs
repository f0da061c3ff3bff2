//! The message `ProxyConfig`: settings of proxies.

use std::sync::Arc;
use std::time::Duration;

use crate::istio::{ClientTlsSettings, ReadinessProbe, TcpKeepalive};
use crate::mesh::connection::ConnectionSettings;
use crate::mesh::tracing::Tracing;
use crate::object::StringMap;

message! {
    /// Proxy settings. `Default` has Istio's defaults; a field that is set replaces only its own default.
    pub struct ProxyConfig: Relations {
        /// Directory of the generated configuration.
        pub config_path: Arc<str> = "./etc/istio/proxy".into(),
        /// Path of the Envoy binary.
        pub binary_path: Arc<str> = "/usr/local/bin/envoy".into(),
        /// Service name of the proxy in traces.
        pub cluster_name: Option<ProxyClusterName> = Some(ProxyClusterName::ServiceCluster("istio-proxy".into())),
        /// Drain duration when a proxy restarts.
        pub drain_duration: Duration where [is seconds] = Duration::from_secs(45),
        /// Address of the control plane.
        pub discovery_address: Arc<str> where [is host_port] = "istiod.istio-system.svc:15012".into(),
        /// Deprecated. Has no effect.
        pub discovery_refresh_delay: Option<Duration>,
        /// Deprecated in favor of `tracing`.
        pub zipkin_address: Arc<str>,
        /// UDP address of a statsd server.
        pub statsd_udp_address: Arc<str> where [is host_port],
        /// Deprecated in favor of `envoyMetricsService`.
        pub envoy_metrics_service_address: Arc<str> where [is host_port],
        /// Port of Envoy's admin interface.
        pub proxy_admin_port: i32 where [from 1, to 65535] = 15000,
        /// Deprecated. Has no effect.
        pub availability_zone: Arc<str>,
        /// Authentication of connections to the control plane.
        pub control_plane_auth_policy: AuthenticationPolicy = AuthenticationPolicy::MutualTls,
        /// Path of a complete Envoy configuration that replaces the generated one.
        pub custom_config_file: Arc<str>,
        /// Maximum length of a name in statistics.
        pub stat_name_length: i32 = 189,
        /// Number of worker threads. 0 means one per core.
        pub concurrency: Option<i32>,
        /// Path of a bootstrap template that replaces Istio's.
        pub proxy_bootstrap_template_path: Arc<str>,
        /// How inbound traffic is captured.
        pub interception_mode: InboundInterceptionMode,
        /// Tracing settings.
        pub tracing: Option<Tracing>,
        /// Deprecated. Has no effect.
        pub sds: Option<Sds>,
        /// Access log service (ALS).
        pub envoy_access_log_service: Option<RemoteService> where [
            inform "not-served" "this is for agents, which make it the cluster envoy_accesslog_service of the \
                 proxy's bootstrap; nothing is served because of it",
        ],
        /// Metrics service.
        pub envoy_metrics_service: Option<RemoteService> where [
            inform "not-served" "this is for agents, which have the proxy's bootstrap send metrics there; \
                 nothing is served because of it",
        ],
        /// Environment variables of the agent, which are also node metadata of the proxy.
        pub proxy_metadata: StringMap,
        /// Values of Envoy's runtime.
        pub runtime_values: StringMap,
        /// Port of the agent's health and metrics endpoint.
        pub status_port: i32 where [from 1, to 65535] = 15020,
        /// Additional tags of statistics.
        pub extra_stat_tags: Vec<Arc<str>>,
        /// Topology in front of gateways.
        pub gateway_topology: Option<Topology>,
        /// Time for which a proxy drains connections before it exits.
        pub termination_drain_duration: Duration = Duration::from_secs(5),
        /// ID of the mesh.
        pub mesh_id: Arc<str>,
        /// Readiness probe of a workload outside Kubernetes.
        pub readiness_probe: Option<ReadinessProbe>,
        /// Additional statistics that the proxy records.
        pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
        /// Whether application containers start after the proxy is ready.
        pub hold_application_until_proxy_starts: Option<bool>,
        /// Additional root certificates for connections to the control plane, in PEM format.
        pub ca_certificates_pem: Vec<Arc<str>> where [
            inform "not-served" "this is for agents, which trust these roots; nothing is served because of it",
        ],
        /// Image of the proxy.
        pub image: Option<ProxyImage>,
        /// Provider of private key operations.
        pub private_key_provider: Option<PrivateKeyProvider>,
        /// Headers that the proxy adds or changes.
        pub proxy_headers: Option<ProxyHeaders>,
        /// Time between flushes of log files.
        pub file_flush_interval: Option<Duration>,
        /// Size of buffered log data that triggers a flush, in KiB.
        pub file_flush_min_size_kb: u32,
        /// Whether the statistics endpoint compresses responses.
        pub stats_compression: Option<bool>,
        /// Limits and timeouts of connections.
        pub connection_settings: Option<ConnectionSettings>,
    }
}

oneof! {
    /// Service name of a proxy in traces.
    pub enum ProxyClusterName {
        /// Explicit name.
        ServiceCluster(Arc<str>) = "serviceCluster",
        /// Name that is derived from labels.
        Tracing(TracingServiceName) = "tracingServiceName",
    }
}

enumeration! {
    /// Rule that derives the service name in traces.
    pub enum TracingServiceName {
        /// Label `app` and namespace, as `APP.NAMESPACE`.
        #[default]
        AppLabelAndNamespace = "APP_LABEL_AND_NAMESPACE" 0,
        /// Canonical service name.
        CanonicalNameOnly = "CANONICAL_NAME_ONLY" 1,
        /// Canonical service name and namespace.
        CanonicalNameAndNamespace = "CANONICAL_NAME_AND_NAMESPACE" 2,
    }
}

enumeration! {
    /// Authentication of connections to the control plane.
    pub enum AuthenticationPolicy {
        /// No authentication.
        #[default]
        None = "NONE" 0,
        /// Mutual TLS.
        MutualTls = "MUTUAL_TLS" 1,
        /// Inherited from the parent configuration.
        Inherit = "INHERIT" 1000,
    }
}

enumeration! {
    /// How inbound traffic is captured.
    pub enum InboundInterceptionMode {
        /// By iptables with `REDIRECT`.
        #[default]
        Redirect = "REDIRECT" 0,
        /// By iptables with `TPROXY`.
        Tproxy = "TPROXY" 1,
        /// Not captured.
        None = "NONE" 2,
    }
}

message! {
    /// Deprecated.
    pub struct Sds {
        /// Deprecated.
        pub enabled: bool,
        /// Deprecated.
        pub k8s_sa_jwt_path: Arc<str>,
    }
}

message! {
    /// Topology in front of gateways.
    pub struct Topology {
        /// Number of trusted proxies in front of the gateway, whose entries in `x-forwarded-for` are trusted.
        pub num_trusted_proxies: u32,
        /// Handling of the header `x-forwarded-client-cert`.
        pub forward_client_cert_details: ForwardClientCertDetails,
        /// Whether the gateway expects the PROXY protocol.
        pub proxy_protocol: Option<EmptyMessage>,
    }
}

message! {
    /// Message without fields. Only its presence matters.
    pub struct EmptyMessage {}
}

enumeration! {
    /// Handling of the header `x-forwarded-client-cert`.
    pub enum ForwardClientCertDetails {
        /// Unspecified.
        #[default]
        Undefined = "UNDEFINED" 0,
        /// Removes the header.
        Sanitize = "SANITIZE" 1,
        /// Forwards the header if the client connection uses mutual TLS.
        ForwardOnly = "FORWARD_ONLY" 2,
        /// Appends the client certificate to the header if the client connection uses mutual TLS.
        AppendForward = "APPEND_FORWARD" 3,
        /// Replaces the header with the client certificate if the client connection uses mutual TLS.
        SanitizeSet = "SANITIZE_SET" 4,
        /// Always forwards the header.
        AlwaysForwardOnly = "ALWAYS_FORWARD_ONLY" 5,
    }
}

message! {
    /// Statistics to record in addition to Istio's defaults.
    pub struct ProxyStatsMatcher {
        /// Prefixes of statistic names.
        pub inclusion_prefixes: Vec<Arc<str>>,
        /// Suffixes of statistic names.
        pub inclusion_suffixes: Vec<Arc<str>>,
        /// Regular expressions of statistic names.
        pub inclusion_regexps: Vec<Arc<str>>,
    }
}

message! {
    /// Image of the proxy.
    pub struct ProxyImage {
        /// Image type: `default`, `debug` or `distroless`.
        pub image_type: Arc<str>,
    }
}

choice! {
    /// Provider of private key operations.
    pub enum PrivateKeyProvider where [any(cryptomb, qat)] {
        /// The proxy itself.
        else Proxy,
        /// CryptoMB.
        Cryptomb(KeyProviderSettings) = "cryptomb",
        /// QAT.
        Qat(KeyProviderSettings) = "qat",
    }
}

message! {
    /// Settings of a private key provider.
    pub struct KeyProviderSettings {
        /// Time to wait for a full batch of operations.
        pub poll_delay: Option<Duration> where [needed, is delay],
        /// Whether the proxy performs the operations itself if the provider is not available.
        pub fallback: Option<bool>,
    }
}

message! {
    /// External service.
    pub struct RemoteService {
        /// Address, as `host:port`.
        pub address: Arc<str> where [is host_port],
        /// TLS settings for connections to the service.
        pub tls_settings: Option<ClientTlsSettings>,
        /// TCP keepalive settings for connections to the service.
        pub tcp_keepalive: Option<TcpKeepalive>,
    }
}

message! {
    /// Headers that the proxy adds or changes.
    pub struct ProxyHeaders {
        /// Handling of the header `x-forwarded-client-cert`.
        pub forwarded_client_cert: ForwardClientCertDetails,
        /// Parts of the client certificate that are set in `x-forwarded-client-cert`.
        pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
        /// Header `x-request-id`.
        pub request_id: Option<HeaderSwitch>,
        /// Header `server`.
        pub server: Option<ServerHeader>,
        /// Header `x-envoy-attempt-count`.
        pub attempt_count: Option<HeaderSwitch>,
        /// Envoy's debug headers, `x-envoy-…`.
        pub envoy_debug_headers: Option<HeaderSwitch>,
        /// Metadata exchange headers, `x-envoy-peer-metadata…`.
        pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
        /// Whether the case of HTTP/1 header names is preserved.
        pub preserve_http1_header_case: Option<bool>,
        /// Header `x-forwarded-host`.
        pub x_forwarded_host: Option<EnabledSwitch>,
        /// Header `x-forwarded-port`.
        pub x_forwarded_port: Option<EnabledSwitch>,
    }
}

message! {
    /// Parts of the client certificate that are set in `x-forwarded-client-cert`.
    pub struct SetCurrentClientCertDetails {
        /// Whether the subject is included. Defaults to true.
        pub subject: Option<bool>,
        /// Whether the certificate is included.
        pub cert: Option<bool>,
        /// Whether the certificate chain is included.
        pub chain: Option<bool>,
        /// Whether the DNS names are included. Defaults to true.
        pub dns: Option<bool>,
        /// Whether the URIs are included. Defaults to true.
        pub uri: Option<bool>,
    }
}

message! {
    /// Header that can be disabled.
    pub struct HeaderSwitch {
        /// Whether the header is disabled.
        pub disabled: Option<bool>,
    }
}

message! {
    /// Header that can be enabled.
    pub struct EnabledSwitch {
        /// Whether the header is enabled.
        pub enabled: Option<bool>,
    }
}

message! {
    /// Header `server` of responses.
    pub struct ServerHeader {
        /// Whether the header is disabled.
        pub disabled: Option<bool>,
        /// Value of the header.
        pub value: Arc<str>,
    }
}

message! {
    /// Metadata exchange headers.
    pub struct MetadataExchangeHeaders {
        /// When the headers are sent.
        pub mode: MetadataExchangeMode,
    }
}

enumeration! {
    /// When metadata exchange headers are sent.
    pub enum MetadataExchangeMode {
        /// Always.
        #[default]
        Undefined = "UNDEFINED" 0,
        /// Only to workloads of the mesh.
        InMesh = "IN_MESH" 1,
    }
}
