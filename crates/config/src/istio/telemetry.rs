//! Telemetry: what proxies tell about traffic.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::istio::selection::{PolicySelector, PolicyTargetReference};

/// Why a policy can be attached in one way only.
const ONE_TARGET: &str = "selector, targetRef and targetRefs exclude each other";

message! {
    /// What proxies tell about traffic: traces, metrics and access logs.
    pub struct Telemetry where [
        rule "(has(self.selector) ? 1 : 0) + (has(self.targetRef) ? 1 : 0) + (has(self.targetRefs) ? 1 : 0) <= 1" ONE_TARGET,
    ] {
        /// The workloads; absent: all of the namespace, or of the mesh in the root namespace.
        pub selector: Option<PolicySelector>,
        /// The gateway or service, instead of `selector`; `targetRefs` takes its place.
        pub target_ref: Option<PolicyTargetReference> as "targetRef",
        /// The gateways or services, instead of `selector`.
        pub target_refs: Vec<PolicyTargetReference> as "targetRefs" where [max 16],
        /// Traces.
        pub tracing: Vec<Tracing>,
        /// Metrics.
        pub metrics: Vec<Metrics>,
        /// Access logs.
        pub access_logging: Vec<AccessLogging>,
    }
}

message! {
    /// Names an entry of the mesh's `extensionProviders`.
    pub struct ProviderRef {
        /// Its name.
        pub name: Arc<str> where [required, min 1],
    }
}

enumeration! {
    /// On which side of a connection a workload stands.
    pub enum ReportingMode {
        /// Either side.
        #[default]
        ClientAndServer = "CLIENT_AND_SERVER" 0,
        /// The workload is the client, or a gateway.
        Client = "CLIENT" 1,
        /// The workload is the server.
        Server = "SERVER" 2,
    }
}

message! {
    /// To which traffic a section applies.
    pub struct ModeSelector {
        /// The workload's side of the traffic.
        pub mode: ReportingMode,
    }
}

message! {
    /// How requests are traced.
    pub struct Tracing {
        /// The traffic; absent: all.
        pub matches: Option<ModeSelector> as "match",
        /// Where spans go; absent: the mesh's default. Only one is supported.
        pub providers: Vec<ProviderRef>,
        /// The percentage of requests that are traced where nobody has decided yet; absent: as the wider policy says.
        pub random_sampling_percentage: Option<f64> where [min 0.0, max 100.0, nullable],
        /// Whether spans are not reported; contexts are passed on all the same.
        pub disable_span_reporting: Option<bool> where [nullable],
        /// Tags of spans, by name.
        pub custom_tags: BTreeMap<Arc<str>, CustomTag>,
        /// Whether the decision to trace is kept in the request's id; absent means yes.
        pub use_request_id_for_trace_sampling: Option<bool> where [nullable],
        /// Whether spans get the tags of Istio, such as the mesh's id; absent means yes.
        pub enable_istio_tags: Option<bool> where [nullable],
        /// Whether trace contexts are not passed on.
        pub disable_context_propagation: Option<bool> where [nullable],
    }
}

message! {
    /// A tag of spans.
    pub struct CustomTag {
        /// Where its value comes from.
        pub source: Option<TagSource>,
    }
}

oneof! {
    /// Where the value of a tag comes from.
    pub enum TagSource {
        /// It is this text.
        Literal(LiteralTag) = "literal",
        /// It is an environment variable of the proxy.
        Environment(NamedTag) = "environment",
        /// It is a header of the request.
        Header(NamedTag) = "header",
        /// It is made by a format of Envoy's access logs.
        Formatter(LiteralTag) = "formatter",
    }
}

message! {
    /// The text of a tag.
    pub struct LiteralTag {
        /// The text, or the format.
        pub value: Arc<str> where [required, min 1],
    }
}

message! {
    /// The origin of a tag by its name.
    pub struct NamedTag {
        /// The name of the variable or header.
        pub name: Arc<str> where [required, min 1],
        /// The value where there is none; empty: the tag is left out.
        pub default_value: Arc<str>,
    }
}

message! {
    /// Which metrics are kept, and how.
    pub struct Metrics {
        /// Where they go; absent: the mesh's default.
        pub providers: Vec<ProviderRef>,
        /// Changes to metrics, the later ones going before the earlier ones.
        pub overrides: Vec<MetricsOverride>,
        /// How often TCP metrics are kept; absent means 5s.
        pub reporting_interval: Option<Duration>,
    }
}

message! {
    /// A change to metrics.
    pub struct MetricsOverride {
        /// The metrics; absent: all.
        pub matches: Option<MetricSelector> as "match",
        /// Whether they are not kept; absent: as before.
        pub disabled: Option<bool> where [nullable],
        /// Changes to their dimensions, by name.
        pub tag_overrides: BTreeMap<Arc<str>, TagOverride>,
    }
}

message! {
    /// Selects metrics.
    pub struct MetricSelector {
        /// Which ones; absent: all.
        pub metric: Option<MetricName>,
        /// The workload's side of the traffic.
        pub mode: ReportingMode,
    }
}

oneof! {
    /// Names a metric.
    pub enum MetricName {
        /// One of Istio's.
        Metric(IstioMetric) = "metric",
        /// One of the provider's own.
        CustomMetric(Arc<str>) = "customMetric",
    }
}

enumeration! {
    /// Istio's metrics.
    pub enum IstioMetric {
        /// All of them.
        #[default]
        AllMetrics = "ALL_METRICS" 0,
        /// Requests (`istio_requests_total`).
        RequestCount = "REQUEST_COUNT" 1,
        /// Their duration (`istio_request_duration_milliseconds`).
        RequestDuration = "REQUEST_DURATION" 2,
        /// Bytes of requests (`istio_request_bytes`).
        RequestSize = "REQUEST_SIZE" 3,
        /// Bytes of responses (`istio_response_bytes`).
        ResponseSize = "RESPONSE_SIZE" 4,
        /// Connections that were opened (`istio_tcp_connections_opened_total`).
        TcpOpenedConnections = "TCP_OPENED_CONNECTIONS" 5,
        /// Connections that were closed (`istio_tcp_connections_closed_total`).
        TcpClosedConnections = "TCP_CLOSED_CONNECTIONS" 6,
        /// Bytes that were sent (`istio_tcp_sent_bytes_total`).
        TcpSentBytes = "TCP_SENT_BYTES" 7,
        /// Bytes that were received (`istio_tcp_received_bytes_total`).
        TcpReceivedBytes = "TCP_RECEIVED_BYTES" 8,
        /// Messages of gRPC requests (`istio_request_messages_total`).
        GrpcRequestMessages = "GRPC_REQUEST_MESSAGES" 9,
        /// Messages of gRPC responses (`istio_response_messages_total`).
        GrpcResponseMessages = "GRPC_RESPONSE_MESSAGES" 10,
    }
}

message! {
    /// A change to a dimension of metrics.
    pub struct TagOverride where [
        rule "(has(self.operation) && self.operation == 'REMOVE') ? !has(self.value) : true"
            "an operation REMOVE has no value",
    ] {
        /// What is done.
        pub operation: TagOperation,
        /// The dimension's value, an expression in CEL over Envoy's attributes; with `UPSERT` only.
        pub value: Arc<str>,
    }
}

enumeration! {
    /// What is done with a dimension.
    pub enum TagOperation {
        /// It is added or replaced.
        #[default]
        Upsert = "UPSERT" 0,
        /// It is left out.
        Remove = "REMOVE" 1,
    }
}

message! {
    /// What is written to access logs.
    pub struct AccessLogging {
        /// The traffic; absent: all.
        pub matches: Option<ModeSelector> as "match",
        /// Where entries go; absent: the mesh's default.
        pub providers: Vec<ProviderRef>,
        /// Whether nothing is written; absent: as the wider policy says.
        pub disabled: Option<bool> where [nullable],
        /// What is written of it; absent: everything.
        pub filter: Option<LogFilter>,
    }
}

message! {
    /// Which requests and connections are written.
    pub struct LogFilter {
        /// An expression in CEL over Envoy's attributes that must be true, such as `response.code >= 400`.
        pub expression: Arc<str>,
    }
}
