//! Settings of a proxy that override the mesh's, reduced to those that decide resources of one type. Most proxies run with
//! the mesh's settings and have none.

use std::sync::Arc;

use config::mesh::{
    ConnectionSettings, EnabledSwitch, HeaderSwitch, ProxyConfig, ProxyConfigOverride, ProxyHeaders, Tracer,
    TracerAddress, Tracing,
};
use flow::Reads;
use model::proxy::ProxyKind;
use registry::inputs::MeshSettings;
use registry::proxy_settings::ReportedSettings;
use security::telemetry::{SpanSource, Spans};

use super::facts::Facts;

/// The overrides of a proxy by the resources that they decide; none where the settings equal the mesh's.
#[derive(Default)]
pub(super) struct Overrides {
    all: Option<Arc<ProxyConfig>>,
    pub(super) listeners: Option<Arc<ProxyConfigOverride>>,
    pub(super) routes: Option<Arc<ProxyConfigOverride>>,
    pub(super) clusters: Option<Arc<ProxyConfigOverride>>,
}

impl Overrides {
    /// The settings that the proxy runs with.
    pub(super) fn settings<'s>(&'s self, mesh: &'s MeshSettings) -> &'s ProxyConfig {
        self.all.as_deref().unwrap_or(&mesh.config.default_config)
    }
}

/// The overrides of a proxy.
pub(super) fn of(facts: &Facts<'_>) -> Overrides {
    let reported = facts.proxy.settings.as_ref();
    let reported = reported.and_then(|text| facts.cx.get::<ReportedSettings>(text));
    let Some(reported) = reported.filter(|_| facts.proxy.kind != ProxyKind::Grpc) else {
        return Overrides::default();
    };
    let default = &facts.mesh.config.default_config;
    let mut own = (**reported).clone();
    // As in Istio, the mesh's connection settings apply unless the proxy reports some.
    if own.connection_settings.is_none() {
        own.connection_settings = default.connection_settings.clone();
    }
    let tracer = tracer_use(facts.cx);
    let different = |part: &dyn Fn(&ProxyConfig) -> ProxyConfig| {
        let mine = part(&own);
        (mine != part(default)).then(|| Arc::new(ProxyConfigOverride::new(mine)))
    };
    Overrides {
        listeners: different(&|settings| of_listeners(settings, facts.proxy.kind, tracer)),
        routes: different(&of_routes),
        clusters: different(&of_clusters),
        all: Some(Arc::new(own)),
    }
}

/// The settings that decide listeners. The gateway topology matters to gateways only.
fn of_listeners(settings: &ProxyConfig, kind: ProxyKind, tracer: TracerUse) -> ProxyConfig {
    let topology = settings.gateway_topology.as_ref();
    ProxyConfig {
        proxy_headers: settings.proxy_headers.clone(),
        connection_settings: settings.connection_settings.clone(),
        gateway_topology: topology.filter(|_| kind == ProxyKind::Router).cloned(),
        tracing: of_tracing(settings.tracing.as_ref(), tracer),
        ..ProxyConfig::default()
    }
}

/// The part of a proxy's tracing settings that is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TracerUse {
    /// None: tracing is off.
    Off,
    /// All, with the tracer of the bootstrap.
    Bootstrap,
    /// All but the tracer, which a provider of the mesh defines.
    Provider,
}

/// The part of proxies' tracing settings that the mesh uses.
fn tracer_use(cx: &Reads<'_>) -> TracerUse {
    match cx.get::<Spans>(&()).as_deref() {
        None => TracerUse::Off,
        Some(SpanSource::Bootstrap) => TracerUse::Bootstrap,
        Some(SpanSource::Provider(_)) => TracerUse::Provider,
    }
}

/// The tracing settings that decide listeners: whether the bootstrap has a tracer, but not its address.
fn of_tracing(tracing: Option<&Tracing>, uses: TracerUse) -> Option<Tracing> {
    let tracing = tracing?;
    let any_address = || Tracer::Zipkin(TracerAddress { address: "bootstrap".into() });
    let tracer = match uses {
        TracerUse::Off => return None,
        TracerUse::Provider => None,
        TracerUse::Bootstrap => Some(tracing.tracer.as_ref().map(|_| any_address())?),
    };
    let relevant = Tracing { tracer, tls_settings: None, ..tracing.clone() };
    (relevant != Tracing::default()).then_some(relevant)
}

/// The settings that decide routes: two headers.
fn of_routes(settings: &ProxyConfig) -> ProxyConfig {
    let headers = settings.proxy_headers.as_ref();
    let count = headers.and_then(|headers| headers.attempt_count.as_ref()?.disabled);
    let host = headers.and_then(|headers| headers.x_forwarded_host.as_ref()?.enabled);
    let headers = ProxyHeaders {
        attempt_count: Some(HeaderSwitch { disabled: Some(count.unwrap_or(false)) }),
        x_forwarded_host: Some(EnabledSwitch { enabled: Some(host.unwrap_or(false)) }),
        ..ProxyHeaders::default()
    };
    ProxyConfig { proxy_headers: Some(headers), ..ProxyConfig::default() }
}

/// The settings that decide clusters: the case of headers and the size of a buffer.
fn of_clusters(settings: &ProxyConfig) -> ProxyConfig {
    let headers = settings.proxy_headers.as_ref();
    let keeps_case = headers.and_then(|headers| headers.preserve_http1_header_case);
    let connections = settings.connection_settings.as_ref();
    ProxyConfig {
        proxy_headers: Some(ProxyHeaders {
            preserve_http1_header_case: Some(keeps_case.unwrap_or(false)),
            ..ProxyHeaders::default()
        }),
        connection_settings: Some(ConnectionSettings {
            cluster_per_connection_buffer_limit_bytes: connections
                .and_then(|settings| settings.cluster_per_connection_buffer_limit_bytes),
            ..ConnectionSettings::default()
        }),
        ..ProxyConfig::default()
    }
}
