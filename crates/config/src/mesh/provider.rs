//! Extension providers: services for telemetry and authorization that other resources refer to by name.

use std::sync::Arc;
use std::time::Duration;

use crate::mesh::access_log::*;
use crate::mesh::proxy::EmptyMessage;
use crate::mesh::tracing::TraceContext;
use crate::object::StringMap;

/// Providers that always exist: `prometheus`, `stackdriver` and `envoy` (an access log on standard output).
pub(crate) fn default_extension_providers() -> Vec<ExtensionProvider> {
    let log = FileAccessLogProvider { path: "/dev/stdout".into(), ..FileAccessLogProvider::default() };
    let provider = |name: &str, kind| ExtensionProvider { name: name.into(), provider: Some(kind) };
    vec![
        provider("prometheus", Provider::Prometheus(EmptyMessage::default())),
        provider("stackdriver", Provider::Stackdriver(StackdriverProvider::default())),
        provider("envoy", Provider::EnvoyFileAccessLog(log)),
    ]
}

message! {
    /// Extension provider.
    pub struct ExtensionProvider where [
        any(envoyExtAuthzHttp, envoyExtAuthzGrpc, zipkin, lightstep, datadog, stackdriver, opencensus, skywalking, opentelemetry, prometheus, envoyFileAccessLog, envoyHttpAls, envoyTcpAls, envoyOtelAls, sds),
    ] {
        /// Name of the provider, unique in the mesh.
        pub name: Arc<str> where [needed],
        /// Type and settings of the provider.
        pub provider: Option<Provider>,
    }
}

impl ExtensionProvider {
    /// Environment variables of the control plane that the provider's headers refer to (`envName`).
    pub fn environment(&self) -> Vec<Arc<str>> {
        let mut provider = self.clone();
        let names = provider.headers_mut().filter_map(|header| match header.value.take() {
            Some(ProviderHeaderValue::EnvName(name)) => Some(name),
            _ => None,
        });
        names.collect()
    }

    /// Replaces references to environment variables with the values that `lookup` returns. The values may be secrets.
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
    /// Type of an extension provider.
    pub enum Provider {
        /// External authorization over HTTP.
        EnvoyExtAuthzHttp(ExtAuthzHttpProvider) = "envoyExtAuthzHttp",
        /// External authorization over gRPC.
        EnvoyExtAuthzGrpc(ExtAuthzGrpcProvider) = "envoyExtAuthzGrpc",
        /// Zipkin tracing.
        Zipkin(ZipkinProvider) = "zipkin",
        /// Lightstep tracing. Deprecated.
        Lightstep(LightstepProvider) = "lightstep" where [
            warn "unsupported" "Envoy no longer supports Lightstep: the provider has no effect; use opentelemetry",
        ],
        /// Datadog tracing.
        Datadog(DatadogProvider) = "datadog",
        /// Google Cloud operations suite (formerly Stackdriver).
        Stackdriver(StackdriverProvider) = "stackdriver",
        /// OpenCensus tracing. Deprecated.
        Opencensus(OpenCensusProvider) = "opencensus" where [
            warn "unsupported" "Envoy no longer supports OpenCensus: the provider has no effect; use opentelemetry",
        ],
        /// SkyWalking tracing.
        Skywalking(SkyWalkingProvider) = "skywalking",
        /// OpenTelemetry tracing.
        Opentelemetry(OpenTelemetryProvider) = "opentelemetry",
        /// Prometheus metrics.
        Prometheus(EmptyMessage) = "prometheus",
        /// Access log in a file.
        EnvoyFileAccessLog(FileAccessLogProvider) = "envoyFileAccessLog",
        /// Envoy's gRPC access log service for HTTP.
        EnvoyHttpAls(HttpAlsProvider) = "envoyHttpAls",
        /// Envoy's gRPC access log service for TCP.
        EnvoyTcpAls(TcpAlsProvider) = "envoyTcpAls",
        /// OpenTelemetry access log service.
        EnvoyOtelAls(OtelAlsProvider) = "envoyOtelAls",
        /// Server of the secret discovery service (SDS).
        Sds(SdsProvider) = "sds" where [refuse "unsupported" "sds providers are not supported, as in Istio"],
    }
}

message! {
    /// Part of the request body that is sent to the authorization service.
    pub struct ExtAuthzRequestBody {
        /// Maximum number of bytes.
        pub max_request_bytes: u32,
        /// Whether a larger body is truncated instead of rejecting the request.
        pub allow_partial_message: bool,
        /// Whether the body is sent as raw bytes instead of a UTF-8 string.
        pub pack_as_bytes: bool,
    }
}

message! {
    /// External authorization over HTTP.
    pub struct ExtAuthzHttpProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Timeout of an authorization request. Defaults to 10 minutes.
        pub timeout: Option<Duration> where [is duration],
        /// Prefix added to the path of the authorization request.
        pub path_prefix: Arc<str> where [is absolute_path],
        /// Whether requests are allowed if the authorization service is not available.
        pub fail_open: bool,
        /// Whether the route is selected again after authorization.
        pub clear_route_cache: bool,
        /// HTTP status returned if the authorization service is not available.
        pub status_on_error: Arc<str> where [is status],
        /// Deprecated in favor of `includeRequestHeadersInCheck`.
        pub include_headers_in_check: Vec<Arc<str>>,
        /// Request headers to include in the authorization request.
        pub include_request_headers_in_check: Vec<Arc<str>>,
        /// Additional headers to include in the authorization request.
        pub include_additional_headers_in_check: StringMap,
        /// Part of the request body to include in the authorization request.
        pub include_request_body_in_check: Option<ExtAuthzRequestBody>,
        /// Headers of a positive response that are added to the upstream request.
        pub headers_to_upstream_on_allow: Vec<Arc<str>>,
        /// Headers of a negative response that are returned to the client.
        pub headers_to_downstream_on_deny: Vec<Arc<str>>,
        /// Headers of a positive response that are returned to the client.
        pub headers_to_downstream_on_allow: Vec<Arc<str>>,
    }
}

message! {
    /// External authorization over gRPC.
    pub struct ExtAuthzGrpcProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Timeout of an authorization request. Defaults to 10 minutes.
        pub timeout: Option<Duration> where [is duration],
        /// Whether requests are allowed if the authorization service is not available.
        pub fail_open: bool,
        /// Whether the route is selected again after authorization.
        pub clear_route_cache: bool,
        /// HTTP status returned if the authorization service is not available.
        pub status_on_error: Arc<str> where [is status],
        /// Part of the request body to include in the authorization request.
        pub include_request_body_in_check: Option<ExtAuthzRequestBody>,
    }
}

message! {
    /// Zipkin tracing.
    pub struct ZipkinProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_tag_length: u32,
        /// Whether trace IDs have 64 bits instead of 128.
        pub enable_64bit_trace_id: bool,
        /// Path of the collector's API. Defaults to `/api/v2/spans`.
        pub path: Arc<str>,
        /// Trace context formats.
        pub trace_context_option: ZipkinTraceContext,
        /// Timeout of a request to the collector.
        pub timeout: Option<Duration> where [is duration],
        /// Headers of requests to the collector.
        pub headers: Vec<ProviderHeader>,
    }
}

enumeration! {
    /// Trace context formats for Zipkin.
    pub enum ZipkinTraceContext {
        /// B3 headers.
        #[default]
        B3 = "USE_B3" 0,
        /// B3 and W3C Trace Context headers.
        B3AndW3c = "USE_B3_WITH_W3C_PROPAGATION" 1,
    }
}

message! {
    /// Lightstep tracing.
    pub struct LightstepProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Access token.
        pub access_token: Arc<str> where [needed],
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_tag_length: u32,
    }
}

message! {
    /// Datadog tracing.
    pub struct DatadogProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_tag_length: u32,
    }
}

message! {
    /// Google Cloud operations suite (formerly Stackdriver).
    pub struct StackdriverProvider {
        /// Deprecated.
        pub debug: bool,
        /// Deprecated.
        pub max_number_of_attributes: Option<i64>,
        /// Deprecated.
        pub max_number_of_annotations: Option<i64>,
        /// Deprecated.
        pub max_number_of_message_events: Option<i64>,
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_tag_length: u32,
        /// Logging settings.
        pub logging: Option<StackdriverLogging>,
    }
}

message! {
    /// Logging settings of the Google Cloud operations suite.
    pub struct StackdriverLogging {
        /// Labels of log entries, as CEL expressions.
        pub labels: StringMap,
    }
}

message! {
    /// OpenCensus tracing.
    pub struct OpenCensusProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Trace context formats.
        pub context: Vec<TraceContext>,
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_tag_length: u32,
    }
}

message! {
    /// SkyWalking tracing.
    pub struct SkyWalkingProvider {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Access token.
        pub access_token: Arc<str>,
    }
}

message! {
    /// OpenTelemetry tracing.
    pub struct OpenTelemetryProvider: Relations where [exclusive(http, grpc)] {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// Maximum length of the request path in a tag. 0 means 256.
        pub max_tag_length: u32,
        /// Settings for export over HTTP. If omitted, spans are exported over gRPC.
        pub http: Option<HttpExporter>,
        /// Settings for export over gRPC.
        pub grpc: Option<GrpcExporter>,
        /// Detectors of resource attributes.
        pub resource_detectors: Option<ResourceDetectors>,
        /// Source of the service attributes.
        pub service_attribute_enrichment: ServiceAttributeEnrichment,
        /// Sampler. If omitted, the sampling percentage applies.
        pub sampling: Option<Sampler>,
    }
}

enumeration! {
    /// Source of OpenTelemetry's service attributes.
    pub enum ServiceAttributeEnrichment {
        /// Istio's canonical service labels.
        #[default]
        IstioCanonical = "ISTIO_CANONICAL" 0,
        /// OpenTelemetry's semantic conventions.
        OtelSemanticConventions = "OTEL_SEMANTIC_CONVENTIONS" 1,
    }
}

oneof! {
    /// Sampler of requests.
    pub enum Sampler {
        /// Dynatrace sampler.
        Dynatrace(DynatraceSampler) = "dynatraceSampler",
    }
}

message! {
    /// Sampler whose rate is set by Dynatrace.
    pub struct DynatraceSampler {
        /// Dynatrace tenant.
        pub tenant: Arc<str>,
        /// Dynatrace cluster ID.
        pub cluster_id: i32,
        /// Number of root spans per minute while the API is not available. 0 means 1000.
        pub root_spans_per_minute: u32,
        /// Dynatrace API service.
        pub http_service: Option<DynatraceApi>,
    }
}

message! {
    /// Dynatrace API service.
    pub struct DynatraceApi {
        /// Service, as `[namespace/]host`.
        pub service: Arc<str> where [needed, is service],
        /// Port of the service.
        pub port: u32 where [needed, to 65535],
        /// HTTP settings.
        pub http: Option<HttpExporter>,
    }
}

message! {
    /// Settings for export over HTTP.
    pub struct HttpExporter {
        /// Path of the collector's API.
        pub path: Arc<str>,
        /// Timeout of a request.
        pub timeout: Option<Duration> where [is duration],
        /// Headers of requests.
        pub headers: Vec<ProviderHeader>,
    }
}

message! {
    /// Settings for export over gRPC.
    pub struct GrpcExporter {
        /// Timeout of a request.
        pub timeout: Option<Duration> where [is duration],
        /// Metadata of requests.
        pub initial_metadata: Vec<ProviderHeader>,
    }
}

message! {
    /// Header of requests to a provider.
    pub struct ProviderHeader: Relations {
        /// Name of the header.
        pub name: Arc<str> where [needed, is header_name],
        /// Value of the header.
        pub value: Option<ProviderHeaderValue>,
    }
}

oneof! {
    /// Value of a header.
    pub enum ProviderHeaderValue {
        /// Literal value.
        Value(Arc<str>) = "value" where [is header_value],
        /// Name of an environment variable of the control plane.
        EnvName(Arc<str>) = "envName",
    }
}

message! {
    /// Detectors of OpenTelemetry resource attributes.
    pub struct ResourceDetectors {
        /// Detects attributes in environment variables.
        pub environment: Option<EmptyMessage>,
        /// Detects attributes in Dynatrace's metadata files.
        pub dynatrace: Option<EmptyMessage>,
    }
}

message! {
    /// Server of the secret discovery service (SDS).
    pub struct SdsProvider {
        /// Name that credential names refer to.
        pub name: Arc<str>,
        /// Service, as `[namespace/]host`.
        pub service: Arc<str>,
        /// Port of the service.
        pub port: u32,
    }
}
