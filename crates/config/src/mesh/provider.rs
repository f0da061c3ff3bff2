//! Extension providers: services for telemetry and authorization that policies refer to by name.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use crate::mesh::proxy::{EmptyMessage, TraceContext};
use crate::object::StringMap;

/// The providers that are always there: `prometheus`, `stackdriver`, and `envoy` (a log on standard output).
pub(crate) fn default_extension_providers() -> Vec<ExtensionProvider> {
    let log = FileAccessLogProvider {
        path: "/dev/stdout".into(),
        ..FileAccessLogProvider::default()
    };
    let provider = |name: &str, kind| ExtensionProvider {
        name: name.into(),
        provider: Some(kind),
    };
    vec![
        provider("prometheus", Provider::Prometheus(EmptyMessage::default())),
        provider("stackdriver", Provider::Stackdriver(StackdriverProvider::default())),
        provider("envoy", Provider::EnvoyFileAccessLog(log)),
    ]
}

message! {
    /// A provider and its name.
    pub struct ExtensionProvider {
        /// The name, unique in the mesh.
        pub name: Arc<str>,
        /// What it is.
        pub provider: Option<Provider>,
    }
}

impl ExtensionProvider {
    /// What of the environment of the control plane its headers take (`envName`).
    pub fn environment(&self) -> Vec<Arc<str>> {
        let mut provider = self.clone();
        let names = provider.headers_mut().filter_map(|header| match header.value.take() {
            Some(ProviderHeaderValue::EnvName(name)) => Some(name),
            _ => None,
        });
        names.collect()
    }

    /// The same with values that `lookup` knows in the place of their names in the environment. They may be secrets.
    pub fn with_environment(&self, lookup: impl Fn(&Arc<str>) -> Option<Arc<str>>) -> ExtensionProvider {
        let mut provider = self.clone();
        for header in provider.headers_mut() {
            if let Some(ProviderHeaderValue::EnvName(name)) = &header.value
                && let Some(value) = lookup(name)
            {
                header.value = Some(ProviderHeaderValue::Value(value));
            }
        }
        provider
    }

    fn headers_mut(&mut self) -> impl Iterator<Item = &mut ProviderHeader> {
        let (mut own, mut api): (Option<&mut Vec<ProviderHeader>>, Option<&mut HttpExporter>) = (None, None);
        let mut http = None;
        match &mut self.provider {
            Some(Provider::Zipkin(zipkin)) => own = Some(&mut zipkin.headers),
            Some(Provider::Opentelemetry(otel)) => {
                own = otel.grpc.as_mut().map(|grpc| &mut grpc.initial_metadata);
                http = otel.http.as_mut();
                if let Some(Sampler::Dynatrace(sampler)) = &mut otel.sampling {
                    api = sampler.http_service.as_mut().and_then(|api| api.http.as_mut());
                }
            }
            _ => {}
        }
        let over_http = http.into_iter().chain(api).map(|http| &mut http.headers);
        own.into_iter().chain(over_http).flatten()
    }
}

oneof! {
    /// The sorts of providers.
    pub enum Provider {
        /// External authorization over HTTP.
        EnvoyExtAuthzHttp(ExtAuthzHttpProvider) = "envoyExtAuthzHttp",
        /// External authorization over gRPC.
        EnvoyExtAuthzGrpc(ExtAuthzGrpcProvider) = "envoyExtAuthzGrpc",
        /// Zipkin traces.
        Zipkin(ZipkinProvider) = "zipkin",
        /// Lightstep traces; deprecated.
        Lightstep(LightstepProvider) = "lightstep",
        /// Datadog traces.
        Datadog(DatadogProvider) = "datadog",
        /// Google's operations suite.
        Stackdriver(StackdriverProvider) = "stackdriver",
        /// OpenCensus traces; deprecated.
        Opencensus(OpenCensusProvider) = "opencensus",
        /// SkyWalking traces.
        Skywalking(SkyWalkingProvider) = "skywalking",
        /// OpenTelemetry traces.
        Opentelemetry(OpenTelemetryProvider) = "opentelemetry",
        /// Prometheus metrics.
        Prometheus(EmptyMessage) = "prometheus",
        /// Access log in a file.
        EnvoyFileAccessLog(FileAccessLogProvider) = "envoyFileAccessLog",
        /// Access log over gRPC, for HTTP.
        EnvoyHttpAls(HttpAlsProvider) = "envoyHttpAls",
        /// Access log over gRPC, for TCP.
        EnvoyTcpAls(TcpAlsProvider) = "envoyTcpAls",
        /// Access log over OpenTelemetry.
        EnvoyOtelAls(OtelAlsProvider) = "envoyOtelAls",
        /// A server of secrets.
        Sds(SdsProvider) = "sds",
    }
}

message! {
    /// The part of the body that an authorization request carries.
    pub struct ExtAuthzRequestBody {
        /// The most bytes.
        pub max_request_bytes: u32,
        /// Whether a longer body is cut.
        pub allow_partial_message: bool,
        /// Whether it is sent as bytes.
        pub pack_as_bytes: bool,
    }
}

message! {
    /// External authorization over HTTP.
    pub struct ExtAuthzHttpProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The time for an answer; absent means 10 minutes.
        pub timeout: Option<Duration>,
        /// Put before the path.
        pub path_prefix: Arc<str>,
        /// Whether requests pass when there is no answer.
        pub fail_open: bool,
        /// Whether the route is chosen anew after the answer.
        pub clear_route_cache: bool,
        /// The status when there is no answer.
        pub status_on_error: Arc<str>,
        /// Deprecated; see `include_request_headers_in_check`.
        pub include_headers_in_check: Vec<Arc<str>>,
        /// Headers of the request to send.
        pub include_request_headers_in_check: Vec<Arc<str>>,
        /// Other headers to send.
        pub include_additional_headers_in_check: StringMap,
        /// The part of the body to send.
        pub include_request_body_in_check: Option<ExtAuthzRequestBody>,
        /// Headers of a good answer that are put into the request.
        pub headers_to_upstream_on_allow: Vec<Arc<str>>,
        /// Headers of a bad answer that the client gets.
        pub headers_to_downstream_on_deny: Vec<Arc<str>>,
        /// Headers of a good answer that the client gets.
        pub headers_to_downstream_on_allow: Vec<Arc<str>>,
    }
}

message! {
    /// External authorization over gRPC.
    pub struct ExtAuthzGrpcProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The time for an answer; absent means 10 minutes.
        pub timeout: Option<Duration>,
        /// Whether requests pass when there is no answer.
        pub fail_open: bool,
        /// Whether the route is chosen anew after the answer.
        pub clear_route_cache: bool,
        /// The status when there is no answer.
        pub status_on_error: Arc<str>,
        /// The part of the body to send.
        pub include_request_body_in_check: Option<ExtAuthzRequestBody>,
    }
}

message! {
    /// Zipkin traces.
    pub struct ZipkinProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The longest path in a tag; 0 means 256.
        pub max_tag_length: u32,
        /// Whether ids have 64 bits, not 128.
        pub enable_64bit_trace_id: bool,
        /// The path; empty means `/api/v2/spans`.
        pub path: Arc<str>,
        /// The forms of the trace context.
        pub trace_context_option: ZipkinTraceContext,
        /// The time for a request.
        pub timeout: Option<Duration>,
        /// Headers to send.
        pub headers: Vec<ProviderHeader>,
    }
}

enumeration! {
    /// The forms of the trace context that Zipkin uses.
    pub enum ZipkinTraceContext {
        /// B3.
        #[default]
        B3 = "USE_B3" 0,
        /// B3 and W3C.
        B3AndW3c = "USE_B3_WITH_W3C_PROPAGATION" 1,
    }
}

message! {
    /// Lightstep traces.
    pub struct LightstepProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The token.
        pub access_token: Arc<str>,
        /// The longest path in a tag; 0 means 256.
        pub max_tag_length: u32,
    }
}

message! {
    /// Datadog traces.
    pub struct DatadogProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The longest path in a tag; 0 means 256.
        pub max_tag_length: u32,
    }
}

message! {
    /// Google's operations suite.
    pub struct StackdriverProvider {
        /// Deprecated.
        pub debug: bool,
        /// Deprecated.
        pub max_number_of_attributes: Option<i64>,
        /// Deprecated.
        pub max_number_of_annotations: Option<i64>,
        /// Deprecated.
        pub max_number_of_message_events: Option<i64>,
        /// The longest path in a tag; 0 means 256.
        pub max_tag_length: u32,
        /// The log.
        pub logging: Option<StackdriverLogging>,
    }
}

message! {
    /// The log of Google's operations suite.
    pub struct StackdriverLogging {
        /// Labels as CEL expressions.
        pub labels: StringMap,
    }
}

message! {
    /// OpenCensus traces.
    pub struct OpenCensusProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The forms of the trace context.
        pub context: Vec<TraceContext>,
        /// The longest path in a tag; 0 means 256.
        pub max_tag_length: u32,
    }
}

message! {
    /// SkyWalking traces.
    pub struct SkyWalkingProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The token.
        pub access_token: Arc<str>,
    }
}

message! {
    /// OpenTelemetry traces.
    pub struct OpenTelemetryProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The longest path in a tag; 0 means 256.
        pub max_tag_length: u32,
        /// Over HTTP instead of gRPC.
        pub http: Option<HttpExporter>,
        /// Settings of gRPC.
        pub grpc: Option<GrpcExporter>,
        /// What the resource's attributes are found by.
        pub resource_detectors: Option<ResourceDetectors>,
        /// How the service is described.
        pub service_attribute_enrichment: ServiceAttributeEnrichment,
        /// Which requests are traced.
        pub sampling: Option<Sampler>,
    }
}

enumeration! {
    /// How OpenTelemetry's service attributes are made.
    pub enum ServiceAttributeEnrichment {
        /// Of Istio's canonical service.
        #[default]
        IstioCanonical = "ISTIO_CANONICAL" 0,
        /// By OpenTelemetry's conventions.
        OtelSemanticConventions = "OTEL_SEMANTIC_CONVENTIONS" 1,
    }
}

oneof! {
    /// Which requests are traced.
    pub enum Sampler {
        /// As Dynatrace says.
        Dynatrace(DynatraceSampler) = "dynatraceSampler",
    }
}

message! {
    /// Dynatrace decides which requests are traced.
    pub struct DynatraceSampler {
        /// The tenant.
        pub tenant: Arc<str>,
        /// The cluster.
        pub cluster_id: i32,
        /// Root spans a minute; 0 means 1000.
        pub root_spans_per_minute: u32,
        /// The service to ask.
        pub http_service: Option<DynatraceApi>,
    }
}

message! {
    /// Dynatrace's API.
    pub struct DynatraceApi {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// Settings of HTTP.
        pub http: Option<HttpExporter>,
    }
}

message! {
    /// Settings of an exporter over HTTP.
    pub struct HttpExporter {
        /// The path.
        pub path: Arc<str>,
        /// The time for a request.
        pub timeout: Option<Duration>,
        /// Headers to send.
        pub headers: Vec<ProviderHeader>,
    }
}

message! {
    /// Settings of an exporter over gRPC.
    pub struct GrpcExporter {
        /// The time for a request.
        pub timeout: Option<Duration>,
        /// Metadata to send.
        pub initial_metadata: Vec<ProviderHeader>,
    }
}

message! {
    /// A header to send.
    pub struct ProviderHeader {
        /// Its name.
        pub name: Arc<str>,
        /// Its value.
        pub value: Option<ProviderHeaderValue>,
    }
}

oneof! {
    /// The value of a header to send.
    pub enum ProviderHeaderValue {
        /// This one.
        Value(Arc<str>) = "value",
        /// From the environment of the control plane.
        EnvName(Arc<str>) = "envName",
    }
}

message! {
    /// What the attributes of OpenTelemetry's resource are found by.
    pub struct ResourceDetectors {
        /// The environment.
        pub environment: Option<EmptyMessage>,
        /// Dynatrace's files.
        pub dynatrace: Option<EmptyMessage>,
    }
}

message! {
    /// Access log in a file.
    pub struct FileAccessLogProvider {
        /// The file.
        pub path: Arc<str>,
        /// The format.
        pub log_format: Option<LogFormat>,
        /// Whether empty values are left out.
        pub omit_empty_values: bool,
    }
}

choice! {
    /// The format of an access log.
    pub enum LogFormat {
        /// Istio's default.
        else Default,
        /// A text with operators.
        Text(Arc<str>) = "text",
        /// JSON with operators.
        Labels(Json) = "labels",
    }
}

message! {
    /// Access log over gRPC, for HTTP.
    pub struct HttpAlsProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The log's name.
        pub log_name: Arc<str>,
        /// Filter state to log.
        pub filter_state_objects_to_log: Vec<Arc<str>>,
        /// Request headers to log.
        pub additional_request_headers_to_log: Vec<Arc<str>>,
        /// Response headers to log.
        pub additional_response_headers_to_log: Vec<Arc<str>>,
        /// Response trailers to log.
        pub additional_response_trailers_to_log: Vec<Arc<str>>,
    }
}

message! {
    /// Access log over gRPC, for TCP.
    pub struct TcpAlsProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The log's name.
        pub log_name: Arc<str>,
        /// Filter state to log.
        pub filter_state_objects_to_log: Vec<Arc<str>>,
    }
}

message! {
    /// Access log over OpenTelemetry.
    pub struct OtelAlsProvider {
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
        /// The log's name.
        pub log_name: Arc<str>,
        /// The format.
        pub log_format: Option<OtelLogFormat>,
    }
}

message! {
    /// The format of an access log over OpenTelemetry.
    pub struct OtelLogFormat {
        /// The body, a text with operators.
        pub text: Arc<str>,
        /// The attributes, JSON with operators.
        pub labels: Option<Json>,
    }
}

message! {
    /// A server of secrets.
    pub struct SdsProvider {
        /// Its name in secrets.
        pub name: Arc<str>,
        /// `[namespace/]host`.
        pub service: Arc<str>,
        /// The port.
        pub port: u32,
    }
}
