//! Telemetry: traces, metrics and access logs of proxies.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::selection::{ONE_TARGET, PolicySelector, PolicyTargetReference};

message! {
    /// Configures the traces, metrics and access logs that proxies generate.
    pub struct Telemetry: Relations where [
        exclusive(selector, targetRef, targetRefs),
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// Selects the workloads that the settings apply to. If omitted, they apply to all workloads in the namespace,
        /// or in the mesh if the object is in the root namespace.
        pub selector: Option<PolicySelector>,
        /// Gateway or service that the settings are attached to, instead of `selector`. Deprecated in favor of
        /// `targetRefs`.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// Gateways or services that the settings are attached to, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Tracing settings.
        pub tracing: Vec<Tracing>,
        /// Metrics settings.
        pub metrics: Vec<Metrics>,
        /// Access log settings.
        pub access_logging: Vec<AccessLogging>,
    }
}

message! {
    /// Reference to an entry of `extensionProviders` in the mesh configuration.
    pub struct ProviderRef {
        /// Name of the provider.
        pub name: Arc<str> where [required, min 1],
    }
}

enumeration! {
    /// Side of a connection that a workload is on.
    pub enum ReportingMode {
        /// Both sides.
        #[default]
        ClientAndServer = "CLIENT_AND_SERVER" 0,
        /// The workload is the client, or a gateway.
        Client = "CLIENT" 1,
        /// The workload is the server.
        Server = "SERVER" 2,
    }
}

message! {
    /// Traffic that a section applies to.
    pub struct ModeSelector {
        /// Whether the workload is the client or the server of the traffic.
        pub mode: ReportingMode,
    }
}

message! {
    /// Tracing settings.
    pub struct Tracing: Relations {
        /// Traffic that the settings apply to. If omitted, they apply to all traffic.
        pub matches: Option<ModeSelector> as "match",
        /// Providers that receive spans. Defaults to the mesh configuration's providers. Only one provider is
        /// supported.
        pub providers: Vec<ProviderRef>,
        /// Percentage of requests that are traced if no sampling decision has been made yet. If omitted, it is
        /// inherited from the namespace-wide or mesh-wide Telemetry.
        pub random_sampling_percentage: Option<f64> where [min 0.0, max 100.0, nullable],
        /// Whether span reporting is disabled. Trace contexts are still propagated.
        pub disable_span_reporting: Option<bool> where [nullable],
        /// Custom tags of spans, by name.
        pub custom_tags: BTreeMap<Arc<str>, CustomTag> where [keys(text)],
        /// Whether the sampling decision is encoded in the request ID. Defaults to true.
        pub use_request_id_for_trace_sampling: Option<bool> where [nullable],
        /// Whether spans have Istio's tags, such as the mesh ID. Defaults to true.
        pub enable_istio_tags: Option<bool> where [nullable],
        /// Whether propagation of trace contexts is disabled.
        pub disable_context_propagation: Option<bool> where [nullable],
    }
}

message! {
    /// Custom tag of spans.
    pub struct CustomTag where [any(literal, environment, header, formatter)] {
        /// Source of the tag's value.
        pub source: Option<TagSource>,
    }
}

oneof! {
    /// Source of the value of a tag.
    pub enum TagSource {
        /// Literal text.
        Literal(LiteralTag) = "literal",
        /// Environment variable of the proxy.
        Environment(NamedTag) = "environment",
        /// Request header.
        Header(NamedTag) = "header",
        /// Format string with Envoy's access log operators.
        Formatter(LiteralTag) = "formatter",
    }
}

message! {
    /// Value of a tag.
    pub struct LiteralTag {
        /// Literal text or format string.
        pub value: Arc<str> where [required, min 1],
    }
}

message! {
    /// Environment variable or header that provides the value of a tag.
    pub struct NamedTag {
        /// Name of the environment variable or header.
        pub name: Arc<str> where [required, min 1],
        /// Default value. If empty and there is no value, the tag is omitted.
        pub default_value: Arc<str>,
    }
}

message! {
    /// Metrics settings.
    pub struct Metrics {
        /// Providers that receive the metrics. Defaults to the mesh configuration's providers.
        pub providers: Vec<ProviderRef>,
        /// Overrides of metrics. Later entries take precedence over earlier ones.
        pub overrides: Vec<MetricsOverride>,
        /// Reporting interval of TCP metrics. Defaults to 5s.
        pub reporting_interval: Option<Duration> where [is duration],
    }
}

message! {
    /// Override of metrics.
    pub struct MetricsOverride: Relations {
        /// Metrics that the override applies to. If omitted, it applies to all metrics.
        pub matches: Option<MetricSelector> as "match",
        /// Whether the metrics are disabled. If omitted, the setting is unchanged.
        pub disabled: Option<bool> where [nullable],
        /// Overrides of dimensions, by name.
        pub tag_overrides: BTreeMap<Arc<str>, TagOverride>,
    }
}

message! {
    /// Selects metrics.
    pub struct MetricSelector: Relations {
        /// Metric to select. If omitted, all metrics are selected.
        pub metric: Option<MetricName>,
        /// Whether the workload is the client or the server of the traffic.
        pub mode: ReportingMode,
    }
}

oneof! {
    /// Name of a metric.
    pub enum MetricName {
        /// Standard Istio metric.
        Metric(IstioMetric) = "metric",
        /// Custom metric of the provider.
        CustomMetric(Arc<str>) = "customMetric",
    }
}

enumeration! {
    /// Standard Istio metric.
    pub enum IstioMetric {
        /// All metrics.
        #[default]
        AllMetrics = "ALL_METRICS" 0,
        /// Number of requests (`istio_requests_total`).
        RequestCount = "REQUEST_COUNT" 1,
        /// Duration of requests (`istio_request_duration_milliseconds`).
        RequestDuration = "REQUEST_DURATION" 2,
        /// Size of requests (`istio_request_bytes`).
        RequestSize = "REQUEST_SIZE" 3,
        /// Size of responses (`istio_response_bytes`).
        ResponseSize = "RESPONSE_SIZE" 4,
        /// Number of opened TCP connections (`istio_tcp_connections_opened_total`).
        TcpOpenedConnections = "TCP_OPENED_CONNECTIONS" 5,
        /// Number of closed TCP connections (`istio_tcp_connections_closed_total`).
        TcpClosedConnections = "TCP_CLOSED_CONNECTIONS" 6,
        /// Bytes sent over TCP connections (`istio_tcp_sent_bytes_total`).
        TcpSentBytes = "TCP_SENT_BYTES" 7,
        /// Bytes received over TCP connections (`istio_tcp_received_bytes_total`).
        TcpReceivedBytes = "TCP_RECEIVED_BYTES" 8,
        /// Number of gRPC request messages (`istio_request_messages_total`).
        GrpcRequestMessages = "GRPC_REQUEST_MESSAGES" 9,
        /// Number of gRPC response messages (`istio_response_messages_total`).
        GrpcResponseMessages = "GRPC_RESPONSE_MESSAGES" 10,
    }
}

message! {
    /// Override of a metric dimension.
    pub struct TagOverride: Relations where [
        rule "(has(self.operation) && self.operation == 'REMOVE') ? !has(self.value) : true"
            "the operation REMOVE does not allow a value",
    ] {
        /// Operation on the dimension.
        pub operation: TagOperation,
        /// Value of the dimension: a CEL expression over Envoy attributes. Requires the operation `UPSERT`.
        pub value: Arc<str>,
    }
}

enumeration! {
    /// Operation on a metric dimension.
    pub enum TagOperation {
        /// Adds or replaces the dimension.
        #[default]
        Upsert = "UPSERT" 0,
        /// Removes the dimension.
        Remove = "REMOVE" 1,
    }
}

message! {
    /// Access log settings.
    pub struct AccessLogging {
        /// Traffic that the settings apply to. If omitted, they apply to all traffic.
        pub matches: Option<ModeSelector> as "match",
        /// Providers that receive log entries. Defaults to the mesh configuration's providers.
        pub providers: Vec<ProviderRef>,
        /// Whether access logging is disabled. If omitted, it is inherited from the namespace-wide or mesh-wide
        /// Telemetry.
        pub disabled: Option<bool> where [nullable],
        /// Filter for log entries. If omitted, everything is logged.
        pub filter: Option<LogFilter>,
    }
}

message! {
    /// Filter for access log entries.
    pub struct LogFilter {
        /// CEL expression over Envoy attributes that must be true for an entry to be logged, such as `response.code >=
        /// 400`.
        pub expression: Arc<str> where [needed, is cel],
    }
}
