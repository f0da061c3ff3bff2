//! Tracing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::MeshConfig;
use config::mesh::{
    self, DynatraceSampler, HttpExporter, OpenTelemetryProvider, ProviderHeader, ProviderHeaderValue, Sampler,
    ServiceAttributeEnrichment, SkyWalkingProvider, ZipkinProvider, ZipkinTraceContext,
};
use model::listener::{Direction, ListenerSpec};
use protos::envoy::config::core::v3::{
    GrpcService, HeaderValue, HeaderValueOption, HttpService, HttpUri, TypedExtensionConfig,
    header_value_option::HeaderAppendAction, http_uri::HttpUpstreamType,
};
use protos::envoy::config::trace::v3::zipkin_config::{CollectorEndpointVersion, TraceContextOption};
use protos::envoy::config::trace::v3::{
    ClientConfig, DatadogConfig, OpenTelemetryConfig, SkyWalkingConfig, ZipkinConfig,
    client_config::BackendTokenSpecifier, tracing,
};
use protos::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager as manager;
use protos::envoy::extensions::tracers::opentelemetry::resource_detectors::v3::{
    DynatraceResourceDetectorConfig, EnvironmentResourceDetectorConfig,
};
use protos::envoy::extensions::tracers::opentelemetry::samplers::v3::DynatraceSamplerConfig;
use protos::envoy::r#type::metadata::v3::metadata_key::{PathSegment, path_segment::Segment};
use protos::envoy::r#type::metadata::v3::{MetadataKey, MetadataKind, metadata_kind};
use protos::envoy::r#type::tracing::v3::{CustomTag, custom_tag};
use protos::envoy::r#type::v3::Percent;
use protos::{Message, Name};
use security::telemetry::{Backend, Telemetry, Tracer, Tracing};

use crate::parts::{any, duration, extension, grpc_service};

/// The default sampling percentage.
const SAMPLED: f64 = 1.0;
/// All requests.
const ALL: f64 = 100.0;
/// The default path of Zipkin's API.
const ZIPKIN_PATH: &str = "/api/v2/spans";
/// The default timeout of Zipkin requests.
const ZIPKIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of OpenTelemetry exports, equal to the default of its exporters. Envoy requires one.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// The path of Dynatrace's sampling API, on the host that receives spans.
const SAMPLING_PATH: &str = "api/v2/samplingConfiguration";
/// The tags for dry-run authorization policies, and the metadata keys that the RBAC filter writes.
const DRY_RUN_TAGS: [(&str, &str); 4] = [
    ("istio.authorization.dry_run.allow_policy.name", "istio_dry_run_allow_shadow_effective_policy_id"),
    ("istio.authorization.dry_run.allow_policy.result", "istio_dry_run_allow_shadow_engine_result"),
    ("istio.authorization.dry_run.deny_policy.name", "istio_dry_run_deny_shadow_effective_policy_id"),
    ("istio.authorization.dry_run.deny_policy.result", "istio_dry_run_deny_shadow_engine_result"),
];

/// The tracing of a listener; `None` if it is disabled.
pub(crate) fn of(telemetry: &Telemetry, spec: &ListenerSpec, mesh: &MeshConfig) -> Option<manager::Tracing> {
    let none = mesh::Tracing::default();
    let options = mesh.default_config.tracing.as_ref().unwrap_or(&none);
    let mut tracing = match &telemetry.tracing {
        Tracing::Off => return None,
        Tracing::Bootstrap => {
            options.tracer.as_ref()?;
            manager::Tracing::default()
        }
        Tracing::Provider(tracer) => by(tracer, spec),
    };
    let samples = matches!(&telemetry.tracing, Tracing::Provider(tracer) if decides(tracer));
    tracing.client_sampling = Some(Percent { value: ALL });
    tracing.overall_sampling = Some(Percent { value: ALL });
    tracing.random_sampling = Some(Percent { value: if samples { ALL } else { sampled(options.sampling) } });
    if tracing.max_path_tag_length.is_none() && options.max_path_tag_length > 0 {
        tracing.max_path_tag_length = Some(options.max_path_tag_length);
    }
    tracing.custom_tags = tags(&spec.trace_identity.tags, &options.custom_tags);
    Some(tracing)
}

/// A sampling percentage; the default if it is not in range, as in Istio.
fn sampled(percent: f64) -> f64 {
    match percent > 0.0 && percent <= ALL {
        true => percent,
        false => SAMPLED,
    }
}

/// Whether a tracer makes its own sampling decisions.
fn decides(tracer: &Tracer) -> bool {
    matches!(tracer, Tracer::OpenTelemetry(provider, ..) if provider.sampling.is_some())
}

fn by(tracer: &Tracer, spec: &ListenerSpec) -> manager::Tracing {
    let service = spec.trace_identity.service.to_string();
    let (provider, longest) = match tracer {
        Tracer::Zipkin(provider, to) => (named("envoy.tracers.zipkin", &zipkin(provider, to)), provider.max_tag_length),
        Tracer::Datadog(provider, to) => {
            let config = DatadogConfig {
                collector_cluster: to.cluster(),
                service_name: service,
                collector_hostname: to.authority.to_string(),
                ..Default::default()
            };
            (named("envoy.tracers.datadog", &config), provider.max_tag_length)
        }
        Tracer::SkyWalking(provider, to) => (named("envoy.tracers.skywalking", &skywalking(provider, to)), 0),
        Tracer::OpenTelemetry(provider, to, api) => (
            named("envoy.tracers.opentelemetry", &open_telemetry(provider, to, api.as_ref(), service)),
            provider.max_tag_length,
        ),
    };
    // A gateway has a span of its own; a sidecar reports the span of its application.
    let own = spec.direction == Direction::Gateway || matches!(tracer, Tracer::SkyWalking(..));
    manager::Tracing {
        provider: Some(provider),
        max_path_tag_length: (longest > 0).then_some(longest),
        spawn_upstream_span: own.then_some(true),
        ..Default::default()
    }
}

fn named<M: Message + Name>(name: &str, config: &M) -> tracing::Http {
    tracing::Http { name: name.to_owned(), config_type: Some(tracing::http::ConfigType::TypedConfig(any(config))) }
}

fn zipkin(provider: &ZipkinProvider, to: &Backend) -> ZipkinConfig {
    let path = match &*provider.path {
        "" => ZIPKIN_PATH.to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        path => format!("/{path}"),
    };
    let context = match provider.trace_context_option {
        ZipkinTraceContext::B3 => TraceContextOption::UseB3,
        ZipkinTraceContext::B3AndW3c => TraceContextOption::UseB3WithW3cPropagation,
    };
    // Envoy before 1.37 does not support HTTP services; later ones prefer them.
    let service = (provider.timeout.is_some() || !provider.headers.is_empty()).then(|| HttpService {
        http_uri: Some(http_uri(
            format!("http://{}{path}", to.authority),
            to,
            provider.timeout.unwrap_or(ZIPKIN_TIMEOUT),
        )),
        request_headers_to_add: request_headers(&provider.headers),
        ..Default::default()
    });
    ZipkinConfig {
        collector_cluster: to.cluster(),
        collector_endpoint: path,
        collector_hostname: to.authority.to_string(),
        collector_service: service,
        collector_endpoint_version: CollectorEndpointVersion::HttpJson.into(),
        trace_id_128bit: !provider.enable_64bit_trace_id,
        shared_span_context: Some(false),
        trace_context_option: context.into(),
        ..Default::default()
    }
}

fn skywalking(provider: &SkyWalkingProvider, to: &Backend) -> SkyWalkingConfig {
    let token = || ClientConfig {
        backend_token_specifier: Some(BackendTokenSpecifier::BackendToken(provider.access_token.to_string())),
        ..Default::default()
    };
    SkyWalkingConfig {
        grpc_service: Some(grpc_service(to)),
        client_config: (!provider.access_token.is_empty()).then(token),
    }
}

fn open_telemetry(
    provider: &OpenTelemetryProvider,
    to: &Backend,
    api: Option<&Backend>,
    service_name: String,
) -> OpenTelemetryConfig {
    let over_grpc = || {
        let settings = provider.grpc.clone().unwrap_or_default();
        GrpcService {
            timeout: settings.timeout.map(duration),
            initial_metadata: header_values(&settings.initial_metadata),
            ..grpc_service(to)
        }
    };
    let http = provider.http.as_ref().map(|http| exporter(http, &http.path, to));
    let detectors = provider.resource_detectors.as_ref();
    let by_conventions = provider.service_attribute_enrichment == ServiceAttributeEnrichment::OtelSemanticConventions;
    let environment = by_conventions || detectors.is_some_and(|all| all.environment.is_some());
    let mut resource_detectors = Vec::new();
    if environment {
        let name = "envoy.tracers.opentelemetry.resource_detectors.environment";
        resource_detectors.push(extension(name, &EnvironmentResourceDetectorConfig {}));
    }
    if detectors.is_some_and(|all| all.dynatrace.is_some()) {
        let name = "envoy.tracers.opentelemetry.resource_detectors.dynatrace";
        resource_detectors.push(extension(name, &DynatraceResourceDetectorConfig {}));
    }
    OpenTelemetryConfig {
        grpc_service: http.is_none().then(over_grpc),
        http_service: http,
        service_name,
        resource_detectors,
        sampler: provider.sampling.as_ref().map(|sampler| match sampler {
            Sampler::Dynatrace(sampler) => dynatrace(sampler, provider, to, api),
        }),
        ..Default::default()
    }
}

/// Dynatrace's sampler. Its default service is the host that receives spans.
fn dynatrace(
    sampler: &DynatraceSampler,
    provider: &OpenTelemetryProvider,
    to: &Backend,
    api: Option<&Backend>,
) -> TypedExtensionConfig {
    let none = HttpExporter::default();
    let service = match (&sampler.http_service, api) {
        (Some(own), Some(api)) => {
            let http = own.http.as_ref().unwrap_or(&none);
            exporter(http, &http.path, api)
        }
        _ => exporter(provider.http.as_ref().unwrap_or(&none), SAMPLING_PATH, to),
    };
    let config = DynatraceSamplerConfig {
        tenant: sampler.tenant.to_string(),
        cluster_id: sampler.cluster_id,
        root_spans_per_minute: sampler.root_spans_per_minute,
        http_service: Some(service),
    };
    extension("envoy.tracers.opentelemetry.samplers.dynatrace", &config)
}

fn exporter(http: &HttpExporter, path: &str, to: &Backend) -> HttpService {
    let uri = format!("{}/{}", to.authority, path.trim_start_matches('/'));
    HttpService {
        http_uri: Some(http_uri(uri, to, http.timeout.unwrap_or(EXPORT_TIMEOUT))),
        request_headers_to_add: request_headers(&http.headers),
        ..Default::default()
    }
}

fn http_uri(uri: String, to: &Backend, timeout: Duration) -> HttpUri {
    HttpUri { uri, timeout: Some(duration(timeout)), http_upstream_type: Some(HttpUpstreamType::Cluster(to.cluster())) }
}

fn request_headers(headers: &[ProviderHeader]) -> Vec<HeaderValueOption> {
    let overwritten = |header| HeaderValueOption {
        header: Some(header),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    };
    header_values(headers).into_iter().map(overwritten).collect()
}

/// Headers with their values. A value that is missing in the environment is left out.
fn header_values(headers: &[ProviderHeader]) -> Vec<HeaderValue> {
    let one = |header: &ProviderHeader| match &header.value {
        Some(ProviderHeaderValue::Value(value)) => {
            Some(HeaderValue { key: header.name.to_string(), value: value.to_string(), ..Default::default() })
        }
        _ => None,
    };
    headers.iter().filter_map(one).collect()
}

/// The tags of spans, by name: Istio's, overridden by those of the settings. Tags that Envoy would reject are left out.
fn tags(own: &[(Arc<str>, Arc<str>)], custom: &BTreeMap<Arc<str>, mesh::CustomTag>) -> Vec<CustomTag> {
    let mut all: BTreeMap<&str, custom_tag::Type> = BTreeMap::new();
    if !own.is_empty() {
        all.extend(DRY_RUN_TAGS.map(|(tag, key)| (tag, noted(key))));
    }
    all.extend(own.iter().map(|(tag, value)| (&**tag, literal(value))));
    for (tag, source) in custom.iter().filter(|(tag, _)| !tag.is_empty()) {
        let source = match source {
            mesh::CustomTag::Literal(tag) if !tag.value.is_empty() => literal(&tag.value),
            mesh::CustomTag::Environment(tag) if !tag.name.is_empty() => {
                custom_tag::Type::Environment(custom_tag::Environment {
                    name: tag.name.to_string(),
                    default_value: tag.default_value.to_string(),
                })
            }
            mesh::CustomTag::Header(tag) if config::is_header_name(&tag.name) => {
                custom_tag::Type::RequestHeader(custom_tag::Header {
                    name: tag.name.to_string(),
                    default_value: tag.default_value.to_string(),
                })
            }
            _ => continue,
        };
        all.insert(tag, source);
    }
    let one = |(tag, source): (&str, custom_tag::Type)| CustomTag { tag: tag.to_owned(), r#type: Some(source) };
    all.into_iter().map(one).collect()
}

fn literal(value: &str) -> custom_tag::Type {
    custom_tag::Type::Literal(custom_tag::Literal { value: value.to_owned() })
}

/// A tag with a value that the RBAC filter wrote to the metadata.
fn noted(key: &str) -> custom_tag::Type {
    custom_tag::Type::Metadata(custom_tag::Metadata {
        kind: Some(MetadataKind { kind: Some(metadata_kind::Kind::Request(metadata_kind::Request {})) }),
        metadata_key: Some(MetadataKey {
            key: "envoy.filters.http.rbac".to_owned(),
            path: vec![PathSegment { segment: Some(Segment::Key(key.to_owned())) }],
        }),
        default_value: String::new(),
    })
}
