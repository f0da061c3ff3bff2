//! Identity of a proxy in traces.
//!
//! It is part of every HTTP listener, inbound and outbound, because the client's span has these tags, too: Istio writes the
//! same values into them. Envoy has no other source for them on which Rutter can rely. Custom tags read request headers,
//! metadata of requests, routes, clusters and hosts, but not of the node, and environment variables, which depend on how the
//! proxy was started and on the version of its injection template. Workloads that differ in these values do not share
//! encoded listeners while tracing is on. They share the plans of the listeners
//! ([`ListenerAudience::unspecific`](model::audience::ListenerAudience::unspecific)).

use std::sync::Arc;

use model::listener::TraceIdentity;
use model::proxy::{Labels, Proxy, ProxyKind};
use security::telemetry::{SpanName, SpanSource, Spans};

use super::facts::Facts;
use super::overrides::Overrides;

/// The value of a tag that is not known.
const UNKNOWN: &str = "unknown";
/// OpenTelemetry's name of a service without a name.
const UNKNOWN_SERVICE: &str = "unknown_service";

/// The identity of a proxy in traces; empty while tracing is off.
pub(super) fn identity(facts: &Facts<'_>, overrides: &Overrides) -> Arc<TraceIdentity> {
    let (proxy, labels) = (facts.proxy, facts.labels);
    let Some(source) = facts.cx.get::<Spans>(&()).filter(|_| proxy.kind != ProxyKind::Grpc) else {
        return Arc::default();
    };
    let (tagged, service) = match *source {
        SpanSource::Bootstrap => {
            let tracing = overrides.settings(facts.mesh).tracing.as_ref();
            let tracing = tracing.filter(|tracing| tracing.tracer.is_some());
            let tagged = tracing.is_some_and(|tracing| tracing.enable_istio_tags.unwrap_or(true));
            (tagged, Arc::default())
        }
        SpanSource::Provider(SpanName::Own) => (true, Arc::default()),
        SpanSource::Provider(SpanName::Cluster) => (true, known(&proxy.span_names.cluster, UNKNOWN)),
        SpanSource::Provider(SpanName::Conventions) => (true, by_conventions(proxy, labels)),
    };
    let tags = if tagged { tags(proxy, labels) } else { Vec::new() };
    Arc::new(TraceIdentity { tags, service })
}

/// Istio's tags, ascending by name.
fn tags(proxy: &Proxy, labels: &Labels) -> Vec<(Arc<str>, Arc<str>)> {
    // Agents report labels that injection adds and that the pod object may lack.
    let label = |name: &str, default: &str| match labels.get(name).or_else(|| proxy.labels.get(name)) {
        Some(value) => known(value, default),
        None => default.into(),
    };
    let mesh = proxy.metadata.get("MESH_ID").cloned().unwrap_or_default();
    [
        ("istio.canonical_revision", label("service.istio.io/canonical-revision", "latest")),
        ("istio.canonical_service", label("service.istio.io/canonical-name", UNKNOWN)),
        ("istio.cluster_id", known(&proxy.cluster_id, UNKNOWN)),
        ("istio.mesh_id", known(&mesh, UNKNOWN)),
        ("istio.namespace", known(&proxy.namespace, "default")),
    ]
    .map(|(name, value)| (name.into(), value))
    .to_vec()
}

/// The service name by OpenTelemetry's conventions for Kubernetes: annotation, pod labels, workload, pod, only container.
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
