//! What traces say of a proxy: nothing, while nobody makes any.

use std::sync::Arc;

use config::mesh::ProxyConfig;
use flow::Reads;
use model::listener::Traced;
use model::proxy::{Labels, Proxy, ProxyKind};
use security::telemetry::{SpanName, SpanSource, Spans};

/// What stands for a fact that is not known.
const UNKNOWN: &str = "unknown";
/// What OpenTelemetry has for a service without a name.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// What of the settings of traces makes a difference to a proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Uses {
    /// Nothing.
    Nothing,
    /// Whether a tracer is named, and how it traces.
    Bootstrap,
    /// How it traces.
    Provider,
}

/// What of the settings of traces makes a difference.
pub(super) fn uses(cx: &Reads<'_>) -> Uses {
    match cx.get::<Spans>(&()).as_deref() {
        None => Uses::Nothing,
        Some(SpanSource::Bootstrap) => Uses::Bootstrap,
        Some(SpanSource::Provider(_)) => Uses::Provider,
    }
}

/// What traces say of a proxy with these settings and labels.
pub(super) fn of(cx: &Reads<'_>, proxy: &Proxy, labels: &Labels, settings: &ProxyConfig) -> Arc<Traced> {
    let Some(source) = cx.get::<Spans>(&()).filter(|_| proxy.kind != ProxyKind::Grpc) else {
        return Arc::default();
    };
    let (tagged, service) = match *source {
        SpanSource::Bootstrap => {
            let tracing = settings.tracing.as_ref().filter(|tracing| tracing.tracer.is_some());
            let tagged = tracing.is_some_and(|tracing| tracing.enable_istio_tags.unwrap_or(true));
            (tagged, Arc::default())
        }
        SpanSource::Provider(SpanName::Own) => (true, Arc::default()),
        SpanSource::Provider(SpanName::Cluster) => (true, known(&proxy.span_names.cluster, UNKNOWN)),
        SpanSource::Provider(SpanName::Conventions) => (true, by_conventions(proxy, labels)),
    };
    let tags = if tagged { tags(proxy, labels) } else { Vec::new() };
    Arc::new(Traced { tags, service })
}

/// Istio's tags, ascending by name.
fn tags(proxy: &Proxy, labels: &Labels) -> Vec<(Arc<str>, Arc<str>)> {
    // Agents know what injection would have written, which labels of the pod may lack.
    let label = |name: &str, default: &str| match labels.get(name).or_else(|| proxy.labels.get(name)) {
        Some(value) => known(value, default),
        None => default.into(),
    };
    let mesh = proxy.metadata.get("MESH_ID").cloned().unwrap_or_default();
    [
        (
            "istio.canonical_revision",
            label("service.istio.io/canonical-revision", "latest"),
        ),
        (
            "istio.canonical_service",
            label("service.istio.io/canonical-name", UNKNOWN),
        ),
        ("istio.cluster_id", known(&proxy.cluster_id, UNKNOWN)),
        ("istio.mesh_id", known(&mesh, UNKNOWN)),
        ("istio.namespace", known(&proxy.namespace, "default")),
    ]
    .map(|(name, value)| (name.into(), value))
    .to_vec()
}

/// The name of a service by OpenTelemetry's conventions for Kubernetes: the annotation, labels of the pod, the workload, the pod,
/// its only container.
fn by_conventions(proxy: &Proxy, labels: &Labels) -> Arc<str> {
    let label = |name: &str| labels.get(name).or_else(|| proxy.labels.get(name)).cloned();
    let metadata = |name: &str| proxy.metadata.get(name).cloned();
    let pod = proxy.id.split_once('.').map(|(pod, _)| Arc::from(pod));
    let found = [
        Some(proxy.span_names.annotated.clone()),
        label("app.kubernetes.io/instance"),
        label("app.kubernetes.io/name"),
        metadata("WORKLOAD_NAME"),
        pod,
        metadata("APP_CONTAINERS").filter(|containers| !containers.contains(',')),
    ];
    let mut found = found.into_iter().flatten().filter(|name| !name.is_empty());
    found.next().unwrap_or_else(|| UNKNOWN_SERVICE.into())
}

fn known(text: &Arc<str>, default: &str) -> Arc<str> {
    match text.is_empty() {
        true => default.into(),
        false => text.clone(),
    }
}
