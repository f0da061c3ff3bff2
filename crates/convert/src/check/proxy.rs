//! A simulated gateway proxy: connects to a world, and fetches listeners and route tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::StringMap;
use envoy::types;
use model::audience::ResourceKey;
use model::proxy::SecretRight;
use model::xds::{Resource, ResourceType};
use protos::envoy::config::core::v3::Node;
use registry::inputs::ProxyToken;
use serde_json::{Value as Json, json};
use world::World;

use super::CheckError;

/// The address of simulated proxies. No given endpoint has it.
pub(super) const ADDRESS: &str = "192.0.2.1";

/// The gateway that the proxy serves.
pub(super) struct Gateway<'a> {
    pub(super) name: &'a str,
    pub(super) namespace: &'a Arc<str>,
    pub(super) labels: StringMap,
}

/// The configuration that a proxy receives.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) listeners: Vec<Json>,
    /// Route tables by name.
    pub(super) tables: BTreeMap<Arc<str>, Json>,
    /// Clusters by name.
    pub(super) clusters: BTreeMap<Arc<str>, Json>,
}

/// Connects a proxy and fetches its listeners and route tables.
pub(super) fn seen(world: &mut World, gateway: &Gateway<'_>) -> Result<Seen, CheckError> {
    let labels: serde_json::Map<String, Json> =
        gateway.labels.iter().map(|(key, value)| (key.to_string(), Json::from(&**value))).collect();
    let Gateway { name, namespace, .. } = gateway;
    let node = json!({
        "id": format!("router~{ADDRESS}~{name}.{namespace}~{namespace}.svc.cluster.local"),
        "metadata": {"NAMESPACE": &***namespace, "INSTANCE_IPS": ADDRESS, "LABELS": labels},
    });
    let node: Node = protos::from_json(&node).map_err(failed)?;
    let mut proxy = envoy::parse_node(&node).map_err(failed)?;
    proxy.secrets = SecretRight::Namespace;
    let (token, _) = world.connect(Arc::new(proxy));
    let mut out = Seen::default();
    let mut tables = BTreeSet::new();
    for listener in listed(world, token, types::LISTENER)? {
        let listener = json_of(types::LISTENER, &listener)?;
        table_names(&listener, &mut tables);
        out.listeners.push(listener);
    }
    for cluster in listed(world, token, types::CLUSTER)? {
        out.clusters.insert(cluster.name().clone(), json_of(types::CLUSTER, &cluster)?);
    }
    let audiences = [world.own_audience(token, types::ROUTE), world.audience(token, types::ROUTE)];
    for name in tables {
        let keys = audiences.iter().flatten().filter_map(|audience| world.resolve(audience, &name));
        let Some(key) = keys.into_iter().next() else { continue };
        if let (_, Some(table)) = world.open(&key) {
            out.tables.insert(name, json_of(types::ROUTE, &table)?);
        }
    }
    let panics = world.take_panics();
    if !panics.is_empty() {
        return Err(CheckError(panics.join("; ")));
    }
    world.disconnect(token);
    Ok(out)
}

/// The resources of the shared and the own list, of which the latter replaces and hides those of the former.
fn listed(world: &mut World, token: ProxyToken, kind: ResourceType) -> Result<Vec<Resource>, CheckError> {
    let shared = world.audience(token, kind).ok_or_else(|| failed("the proxy has no audience"))?;
    let own = world.own_audience(token, kind);
    let mut rows: BTreeMap<Arc<str>, ResourceKey> = BTreeMap::new();
    for audience in std::iter::once(&shared).chain(&own) {
        if let Some((_, catalogue)) = world.open_catalogue(audience, &Arc::default()) {
            rows.extend(catalogue.entries.iter().cloned());
        }
    }
    let keys = rows.into_values().filter(|key| *key != ResourceKey::Hidden);
    Ok(keys.filter_map(|key| world.open(&key).1).collect())
}

fn json_of(kind: ResourceType, resource: &Resource) -> Result<Json, CheckError> {
    protos::json(kind.type_url, &resource.body()).map_err(failed)
}

/// The names of the route tables of a listener.
fn table_names(value: &Json, names: &mut BTreeSet<Arc<str>>) {
    match value {
        Json::Object(fields) => {
            names.extend(fields.get("routeConfigName").and_then(Json::as_str).map(Arc::from));
            fields.values().for_each(|value| table_names(value, names));
        }
        Json::Array(items) => items.iter().for_each(|item| table_names(item, names)),
        _ => {}
    }
}

fn failed(error: impl std::fmt::Display) -> CheckError {
    CheckError(error.to_string())
}
