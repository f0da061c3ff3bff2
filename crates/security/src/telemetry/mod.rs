//! What proxies tell of the traffic that they see: access logs, traces and metrics.
//!
//! Only the mesh has a say so far (`defaultProviders`, and the older settings where these name nothing), so that one row holds
//! for all proxies. Whoever wants to know less reads less: what names the tracer gives to proxies, and which services are told.

mod conflicts;
mod lookup;
mod provider;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use config::mesh::{
    AccessLogEncoding, DatadogProvider, HttpAlsProvider, LogFormat, OpenTelemetryProvider, OtelAlsProvider, Provider,
    ServiceAttributeEnrichment, SkyWalkingProvider, TcpAlsProvider, ZipkinProvider,
};
use flow::{Reads, Relation, Rule};
use model::service::ServiceKey;
use registry::inputs::Mesh;

pub use conflicts::TelemetryConflicts;
pub use lookup::Backend;

/// What proxies tell, and whom.
pub struct EffectiveTelemetry;

impl Relation for EffectiveTelemetry {
    const NAME: &'static str = "telemetry";
    type Key = ();
    type Row = Arc<Telemetry>;
}

/// What proxies tell, and whom. How traces are sampled and tagged is a setting of each proxy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Telemetry {
    /// Logs of requests and connections, in the order of their providers' names.
    pub logs: Vec<Log>,
    /// Traces of requests.
    pub tracing: Tracing,
    /// Metrics in Istio's form, where the proxy's build can make them (`prometheus`).
    pub metrics: bool,
}

/// A log of requests or connections.
#[derive(Clone, PartialEq, Debug)]
pub enum Log {
    /// In a file of the proxy.
    File(FileLog),
    /// To a service, in the form of HTTP requests.
    Http(HttpAlsProvider, Backend),
    /// To a service, in the form of TCP connections.
    Tcp(TcpAlsProvider, Backend),
    /// To a collector of OpenTelemetry.
    OpenTelemetry(OtelAlsProvider, Backend),
    /// To the service that the proxy's bootstrap knows as `envoy_accesslog_service`.
    Bootstrap,
}

/// A log in a file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileLog {
    /// The file.
    pub path: Arc<str>,
    /// How lines are written; an empty object stands for Istio's fields as JSON.
    pub format: LogFormat,
    /// What is empty is left out.
    pub omit_empty_values: bool,
}

/// Traces of requests.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Tracing {
    /// None.
    #[default]
    Off,
    /// By the tracer of the proxy's bootstrap, where its settings name one (`tracing`).
    Bootstrap,
    /// By this one.
    Provider(Box<Tracer>),
}

/// Who traces.
#[derive(Clone, PartialEq, Debug)]
pub enum Tracer {
    /// Zipkin.
    Zipkin(ZipkinProvider, Backend),
    /// Datadog.
    Datadog(DatadogProvider, Backend),
    /// SkyWalking.
    SkyWalking(SkyWalkingProvider, Backend),
    /// OpenTelemetry, and Dynatrace's API where that samples and is another service.
    OpenTelemetry(OpenTelemetryProvider, Backend, Option<Backend>),
}

impl Rule for EffectiveTelemetry {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<Arc<Telemetry>> {
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
}

/// The logs of the default providers; where these come to nothing, those of the older settings.
fn logs(cx: &Reads<'_>, mesh: &MeshConfig) -> Vec<Log> {
    let names: BTreeSet<&Arc<str>> = mesh.default_providers.access_logging.iter().collect();
    let found = names.into_iter().filter_map(|name| provider::named(mesh, name));
    let mut logs: Vec<Log> = Vec::new();
    for log in found.filter_map(|found| provider::log(cx, mesh, found).ok()) {
        // Names that differ in their letters' case only are one provider.
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

/// A log in a file, in the format of the mesh.
fn mesh_log(mesh: &MeshConfig, path: &Arc<str>) -> FileLog {
    let text = &mesh.access_log_format;
    let format = match mesh.access_log_encoding {
        AccessLogEncoding::Text if text.is_empty() => LogFormat::Default,
        AccessLogEncoding::Text => LogFormat::Text(text.clone()),
        AccessLogEncoding::Json => LogFormat::Labels(
            // What is no object is as nothing.
            serde_json::from_str(text)
                .ok()
                .filter(serde_json::Value::is_object)
                .unwrap_or_else(|| serde_json::json!({})),
        ),
    };
    FileLog {
        path: path.clone(),
        format,
        omit_empty_values: false,
    }
}

/// The first of the default providers counts; where none is named, the older settings.
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

/// What the tracer's configuration says of the proxy; nothing while nobody traces.
pub struct Spans;

impl Relation for Spans {
    const NAME: &'static str = "spans";
    type Key = ();
    type Row = SpanSource;
}

/// Who makes spans, and what of the proxy it has to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanSource {
    /// The tracer of the bootstrap, which knows the proxy's name.
    Bootstrap,
    /// A provider, which is told this name.
    Provider(SpanName),
}

/// The name of a proxy's service in traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanName {
    /// The tracer takes the one that the proxy was started with.
    Own,
    /// The one that the proxy was started with, which has to be said.
    Cluster,
    /// As OpenTelemetry's conventions for Kubernetes have it.
    Conventions,
}

impl Rule for Spans {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<SpanSource> {
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
}

/// The services that listeners send logs and traces to, with the port, ascending: proxies have clusters for them whatever
/// their `Sidecar` lets in. None where there are none.
pub struct TelemetryServices;

impl Relation for TelemetryServices {
    const NAME: &'static str = "services for telemetry";
    type Key = ();
    type Row = Arc<[(ServiceKey, u16)]>;
}

impl Rule for TelemetryServices {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<Arc<[(ServiceKey, u16)]>> {
        let telemetry = cx.get::<EffectiveTelemetry>(&())?;
        let all: BTreeSet<(ServiceKey, u16)> = telemetry
            .backends()
            .map(|backend| (backend.service.clone(), backend.port))
            .collect();
        (!all.is_empty()).then(|| all.into_iter().collect())
    }
}

impl Telemetry {
    /// All services that are told.
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
