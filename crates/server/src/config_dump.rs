//! `/debug/config_dump`: the resources of one proxy, in the form of Envoy's admin interface.

use std::sync::Arc;

use envoy::types;
use model::proxy::Proxy;
use model::xds::{Dump, DumpItem, Resource, ResourceType, collection_of};
use protos::Message as _;
use protos::envoy::config::route::v3::{RouteConfiguration, VirtualHost};
use serde_json::{Value, json};

use crate::core::Core;
use crate::page_data::ProxyResources;

/// The proxy that a client asks for.
pub(crate) struct Wanted {
    /// Its ID, or a part of it.
    pub(crate) id: String,
    /// The only namespace whose proxies the client may see.
    pub(crate) namespace: Option<Arc<str>>,
}

/// The endpoints of a proxy as JSON.
pub(crate) fn endpoints(of: ProxyResources) -> Value {
    of.of(types::ENDPOINTS).iter().map(|resource| body(types::ENDPOINTS, resource)).collect()
}

/// The name table of a proxy as JSON; empty if its agent has not requested it.
pub(crate) fn names(of: ProxyResources) -> Value {
    let table = of.of(types::NAME_TABLE).first();
    let decoded = table.map(|table| protos::json(types::NAME_TABLE.type_url, &table.body()));
    decoded.and_then(Result::ok).unwrap_or_else(|| json!({}))
}

/// The stream and the facts of a proxy. An exact ID takes precedence over a partial match, and a later connection over earlier
/// ones.
pub(crate) fn proxy_of(core: &Core, wanted: &Wanted) -> Option<(xds::StreamId, Arc<Proxy>)> {
    let may_see = |proxy: &Proxy| wanted.namespace.as_ref().is_none_or(|namespace| *namespace == proxy.namespace);
    let found = core.hub.proxies().filter(|(_, proxy)| proxy.id.contains(&*wanted.id) && may_see(proxy));
    let (id, proxy) = found.max_by_key(|(id, proxy)| (*proxy.id == *wanted.id, *id))?;
    Some((id, proxy.clone()))
}

/// Adds the virtual hosts of a route table that were sent over VHDS.
fn completed(table: &Resource, hosts: &[Resource]) -> Resource {
    let own = hosts.iter().filter(|host| collection_of(host.name()) == Some(table.name()));
    let virtual_hosts = own.filter_map(|host| VirtualHost::decode(host.body()).ok()).collect();
    let hosts = RouteConfiguration { virtual_hosts, ..RouteConfiguration::default() };
    // Concatenated protobuf messages merge: repeated fields are appended.
    let mut body = table.body().to_vec();
    body.extend(hosts.encode_to_vec());
    Resource::new(table.name().clone(), body)
}

/// The dump.
pub(crate) fn page(of: ProxyResources) -> Value {
    json!({"configs": sections(of)})
}

/// The sections of the dump, each with its type.
pub(crate) fn sections(mut of: ProxyResources) -> Vec<Value> {
    let hosts = of.of(types::VIRTUAL_HOST).to_vec();
    for (_, tables) in of.0.iter_mut().filter(|(kind, _)| *kind == types::ROUTE) {
        tables.iter_mut().for_each(|table| *table = completed(table, &hosts));
    }
    of.0.iter().filter_map(|(kind, resources)| section(*kind, resources)).collect()
}

fn section(kind: ResourceType, resources: &[Resource]) -> Option<Value> {
    let (message, list) = match kind.dump {
        Dump::Hidden => return None,
        Dump::Generic => ("service.status.v3.ClientConfig".to_owned(), "genericXdsConfigs"),
        Dump::Section { message, list, .. } => (format!("admin.v3.{message}"), list),
    };
    let items: Value = resources.iter().map(|resource| item(kind, resource)).collect();
    Some(json!({"@type": format!("type.googleapis.com/envoy.{message}"), list: items}))
}

fn item(kind: ResourceType, resource: &Resource) -> Value {
    let (name, version) = (&**resource.name(), resource.version().to_string());
    let Dump::Section { item, .. } = kind.dump else {
        let body = body(kind, resource);
        return json!({"typeUrl": kind.type_url, "name": name, "versionInfo": version, "xdsConfig": body});
    };
    match item {
        DumpItem::Resource(field) => json!({"versionInfo": version, field: body(kind, resource)}),
        DumpItem::State(field) => {
            json!({"name": name, "activeState": {"versionInfo": version, field: body(kind, resource)}})
        }
        DumpItem::Name => json!({"name": name, "versionInfo": version}),
    }
}

/// The resource as JSON, with its type.
fn body(kind: ResourceType, resource: &Resource) -> Value {
    match protos::json(kind.type_url, &resource.body()) {
        Ok(Value::Object(mut fields)) => {
            fields.insert("@type".into(), kind.type_url.into());
            Value::Object(fields)
        }
        Ok(other) => other,
        Err(error) => json!({"name": &**resource.name(), "error": error.to_string()}),
    }
}
