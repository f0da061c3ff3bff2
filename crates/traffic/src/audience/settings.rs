//! What of a proxy's own settings makes a difference: nothing, for most were started with those of the mesh.

use std::sync::Arc;

use config::MeshConfig;
use config::mesh::{PrivateKeyProvider, ProxyConfig, ProxyHeaders, Tracer, TracerAddress, Tracing};
use flow::Reads;
use model::proxy::{Capabilities, Proxy, ProxyKind};
use model::tls::{KeyProvider, KeyProviderSort};
use registry::proxy_settings::OwnSettings;
use serde_json::{Map, Value, json};

use super::traced::Uses;

/// What of a proxy's own settings shapes what it gets, as JSON; empty where that is as the mesh's.
#[derive(Default)]
pub(super) struct Own {
    /// The settings; none where the proxy says nothing of them.
    pub(super) all: Option<Arc<ProxyConfig>>,
    /// Shapes its listeners.
    pub(super) listeners: Arc<str>,
    /// Shapes its routes.
    pub(super) routes: Arc<str>,
    /// Shapes its clusters.
    pub(super) clusters: Arc<str>,
}

/// What of a proxy's own settings makes a difference.
pub(super) fn of(cx: &Reads<'_>, proxy: &Proxy, mesh: &MeshConfig, traces: Uses) -> Own {
    let own = proxy.settings.as_ref().and_then(|text| cx.get::<OwnSettings>(text));
    let Some(own) = own.filter(|_| proxy.kind != ProxyKind::Grpc) else {
        return Own::default();
    };
    let default = &mesh.default_config;
    let mut own = (**own).clone();
    if own.connection_settings.is_none() {
        own.connection_settings = default.connection_settings.clone();
    }
    let different = |part: &dyn Fn(&ProxyConfig) -> Value| -> Arc<str> {
        let mine = part(&own);
        match mine == part(default) {
            true => Arc::default(),
            false => mine.to_string().into(),
        }
    };
    Own {
        listeners: different(&|settings| listeners(settings, proxy.kind, traces)),
        routes: different(&routes),
        clusters: different(&clusters),
        all: Some(Arc::new(own)),
    }
}

/// What signs with the keys of secrets that a proxy is served, where its settings ask for it and its build has it: one that
/// has not would refuse the secret.
pub(super) fn key_provider(settings: &ProxyConfig, build: Capabilities) -> Option<KeyProvider> {
    let (sort, settings) = match settings.private_key_provider.as_ref()? {
        PrivateKeyProvider::Cryptomb(settings) if build.cryptomb => (KeyProviderSort::Cryptomb, settings),
        PrivateKeyProvider::Qat(settings) if build.qat => (KeyProviderSort::Qat, settings),
        _ => return None,
    };
    Some(KeyProvider {
        sort,
        poll_delay: settings.poll_delay?,
        fallback: settings.fallback.unwrap_or_default(),
    })
}

/// What shapes listeners. Sidecars know nothing of what is before gateways.
fn listeners(settings: &ProxyConfig, kind: ProxyKind, traces: Uses) -> Value {
    let shaping = ProxyConfig {
        proxy_headers: settings.proxy_headers.clone(),
        connection_settings: settings.connection_settings.clone(),
        gateway_topology: settings.gateway_topology.clone(),
        tracing: traced(settings.tracing.as_ref(), traces),
        ..ProxyConfig::default()
    };
    let Value::Object(all) = shaping.to_json() else {
        return Value::Null;
    };
    let wanted = |name: &str| match name {
        "proxyHeaders" | "connectionSettings" | "tracing" => true,
        name => name == "gatewayTopology" && kind == ProxyKind::Router,
    };
    let fields: Map<String, Value> = all.into_iter().filter(|(name, _)| wanted(name)).collect();
    Value::Object(fields)
}

/// What of the settings of traces shapes listeners: not where the bootstrap sends them, only whether it does.
fn traced(tracing: Option<&Tracing>, traces: Uses) -> Option<Tracing> {
    let tracing = tracing?;
    let somewhere = || {
        Tracer::Zipkin(TracerAddress {
            address: "bootstrap".into(),
        })
    };
    let tracer = match traces {
        Uses::Nothing => return None,
        Uses::Provider => None,
        Uses::Bootstrap => Some(tracing.tracer.as_ref().map(|_| somewhere())?),
    };
    let shaping = Tracing {
        tracer,
        tls_settings: None,
        ..tracing.clone()
    };
    (shaping != Tracing::default()).then_some(shaping)
}

/// What shapes routes: two headers.
fn routes(settings: &ProxyConfig) -> Value {
    let none = ProxyHeaders::default();
    let headers = settings.proxy_headers.as_ref().unwrap_or(&none);
    let count = headers.attempt_count.as_ref().and_then(|switch| switch.disabled);
    let host = headers.x_forwarded_host.as_ref().and_then(|switch| switch.enabled);
    json!({ "proxyHeaders": {
        "attemptCount": { "disabled": count.unwrap_or(false) },
        "xForwardedHost": { "enabled": host.unwrap_or(false) },
    }})
}

/// What shapes clusters: the letters of headers, and a buffer.
fn clusters(settings: &ProxyConfig) -> Value {
    let headers = settings.proxy_headers.as_ref();
    let keeps_case = headers.and_then(|headers| headers.preserve_http1_header_case);
    let connections = settings.connection_settings.as_ref();
    // Without any, the mesh's would be taken.
    let mut all = json!({
        "proxyHeaders": { "preserveHttp1HeaderCase": keeps_case.unwrap_or(false) },
        "connectionSettings": {},
    });
    if let Some(bytes) = connections.and_then(|settings| settings.cluster_per_connection_buffer_limit_bytes) {
        all["connectionSettings"]["clusterPerConnectionBufferLimitBytes"] = bytes.into();
    }
    all
}
