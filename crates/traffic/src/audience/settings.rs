//! What of a proxy's own settings makes a difference: nothing, for most were started with those of the mesh.

use std::sync::Arc;

use flow::Reads;
use model::proxy::{Proxy, ProxyKind};
use registry::proxy_settings::OwnSettings;
use resources::MeshConfig;
use resources::mesh::{ProxyConfig, ProxyHeaders};
use serde_json::{Map, Value, json};

/// What of a proxy's own settings shapes what it gets, as JSON; empty where that is as the mesh's.
#[derive(Default)]
pub(super) struct Own {
    /// Shapes its listeners.
    pub(super) listeners: Arc<str>,
    /// Shapes its routes.
    pub(super) routes: Arc<str>,
}

/// What of a proxy's own settings makes a difference.
pub(super) fn of(cx: &Reads<'_>, proxy: &Proxy, mesh: &MeshConfig) -> Own {
    let own = proxy.settings.as_ref().and_then(|text| cx.get::<OwnSettings>(text));
    let Some(own) = own.filter(|_| proxy.kind != ProxyKind::Grpc) else {
        return Own::default();
    };
    let different = |part: &dyn Fn(&ProxyConfig) -> Value| -> Arc<str> {
        let mine = part(&own);
        match mine == part(&mesh.default_config) {
            true => Arc::default(),
            false => mine.to_string().into(),
        }
    };
    Own {
        listeners: different(&|settings| listeners(settings, proxy.kind)),
        routes: different(&routes),
    }
}

/// What shapes listeners. Sidecars know nothing of what is before gateways.
fn listeners(settings: &ProxyConfig, kind: ProxyKind) -> Value {
    let Value::Object(all) = settings.to_json() else {
        return Value::Null;
    };
    let wanted = |name: &str| match name {
        "proxyHeaders" | "connectionSettings" => true,
        name => name == "gatewayTopology" && kind == ProxyKind::Router,
    };
    let fields: Map<String, Value> = all.into_iter().filter(|(name, _)| wanted(name)).collect();
    Value::Object(fields)
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
