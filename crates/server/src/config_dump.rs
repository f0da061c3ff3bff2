//! `/debug/config_dump`: all that one proxy has, in the form of Envoy's admin interface.

use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::{Resource, ResourceType, collection_of};
use protos::Message as _;
use protos::envoy::config::endpoint::v3::locality_lb_endpoints::LbConfig;
use protos::envoy::config::endpoint::v3::{ClusterLoadAssignment, LbEndpoint};
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use serde_json::{Map, Value, json};

use crate::world_handle::Core;

/// A proxy's resources, not decoded yet.
pub(crate) struct Dump {
    resources: Vec<(ResourceType, Vec<Resource>)>,
}

/// Gathers the resources of the proxy whose id is, or contains, `id`. None: no such proxy is connected.
pub(crate) fn gather(core: &Core, id: &str) -> Option<Dump> {
    let stream = stream_of(core, id)?;
    let mut resources: Vec<(ResourceType, Vec<Resource>)> = ResourceType::ALL
        .into_iter()
        .map(|kind| (kind, core.hub.resources(stream, kind)))
        .collect();
    let hosts = core.hub.resources(stream, ResourceType::VirtualHost);
    for (_, tables) in resources.iter_mut().filter(|(kind, _)| *kind == ResourceType::Route) {
        tables.iter_mut().for_each(|table| *table = completed(table, &hosts));
    }
    let single = core.hub.resources(stream, ResourceType::LbEndpoint);
    if !single.is_empty() {
        for (_, assignments) in resources
            .iter_mut()
            .filter(|(kind, _)| *kind == ResourceType::Endpoints)
        {
            assignments.iter_mut().for_each(|one| *one = filled(one, &single));
        }
    }
    Some(Dump { resources })
}

/// The name table of the proxy whose id is, or contains, `id`: none if its agent has not asked for it. `None`: no such proxy
/// is connected.
pub(crate) fn names(core: &Core, id: &str) -> Option<Option<Resource>> {
    let stream = stream_of(core, id)?;
    Some(core.hub.resources(stream, ResourceType::NameTable).pop())
}

/// A name table as JSON.
pub(crate) fn names_json(table: Option<&Resource>) -> Value {
    let decoded = table.map(|table| protos::json(ResourceType::NameTable.type_url(), table.body()));
    decoded.and_then(Result::ok).unwrap_or_else(|| json!({}))
}

/// An exact id wins over one that only contains the text; of several the last that connected.
fn stream_of(core: &Core, id: &str) -> Option<xds::StreamId> {
    proxy_of(core, id).map(|(stream, _)| stream)
}

/// The stream of the proxy whose id is, or contains, `id`, and what the proxy is.
pub(crate) fn proxy_of(core: &Core, id: &str) -> Option<(xds::StreamId, Arc<Proxy>)> {
    let statuses = core.hub.statuses();
    let exact = statuses.iter().rev().find(|s| &*s.proxy.id == id);
    let found = exact.or_else(|| statuses.iter().rev().find(|s| s.proxy.id.contains(id)))?;
    Some((found.id, found.proxy.clone()))
}

/// An assignment with those of these endpoints that are in the collections that it names.
fn filled(assignment: &Resource, single: &[Resource]) -> Resource {
    let Ok(mut message) = ClusterLoadAssignment::decode(assignment.body().clone()) else {
        return assignment.clone();
    };
    for locality in &mut message.endpoints {
        let Some(LbConfig::LedsClusterLocalityConfig(config)) = &locality.lb_config else {
            continue;
        };
        let collection = config.leds_collection_name.strip_suffix("/*");
        let own = single.iter().filter(|one| collection_of(one.name()) == collection);
        locality.lb_endpoints = own
            .filter_map(|one| LbEndpoint::decode(one.body().clone()).ok())
            .collect();
        locality.lb_config = None;
    }
    Resource::new(assignment.name().clone(), message.encode_to_vec())
}

/// A route table with those of these virtual hosts that are its own.
fn completed(table: &Resource, hosts: &[Resource]) -> Resource {
    let own = hosts
        .iter()
        .filter(|host| collection_of(host.name()) == Some(table.name()));
    let virtual_hosts = own
        .filter_map(|host| VirtualHost::decode(host.body().clone()).ok())
        .collect();
    let hosts = RouteConfiguration {
        virtual_hosts,
        ..RouteConfiguration::default()
    };
    // Messages of one type, one behind the other, are one: lists go on.
    let mut body = table.body().to_vec();
    body.extend(hosts.encode_to_vec());
    Resource::new(table.name().clone(), body)
}

impl Dump {
    /// The dump as JSON.
    pub(crate) fn into_json(self) -> Value {
        Value::Object(Map::from_iter([(
            "configs".into(),
            self.resources.iter().filter_map(|(k, r)| section(*k, r)).collect(),
        )]))
    }
}

fn section(kind: ResourceType, resources: &[Resource]) -> Option<Value> {
    let (message, list, field) = match kind {
        ResourceType::Cluster => ("ClustersConfigDump", "dynamicActiveClusters", "cluster"),
        ResourceType::Endpoints => ("EndpointsConfigDump", "dynamicEndpointConfigs", "endpointConfig"),
        ResourceType::Listener => ("ListenersConfigDump", "dynamicListeners", "listener"),
        ResourceType::Route => ("RoutesConfigDump", "dynamicRouteConfigs", "routeConfig"),
        ResourceType::Extension => ("EcdsConfigDump", "ecdsFilters", "ecdsFilter"),
        ResourceType::Secret => ("SecretsConfigDump", "dynamicActiveSecrets", "secret"),
        // Envoy shows them in their tables and assignments. It knows nothing of name tables.
        ResourceType::VirtualHost | ResourceType::LbEndpoint | ResourceType::NameTable => return None,
    };
    let entries: Value = resources.iter().map(|resource| entry(kind, field, resource)).collect();
    Some(json!({"@type": format!("type.googleapis.com/envoy.admin.v3.{message}"), list: entries}))
}

fn entry(kind: ResourceType, field: &str, resource: &Resource) -> Value {
    let version = resource.version().to_string();
    if kind == ResourceType::Secret {
        // Never the content: private keys are in it.
        return json!({"name": &**resource.name(), "versionInfo": version});
    }
    let body = match protos::json(kind.type_url(), resource.body()) {
        Ok(Value::Object(mut fields)) => {
            fields.insert("@type".into(), kind.type_url().into());
            Value::Object(fields)
        }
        Ok(other) => other,
        Err(error) => json!({"name": &**resource.name(), "error": error.to_string()}),
    };
    match kind {
        ResourceType::Listener => {
            json!({"name": &**resource.name(), "activeState": {"versionInfo": version, field: body}})
        }
        _ => json!({"versionInfo": version, field: body}),
    }
}
