//! ProxyConfig: settings of proxies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::{ClientTlsSettings, ReadinessProbe, TcpKeepalive};
use crate::object::StringMap;

message! {
    /// Settings of a proxy. `Default` has Istio's defaults, and a field that is written replaces its own only.
    pub struct ProxyConfig {
        /// The directory of generated configuration.
        pub config_path: Arc<str> = "./etc/istio/proxy".into(),
        /// The path of the proxy.
        pub binary_path: Arc<str> = "/usr/local/bin/envoy".into(),
        /// The name that the proxy gives itself in traces.
        pub cluster_name: Option<ProxyClusterName> = Some(ProxyClusterName::ServiceCluster("istio-proxy".into())),
        /// How long a proxy drains on a restart.
        pub drain_duration: Duration = Duration::from_secs(45),
        /// The address of the control plane.
        pub discovery_address: Arc<str> = "istiod.istio-system.svc:15012".into(),
        /// Deprecated and without effect.
        pub discovery_refresh_delay: Option<Duration>,
        /// Deprecated; see `tracing`.
        pub zipkin_address: Arc<str>,
        /// Where statistics are sent to.
        pub statsd_udp_address: Arc<str>,
        /// Deprecated; see `envoy_metrics_service`.
        pub envoy_metrics_service_address: Arc<str>,
        /// The port of the proxy's administration.
        pub proxy_admin_port: i32 = 15000,
        /// Deprecated and without effect.
        pub availability_zone: Arc<str>,
        /// How the control plane is authenticated.
        pub control_plane_auth_policy: AuthenticationPolicy = AuthenticationPolicy::MutualTls,
        /// A complete configuration instead of the generated one.
        pub custom_config_file: Arc<str>,
        /// The longest name in statistics.
        pub stat_name_length: i32 = 189,
        /// Worker threads; 0 means one for each core.
        pub concurrency: Option<i32>,
        /// A template instead of Istio's.
        pub proxy_bootstrap_template_path: Arc<str>,
        /// How traffic is captured.
        pub interception_mode: InboundInterceptionMode,
        /// Traces.
        pub tracing: Option<Tracing>,
        /// Deprecated and without effect.
        pub sds: Option<Sds>,
        /// Where the access log goes.
        pub envoy_access_log_service: Option<RemoteService>,
        /// Where metrics go.
        pub envoy_metrics_service: Option<RemoteService>,
        /// Environment variables of the agent and metadata of the proxy.
        pub proxy_metadata: StringMap,
        /// Values of Envoy's runtime.
        pub runtime_values: StringMap,
        /// The port of the agent's status.
        pub status_port: i32 = 15020,
        /// More tags of statistics.
        pub extra_stat_tags: Vec<Arc<str>>,
        /// What is in front of gateways.
        pub gateway_topology: Option<Topology>,
        /// How long a proxy drains when it ends.
        pub termination_drain_duration: Duration = Duration::from_secs(5),
        /// The id of the mesh.
        pub mesh_id: Arc<str>,
        /// How a workload without Kubernetes is probed.
        pub readiness_probe: Option<ReadinessProbe>,
        /// Which statistics are kept.
        pub proxy_stats_matcher: Option<ProxyStatsMatcher>,
        /// Whether applications start after their proxy.
        pub hold_application_until_proxy_starts: Option<bool>,
        /// More root certificates of the control plane.
        pub ca_certificates_pem: Vec<Arc<str>>,
        /// The image of the proxy.
        pub image: Option<ProxyImage>,
        /// What does the work with private keys.
        pub private_key_provider: Option<PrivateKeyProvider>,
        /// Headers that the proxy adds.
        pub proxy_headers: Option<ProxyHeaders>,
        /// How often log files are flushed.
        pub file_flush_interval: Option<Duration>,
        /// From how many KiB on log files are flushed.
        pub file_flush_min_size_kb: u32,
        /// Whether statistics are compressed.
        pub stats_compression: Option<bool>,
        /// Limits of connections.
        pub connection_settings: Option<ConnectionSettings>,
    }
}

oneof! {
    /// The name that a proxy gives itself in traces.
    pub enum ProxyClusterName {
        /// This one.
        ServiceCluster(Arc<str>) = "serviceCluster",
        /// One made of its labels.
        Tracing(TracingServiceName) = "tracingServiceName",
    }
}

enumeration! {
    /// How the name in traces is made.
    pub enum TracingServiceName {
        /// `APP.NAMESPACE`.
        #[default]
        AppLabelAndNamespace = "APP_LABEL_AND_NAMESPACE" 0,
        /// The canonical name.
        CanonicalNameOnly = "CANONICAL_NAME_ONLY" 1,
        /// The canonical name and the namespace.
        CanonicalNameAndNamespace = "CANONICAL_NAME_AND_NAMESPACE" 2,
    }
}

enumeration! {
    /// How the control plane is authenticated.
    pub enum AuthenticationPolicy {
        /// Not at all.
        #[default]
        None = "NONE" 0,
        /// By mutual TLS.
        MutualTls = "MUTUAL_TLS" 1,
        /// As the parent says.
        Inherit = "INHERIT" 1000,
    }
}

enumeration! {
    /// How traffic is captured.
    pub enum InboundInterceptionMode {
        /// iptables REDIRECT.
        #[default]
        Redirect = "REDIRECT" 0,
        /// iptables TPROXY.
        Tproxy = "TPROXY" 1,
        /// Not at all.
        None = "NONE" 2,
    }
}

message! {
    /// Traces.
    pub struct Tracing {
        /// Where they go.
        pub tracer: Option<Tracer>,
        /// Tags to add.
        pub custom_tags: BTreeMap<Arc<str>, CustomTag>,
        /// The longest path in a tag; 0 means 256.
        pub max_path_tag_length: u32,
        /// Percentage of requests; 0 means the default, 1.
        pub sampling: f64,
        /// TLS towards the tracer.
        pub tls_settings: Option<ClientTlsSettings>,
        /// Whether Istio's tags are added; absent means yes.
        pub enable_istio_tags: Option<bool>,
    }
}

oneof! {
    /// Where traces go.
    pub enum Tracer {
        /// Zipkin.
        Zipkin(TracerAddress) = "zipkin",
        /// Lightstep.
        Lightstep(Lightstep) = "lightstep",
        /// Datadog.
        Datadog(TracerAddress) = "datadog",
        /// Stackdriver.
        Stackdriver(StackdriverTracer) = "stackdriver",
        /// The agent of OpenCensus.
        OpenCensusAgent(OpenCensusAgent) = "openCensusAgent",
    }
}

message! {
    /// The address of a tracer.
    pub struct TracerAddress {
        /// `host:port`.
        pub address: Arc<str>,
    }
}

message! {
    /// Lightstep.
    pub struct Lightstep {
        /// `host:port`.
        pub address: Arc<str>,
        /// The token.
        pub access_token: Arc<str>,
    }
}

message! {
    /// Stackdriver.
    pub struct StackdriverTracer {
        /// Whether traces are also printed.
        pub debug: bool,
        /// A limit.
        pub max_number_of_attributes: Option<i64>,
        /// A limit.
        pub max_number_of_annotations: Option<i64>,
        /// A limit.
        pub max_number_of_message_events: Option<i64>,
    }
}

message! {
    /// The agent of OpenCensus.
    pub struct OpenCensusAgent {
        /// Its address.
        pub address: Arc<str>,
        /// The forms in which the trace context is passed on.
        pub context: Vec<TraceContext>,
    }
}

enumeration! {
    /// A form in which the trace context is passed on.
    pub enum TraceContext {
        /// Not said.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// `traceparent`.
        W3c = "W3C_TRACE_CONTEXT" 1,
        /// `grpc-trace-bin`.
        GrpcBin = "GRPC_BIN" 2,
        /// `x-cloud-trace-context`.
        Cloud = "CLOUD_TRACE_CONTEXT" 3,
        /// `x-b3-…`.
        B3 = "B3" 4,
    }
}

choice! {
    /// What the value of a tag is.
    pub enum CustomTag {
        /// Nothing.
        else Nothing,
        /// Always the same.
        Literal(LiteralTag) = "literal",
        /// From the proxy's environment.
        Environment(NamedTag) = "environment",
        /// From a request header.
        Header(NamedTag) = "header",
    }
}

message! {
    /// A tag that is always the same.
    pub struct LiteralTag {
        /// Its value.
        pub value: Arc<str>,
    }
}

message! {
    /// A tag that is read from somewhere.
    pub struct NamedTag {
        /// The name to read.
        pub name: Arc<str>,
        /// The value where there is none.
        pub default_value: Arc<str>,
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
    /// What is in front of gateways.
    pub struct Topology {
        /// Proxies whose `x-forwarded-for` is trusted.
        pub num_trusted_proxies: u32,
        /// What happens to `x-forwarded-client-cert`.
        pub forward_client_cert_details: ForwardClientCertDetails,
        /// Whether the PROXY protocol is spoken.
        pub proxy_protocol: Option<EmptyMessage>,
    }
}

message! {
    /// A message whose presence is all that it says.
    pub struct EmptyMessage {}
}

enumeration! {
    /// What happens to `x-forwarded-client-cert`.
    pub enum ForwardClientCertDetails {
        /// Not said.
        #[default]
        Undefined = "UNDEFINED" 0,
        /// It is removed.
        Sanitize = "SANITIZE" 1,
        /// It is forwarded where the client used mutual TLS.
        ForwardOnly = "FORWARD_ONLY" 2,
        /// The client's certificate is appended.
        AppendForward = "APPEND_FORWARD" 3,
        /// It is replaced by the client's certificate.
        SanitizeSet = "SANITIZE_SET" 4,
        /// It is forwarded.
        AlwaysForwardOnly = "ALWAYS_FORWARD_ONLY" 5,
    }
}

message! {
    /// Which statistics are kept beside Istio's own.
    pub struct ProxyStatsMatcher {
        /// By how they begin.
        pub inclusion_prefixes: Vec<Arc<str>>,
        /// By how they end.
        pub inclusion_suffixes: Vec<Arc<str>>,
        /// By regular expressions.
        pub inclusion_regexps: Vec<Arc<str>>,
    }
}

message! {
    /// The image of the proxy.
    pub struct ProxyImage {
        /// `default`, `debug` or `distroless`.
        pub image_type: Arc<str>,
    }
}

choice! {
    /// What does the work with private keys.
    pub enum PrivateKeyProvider {
        /// The proxy.
        else Proxy,
        /// CryptoMB.
        Cryptomb(KeyProviderSettings) = "cryptomb",
        /// QAT.
        Qat(KeyProviderSettings) = "qat",
    }
}

message! {
    /// Settings of a provider for private keys.
    pub struct KeyProviderSettings {
        /// How long to wait for a full batch.
        pub poll_delay: Option<Duration>,
        /// Whether the proxy does the work where the provider cannot.
        pub fallback: Option<bool>,
    }
}

message! {
    /// A service outside the proxy.
    pub struct RemoteService {
        /// `host:port`.
        pub address: Arc<str>,
        /// TLS towards it.
        pub tls_settings: Option<ClientTlsSettings>,
        /// Keepalive probes.
        pub tcp_keepalive: Option<TcpKeepalive>,
    }
}

message! {
    /// Headers that the proxy adds.
    pub struct ProxyHeaders {
        /// What happens to `x-forwarded-client-cert`.
        pub forwarded_client_cert: ForwardClientCertDetails,
        /// What of the client's certificate is put there.
        pub set_current_client_cert_details: Option<SetCurrentClientCertDetails>,
        /// `x-request-id`.
        pub request_id: Option<HeaderSwitch>,
        /// `server`.
        pub server: Option<ServerHeader>,
        /// `x-envoy-attempt-count`.
        pub attempt_count: Option<HeaderSwitch>,
        /// `x-envoy-…`.
        pub envoy_debug_headers: Option<HeaderSwitch>,
        /// `x-envoy-peer-metadata…`.
        pub metadata_exchange_headers: Option<MetadataExchangeHeaders>,
        /// Whether the case of HTTP/1 headers is kept.
        pub preserve_http1_header_case: Option<bool>,
        /// `x-forwarded-host`.
        pub x_forwarded_host: Option<EnabledSwitch>,
        /// `x-forwarded-port`.
        pub x_forwarded_port: Option<EnabledSwitch>,
    }
}

message! {
    /// What of the client's certificate is forwarded.
    pub struct SetCurrentClientCertDetails {
        /// The subject; absent means yes.
        pub subject: Option<bool>,
        /// The certificate.
        pub cert: Option<bool>,
        /// The chain.
        pub chain: Option<bool>,
        /// DNS names; absent means yes.
        pub dns: Option<bool>,
        /// URIs; absent means yes.
        pub uri: Option<bool>,
    }
}

message! {
    /// A header that can be switched off.
    pub struct HeaderSwitch {
        /// Whether it is off.
        pub disabled: Option<bool>,
    }
}

message! {
    /// A header that can be switched on.
    pub struct EnabledSwitch {
        /// Whether it is on.
        pub enabled: Option<bool>,
    }
}

message! {
    /// The header `server`.
    pub struct ServerHeader {
        /// Whether it is off.
        pub disabled: Option<bool>,
        /// Its value.
        pub value: Arc<str>,
    }
}

message! {
    /// The headers of metadata exchange.
    pub struct MetadataExchangeHeaders {
        /// When they are sent.
        pub mode: MetadataExchangeMode,
    }
}

enumeration! {
    /// When the headers of metadata exchange are sent.
    pub enum MetadataExchangeMode {
        /// Always.
        #[default]
        Undefined = "UNDEFINED" 0,
        /// To other workloads of the mesh.
        InMesh = "IN_MESH" 1,
    }
}

message! {
    /// Limits of connections.
    pub struct ConnectionSettings {
        /// The defaults for what is not said.
        pub profile: ConnectionProfile,
        /// Bytes that a listener buffers per connection.
        pub listener_per_connection_buffer_limit_bytes: Option<i32>,
        /// Bytes that a cluster buffers per connection.
        pub cluster_per_connection_buffer_limit_bytes: Option<i32>,
        /// How long a connection may have no requests.
        pub http_idle_timeout: Option<Duration>,
        /// The longest life of a connection.
        pub http_max_connection_duration: Option<Duration>,
        /// How long a connection drains.
        pub http_drain_timeout: Option<Duration>,
        /// The time for a request to arrive.
        pub http_request_timeout: Option<Duration>,
        /// The time for the headers of a request to arrive.
        pub http_request_headers_timeout: Option<Duration>,
        /// How long a stream may be idle.
        pub http_stream_idle_timeout: Option<Duration>,
        /// The longest life of a stream.
        pub http_max_stream_duration: Option<Duration>,
        /// The most streams of a connection.
        pub http_max_concurrent_streams: Option<i32>,
        /// The window of a stream, in bytes.
        pub http2_initial_stream_window_size: Option<i32>,
        /// The window of a connection, in bytes.
        pub http2_initial_connection_window_size: Option<i32>,
        /// What happens to headers with underscores.
        pub http_headers_with_underscores_action: HeadersWithUnderscoresAction,
        /// Whether slashes in a row become one.
        pub http_merge_slashes: Option<bool>,
        /// What happens to paths with escaped slashes.
        pub http_path_with_escaped_slashes_action: PathWithEscapedSlashesAction,
        /// The most connections of a listener.
        pub listener_connection_limit: Option<i32>,
        /// The most connections of the proxy.
        pub global_downstream_connection_limit: Option<i32>,
    }
}

enumeration! {
    /// A set of defaults for limits.
    pub enum ConnectionProfile {
        /// Beside a workload.
        #[default]
        Sidecar = "SIDECAR" 0,
        /// At the edge.
        Edge = "EDGE" 1,
    }
}

enumeration! {
    /// What happens to headers with underscores.
    pub enum HeadersWithUnderscoresAction {
        /// Not said.
        #[default]
        Unspecified = "HEADERS_WITH_UNDERSCORES_UNSPECIFIED" 0,
        /// They pass.
        Allow = "HEADERS_WITH_UNDERSCORES_ALLOW" 1,
        /// The request is refused.
        RejectRequest = "HEADERS_WITH_UNDERSCORES_REJECT_REQUEST" 2,
        /// They are removed.
        DropHeader = "HEADERS_WITH_UNDERSCORES_DROP_HEADER" 3,
    }
}

enumeration! {
    /// What happens to paths with escaped slashes.
    pub enum PathWithEscapedSlashesAction {
        /// Not said.
        #[default]
        Unspecified = "PATH_WITH_ESCAPED_SLASHES_UNSPECIFIED" 0,
        /// They stay.
        KeepUnchanged = "KEEP_UNCHANGED" 1,
        /// The request is refused.
        RejectRequest = "REJECT_REQUEST" 2,
        /// They are unescaped, and the client is redirected.
        UnescapeAndRedirect = "UNESCAPE_AND_REDIRECT" 3,
        /// They are unescaped.
        UnescapeAndForward = "UNESCAPE_AND_FORWARD" 4,
    }
}
