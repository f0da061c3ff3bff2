//! Tracing settings of proxies.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::istio::ClientTlsSettings;

message! {
    /// Tracing settings.
    pub struct Tracing: Relations {
        /// Tracing backend.
        pub tracer: Option<Tracer>,
        /// Custom tags of spans, by name.
        pub custom_tags: BTreeMap<Arc<str>, CustomTag>,
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_path_tag_length: u32,
        /// Percentage of requests to trace. 0 means 1, the default.
        pub sampling: f64 where [from 0, to 100],
        /// TLS settings for connections to the backend.
        pub tls_settings: Option<ClientTlsSettings>,
        /// Whether spans have Istio's tags. Defaults to true.
        pub enable_istio_tags: Option<bool>,
    }
}

oneof! {
    /// Tracing backend.
    pub enum Tracer {
        /// Zipkin.
        Zipkin(TracerAddress) = "zipkin",
        /// Lightstep.
        Lightstep(Lightstep) = "lightstep" where [
            warn "unsupported" "Envoy no longer supports Lightstep: proxies with this setting report no traces; use an opentelemetry provider",
        ],
        /// Datadog.
        Datadog(TracerAddress) = "datadog",
        /// Stackdriver.
        Stackdriver(StackdriverTracer) = "stackdriver" where [
            warn "unsupported" "Envoy no longer supports Stackdriver: proxies with this setting report no traces; use an opentelemetry provider",
        ],
        /// OpenCensus agent.
        OpenCensusAgent(OpenCensusAgent) = "openCensusAgent" where [
            warn "unsupported" "Envoy no longer supports OpenCensus: proxies with this setting report no traces; use an opentelemetry provider",
        ],
    }
}

message! {
    /// Address of a tracing backend.
    pub struct TracerAddress {
        /// Address, as `host:port`.
        pub address: Arc<str> where [needed, is host_port],
    }
}

message! {
    /// Lightstep backend.
    pub struct Lightstep {
        /// Address, as `host:port`.
        pub address: Arc<str> where [needed, is host_port],
        /// Access token.
        pub access_token: Arc<str> where [needed],
    }
}

message! {
    /// Stackdriver backend.
    pub struct StackdriverTracer {
        /// Whether traces are also printed to standard output.
        pub debug: bool,
        /// Maximum number of attributes per span.
        pub max_number_of_attributes: Option<i64>,
        /// Maximum number of annotations per span.
        pub max_number_of_annotations: Option<i64>,
        /// Maximum number of message events per span.
        pub max_number_of_message_events: Option<i64>,
    }
}

message! {
    /// OpenCensus agent.
    pub struct OpenCensusAgent {
        /// Address of the agent.
        pub address: Arc<str>,
        /// Trace context formats.
        pub context: Vec<TraceContext>,
    }
}

enumeration! {
    /// Trace context format.
    pub enum TraceContext {
        /// Unspecified.
        #[default]
        Unspecified = "UNSPECIFIED" 0,
        /// W3C Trace Context (`traceparent`).
        W3c = "W3C_TRACE_CONTEXT" 1,
        /// gRPC binary format (`grpc-trace-bin`).
        GrpcBin = "GRPC_BIN" 2,
        /// Google Cloud format (`x-cloud-trace-context`).
        Cloud = "CLOUD_TRACE_CONTEXT" 3,
        /// B3 headers (`x-b3-…`).
        B3 = "B3" 4,
    }
}

choice! {
    /// Source of the value of a custom tag.
    pub enum CustomTag {
        /// No value.
        else Nothing,
        /// Literal text.
        Literal(LiteralTag) = "literal",
        /// Environment variable of the proxy.
        Environment(TracingTag) = "environment",
        /// Request header.
        Header(TracingTag) = "header",
    }
}

message! {
    /// Literal value of a custom tag.
    pub struct LiteralTag {
        /// Value of the tag.
        pub value: Arc<str>,
    }
}

message! {
    /// Environment variable or header that provides the value of a custom tag.
    pub struct TracingTag {
        /// Name of the environment variable or header.
        pub name: Arc<str>,
        /// Value to use if there is none.
        pub default_value: Arc<str>,
    }
}
