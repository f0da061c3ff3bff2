//! Telemetry of proxies: access logs, traces and metrics.
//!
//! It is configured by the mesh only (`defaultProviders`, else the older settings), so one row applies to all proxies.
//! Narrower relations exist for readers that need less: the tracer's view of proxies, and the telemetry services.

mod conflicts;
mod provider;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use config::mesh::{
    AccessLogEncoding, DatadogProvider, HttpAlsProvider, LogFormat, OpenTelemetryProvider, OtelAlsProvider, Provider,
    ServiceAttributeEnrichment, SkyWalkingProvider, TcpAlsProvider, ZipkinProvider,
};
use flow::Reads;
use model::service::ServiceKey;
use registry::inputs::Mesh;

pub use crate::backend::Backend;
pub use conflicts::TelemetryConflicts;

flow::rule! {
    /// Telemetry of proxies.
    pub EffectiveTelemetry: () => Arc<Telemetry> = "telemetry", derive_effective_telemetry;
}

/// Telemetry of proxies. Sampling and tags of traces are settings of each proxy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Telemetry {
    /// Access logs, ordered by provider name.
    pub logs: Vec<Log>,
    /// Traces.
    pub tracing: Tracing,
    /// Istio metrics, if the proxy's build supports them (`prometheus`).
    pub metrics: bool,
}

/// An access log.
#[derive(Clone, PartialEq, Debug)]
pub enum Log {
    /// A file of the proxy.
    File(FileLog),
    /// A gRPC service, with HTTP entries.
    Http(HttpAlsProvider, Backend),
    /// A gRPC service, with TCP entries.
    Tcp(TcpAlsProvider, Backend),
    /// An OpenTelemetry collector.
    OpenTelemetry(OtelAlsProvider, Backend),
    /// The service `envoy_accesslog_service` of the proxy's bootstrap.
    Bootstrap,
}

/// An access log in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileLog {
    /// The path.
    pub path: Arc<str>,
    /// The format; an empty object means Istio's fields as JSON.
    pub format: LogFormat,
    /// Empty values are omitted.
    pub omit_empty_values: bool,
}

/// Traces.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Tracing {
    /// None.
    #[default]
    Off,
    /// The tracer of the proxy's bootstrap, if the proxy's settings configure one (`tracing`).
    Bootstrap,
    /// This tracer.
    Provider(Box<Tracer>),
}

/// A tracer.
#[derive(Clone, PartialEq, Debug)]
pub enum Tracer {
    /// Zipkin.
    Zipkin(ZipkinProvider, Backend),
    /// Datadog.
    Datadog(DatadogProvider, Backend),
    /// SkyWalking.
    SkyWalking(SkyWalkingProvider, Backend),
    /// OpenTelemetry, with a Dynatrace API for sampling if that is another service.
    OpenTelemetry(OpenTelemetryProvider, Backend, Option<Backend>),
}

fn derive_effective_telemetry(cx: &Reads<'_>, (): &()) -> Option<Arc<Telemetry>> {
    let mesh = cx.get::<Mesh>(&())?;
    let mesh = &mesh.config;
    let metrics = mesh.default_providers.metrics.iter();
    let kinds = metrics.filter_map(|name| provider::named(mesh, name)?.provider.as_ref());
    Some(Arc::new(Telemetry {
        logs: logs(cx, mesh),
        tracing: tracing(cx, mesh),
        metrics: kinds.into_iter().any(|kind| matches!(kind, Provider::Prometheus(_))),
    }))
}

/// The access logs of the default providers, else those of the older settings.
fn logs(cx: &Reads<'_>, mesh: &MeshConfig) -> Vec<Log> {
    let names: BTreeSet<&Arc<str>> = mesh.default_providers.access_logging.iter().collect();
    let found = names.into_iter().filter_map(|name| provider::named(mesh, name));
    let mut logs: Vec<Log> = Vec::new();
    for log in found.filter_map(|found| provider::log(cx, mesh, found).ok()) {
        // Names of providers are compared without regard to case.
        if !logs.contains(&log) {
            logs.push(log);
        }
    }
    if logs.is_empty() {
        if !mesh.access_log_file.is_empty() {
            logs.push(Log::File(mesh_log(mesh, &mesh.access_log_file)));
        }
        if mesh.enable_envoy_access_log_service {
            logs.push(Log::Bootstrap);
        }
    }
    logs
}

/// A log in a file, with the mesh's format.
fn mesh_log(mesh: &MeshConfig, path: &Arc<str>) -> FileLog {
    let text = &mesh.access_log_format;
    let format = match mesh.access_log_encoding {
        AccessLogEncoding::Text if text.is_empty() => LogFormat::Default,
        AccessLogEncoding::Text => LogFormat::Text(text.clone()),
        AccessLogEncoding::Json => LogFormat::Labels(
            // Invalid JSON counts as empty.
            serde_json::from_str(text)
                .ok()
                .filter(serde_json::Value::is_object)
                .unwrap_or_else(|| serde_json::json!({})),
        ),
    };
    FileLog { path: path.clone(), format, omit_empty_values: false }
}

/// The first default provider; without any, the older settings.
fn tracing(cx: &Reads<'_>, mesh: &MeshConfig) -> Tracing {
    match mesh.default_providers.tracing.first() {
        Some(name) => {
            let tracer = provider::named(mesh, name).and_then(|found| provider::tracer(cx, found).ok());
            tracer.map_or(Tracing::Off, |tracer| Tracing::Provider(Box::new(tracer)))
        }
        None if mesh.enable_tracing => Tracing::Bootstrap,
        None => Tracing::Off,
    }
}

flow::rule! {
    /// The part of a proxy's identity that the tracer configuration contains; none while tracing is off.
    pub Spans: () => SpanSource = "spans", derive_spans;
}

/// Source of spans, which decides the part of a proxy's identity in its configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanSource {
    /// The tracer of the bootstrap, which contains the proxy's name.
    Bootstrap,
    /// A provider, which needs this name.
    Provider(SpanName),
}

/// The service name of a proxy in traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanName {
    /// The tracer uses the node's cluster (`--service-cluster`).
    Own,
    /// The node's cluster, written to the configuration.
    Cluster,
    /// By OpenTelemetry's conventions for Kubernetes.
    Conventions,
}

fn derive_spans(cx: &Reads<'_>, (): &()) -> Option<SpanSource> {
    let telemetry = cx.get::<EffectiveTelemetry>(&())?;
    Some(match &telemetry.tracing {
        Tracing::Off => return None,
        Tracing::Bootstrap => SpanSource::Bootstrap,
        Tracing::Provider(tracer) => SpanSource::Provider(match &**tracer {
            Tracer::Zipkin(..) | Tracer::SkyWalking(..) => SpanName::Own,
            Tracer::Datadog(..) => SpanName::Cluster,
            Tracer::OpenTelemetry(provider, ..) => match provider.service_attribute_enrichment {
                ServiceAttributeEnrichment::IstioCanonical => SpanName::Cluster,
                ServiceAttributeEnrichment::OtelSemanticConventions => SpanName::Conventions,
            },
        }),
    })
}

flow::rule! {
    /// The services that listeners send logs and traces to, with their ports, ascending. Proxies have clusters for them
    /// whatever their `Sidecar` imports. None if there are none.
    pub TelemetryServices: () => Arc<[(ServiceKey, u16)]> = "services for telemetry", derive_telemetry_services;
}

fn derive_telemetry_services(cx: &Reads<'_>, (): &()) -> Option<Arc<[(ServiceKey, u16)]>> {
    let telemetry = cx.get::<EffectiveTelemetry>(&())?;
    let all: BTreeSet<(ServiceKey, u16)> =
        telemetry.backends().map(|backend| (backend.service.clone(), backend.port)).collect();
    (!all.is_empty()).then(|| all.into_iter().collect())
}

impl Telemetry {
    /// All telemetry services.
    pub fn backends(&self) -> impl Iterator<Item = &Backend> {
        let logs = self.logs.iter().filter_map(|log| match log {
            Log::File(_) | Log::Bootstrap => None,
            Log::Http(_, to) | Log::Tcp(_, to) | Log::OpenTelemetry(_, to) => Some(to),
        });
        let (tracer, sampler) = match &self.tracing {
            Tracing::Off | Tracing::Bootstrap => (None, None),
            Tracing::Provider(tracer) => match &**tracer {
                Tracer::Zipkin(_, to) | Tracer::Datadog(_, to) | Tracer::SkyWalking(_, to) => (Some(to), None),
                Tracer::OpenTelemetry(_, to, api) => (Some(to), api.as_ref()),
            },
        };
        logs.chain(tracer).chain(sampler)
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<EffectiveTelemetry>();
    b.view::<Spans>();
    b.view::<TelemetryServices>();
    b.view::<TelemetryConflicts>();
}
