//! Small debug pages.

use serde_json::{Value, json};
use world::World;

use crate::config_dump::{Wanted, proxy_of};
use crate::core::Core;
use crate::page_data::Streams;

/// The connected proxies with their namespaces, addresses and labels.
pub(crate) fn connections(streams: &Streams) -> Value {
    let clients = streams.statuses.iter().map(|status| {
        json!({
            "connectionId": format!("{}-{}", status.proxy.id, status.id.0),
            "proxy": &*status.proxy.id,
            "namespace": &*status.proxy.namespace,
            "addresses": status.proxy.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "labels": status.proxy.labels.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>(),
        })
    });
    let clients: Vec<Value> = clients.collect();
    json!({"totalClients": clients.len(), "clients": clients})
}

/// The effective ProxyConfig of a proxy's workload; `None` if the proxy is not connected.
pub(crate) fn proxy_config(core: &Core, wanted: &Wanted) -> Option<Value> {
    let (_, proxy) = proxy_of(core, wanted)?;
    let world = &core.served.world;
    let mut page = world.proxy_config(world.proxy_config_target(&proxy));
    page["shadowed"] = world.shadowed_proxy_configs().into();
    Some(page)
}

/// Recomputes all derived rows and compares them with those of the world.
pub(crate) fn recompute(world: &World) -> Value {
    match world.check() {
        Ok(()) => json!({"agrees": true}),
        Err(mismatch) => json!({"agrees": false, "mismatch": mismatch.to_string()}),
    }
}
