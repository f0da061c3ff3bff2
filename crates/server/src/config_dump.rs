//! `/debug/config_dump`: the resources of one proxy, in the form of Envoy's admin interface.

use envoy::types;
use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::{Resource, ResourceType, collection_of};
use protos::Message as _;
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use serde_json::{Map, Value, json};

use crate::world_handle::Core;

/// A proxy's resources, still encoded.
pub(crate) struct Dump {
    resources: Vec<(ResourceType, Vec<Resource>)>,
}

/// Collects the resources of the proxy whose ID is, or contains, `id`. `None` if no such proxy is connected.
pub(crate) fn gather(core: &Core, id: &str) -> Option<Dump> {
    let stream = stream_of(core, id)?;
    let mut resources: Vec<(ResourceType, Vec<Resource>)> =
        core.hub.types().iter().map(|kind| (kind, core.hub.resources(stream, kind))).collect();
    let hosts = core.hub.resources(stream, types::VIRTUAL_HOST);
    for (_, tables) in resources.iter_mut().filter(|(kind, _)| *kind == types::ROUTE) {
        tables.iter_mut().for_each(|table| *table = completed(table, &hosts));
    }
    Some(Dump { resources })
}

/// The name table of the proxy whose ID is, or contains, `id`; the inner value is `None` if its agent has not requested
/// it. `None` if no such proxy is connected.
pub(crate) fn names(core: &Core, id: &str) -> Option<Option<Resource>> {
    let stream = stream_of(core, id)?;
    Some(core.hub.resources(stream, types::NAME_TABLE).pop())
}

/// A name table as JSON.
pub(crate) fn names_json(table: Option<&Resource>) -> Value {
    let decoded = table.map(|table| protos::json(types::NAME_TABLE.type_url, table.body()));
    decoded.and_then(Result::ok).unwrap_or_else(|| json!({}))
}

/// An exact ID takes precedence over a partial match, and a later connection over earlier ones.
fn stream_of(core: &Core, id: &str) -> Option<xds::StreamId> {
    proxy_of(core, id).map(|(stream, _)| stream)
}

/// The stream and the facts of the proxy whose ID is, or contains, `id`.
pub(crate) fn proxy_of(core: &Core, id: &str) -> Option<(xds::StreamId, Arc<Proxy>)> {
    let statuses = core.hub.statuses();
    let exact = statuses.iter().rev().find(|s| &*s.proxy.id == id);
    let found = exact.or_else(|| statuses.iter().rev().find(|s| s.proxy.id.contains(id)))?;
    Some((found.id, found.proxy.clone()))
}

/// Adds the virtual hosts of a route table that were sent over VHDS.
fn completed(table: &Resource, hosts: &[Resource]) -> Resource {
    let own = hosts.iter().filter(|host| collection_of(host.name()) == Some(table.name()));
    let virtual_hosts = own.filter_map(|host| VirtualHost::decode(host.body().clone()).ok()).collect();
    let hosts = RouteConfiguration { virtual_hosts, ..RouteConfiguration::default() };
    // Concatenated protobuf messages merge: repeated fields are appended.
    let mut body = table.body().to_vec();
    body.extend(hosts.encode_to_vec());
    Resource::new(table.name().clone(), body)
}

impl Dump {
    pub(crate) fn into_json(self) -> Value {
        Value::Object(Map::from_iter([(
            "configs".into(),
            self.resources.iter().filter_map(|(k, r)| section(*k, r)).collect(),
        )]))
    }
}

/// The sections of the dump: the message, its repeated field, and the field of an item that holds the resource.
const SECTIONS: [(ResourceType, &str, &str, &str); 6] = [
    (types::CLUSTER, "ClustersConfigDump", "dynamicActiveClusters", "cluster"),
    (types::ENDPOINTS, "EndpointsConfigDump", "dynamicEndpointConfigs", "endpointConfig"),
    (types::LISTENER, "ListenersConfigDump", "dynamicListeners", "listener"),
    (types::ROUTE, "RoutesConfigDump", "dynamicRouteConfigs", "routeConfig"),
    (types::EXTENSION, "EcdsConfigDump", "ecdsFilters", "ecdsFilter"),
    (types::SECRET, "SecretsConfigDump", "dynamicActiveSecrets", "secret"),
];

fn section(kind: ResourceType, resources: &[Resource]) -> Option<Value> {
    // Envoy shows virtual hosts in their route tables, and has no name tables.
    let (_, message, list, field) = SECTIONS.into_iter().find(|(of, ..)| *of == kind)?;
    let entries: Value = resources.iter().map(|resource| entry(kind, field, resource)).collect();
    Some(json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{message}"), list: entries}))
}

fn entry(kind: ResourceType, field: &str, resource: &Resource) -> Value {
    let version = resource.version().to_string();
    if kind == types::SECRET {
        // The content is omitted, because it includes private keys.
        return json!({"name": &**resource.name(), "versionInfo": version});
    }
    let body = match protos::json(kind.type_url, resource.body()) {
        Ok(Value::Object(mut fields)) => {
            fields.insert("@type".into(), kind.type_url.into());
            Value::Object(fields)
        }
        Ok(other) => other,
        Err(error) => json!({"name": &**resource.name(), "error": error.to_string()}),
    };
    match kind == types::LISTENER {
        true => {
            json!({"name": &**resource.name(), "activeState": {"versionInfo": version, field: body}})
        }
        false => json!({"versionInfo": version, field: body}),
    }
}
