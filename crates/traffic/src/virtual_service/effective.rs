//! Effective VirtualServices: full names of hosts and gateways, delegates replaced by their routes.

use std::sync::Arc;

use config::Object;
use config::istio::{Delegate, Destination, HttpRoute, VirtualService};
use flow::Reads;
use model::service::ObjectId;
use names::Hostname;
use registry::VirtualServices;
use registry::inputs::{Mesh, MeshSettings};

use super::delegate;

flow::rule! {
    /// VirtualServices with hosts. Short names are expanded, gateways are `namespace/name` or `mesh`, and delegating routes
    /// are replaced by the delegate's routes.
    ///
    /// A route is omitted if its delegate does not exist or is not exported to the namespace of the VirtualService.
    pub EffectiveVirtualServices: ObjectId => Arc<Object<VirtualService>> = "effective virtual services", derive_effective_virtual_services;
}

fn derive_effective_virtual_services(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Object<VirtualService>>> {
    let object = cx.get::<VirtualServices>(key)?;
    if object.spec.is_delegate() {
        return None;
    }
    let mesh = cx.get::<Mesh>(&())?;
    let mut spec = with_full_names(&object.spec, &key.namespace, &mesh);
    if spec.http.iter().any(|route| route.delegate.is_some()) {
        spec.http = spec.http.into_iter().flat_map(|route| delegated(cx, &mesh, key, route)).collect();
    }
    if spec == object.spec {
        // Most names are full already: share one copy.
        return Some((*object).clone());
    }
    Some(Arc::new(Object { meta: object.meta.clone(), spec, raw: object.raw.clone() }))
}

/// The route itself, or the routes of its delegate.
fn delegated(cx: &Reads<'_>, mesh: &MeshSettings, root: &ObjectId, route: HttpRoute) -> Vec<HttpRoute> {
    match &route.delegate {
        None => vec![route],
        Some(delegate) => match found(cx, mesh, root, delegate) {
            Ok((id, object)) => delegate::merge(&route, with_full_names(&object.spec, &id.namespace, mesh).http),
            Err(_) => Vec::new(),
        },
    }
}

/// The delegate of a route, or the reason why it cannot be used.
fn found(
    cx: &Reads<'_>,
    mesh: &MeshSettings,
    root: &ObjectId,
    delegate: &Delegate,
) -> Result<(ObjectId, Arc<Object<VirtualService>>), String> {
    let namespace = match delegate.namespace.is_empty() {
        true => &root.namespace,
        false => &delegate.namespace,
    };
    let id = ObjectId { namespace: namespace.clone(), name: delegate.name.clone() };
    let named = format!("VirtualService {}/{}", id.namespace, id.name);
    let Some(object) = cx.get::<VirtualServices>(&id) else {
        return Err(format!("there is no {named}"));
    };
    if !object.spec.is_delegate() {
        return Err(format!("{named} has hosts, and is no delegate"));
    }
    let default = &mesh.config.default_virtual_service_export_to;
    let export_to = registry::services::export_to(&object.spec.export_to, default, &id.namespace);
    if !export_to.includes(&root.namespace) {
        return Err(format!("{named} is not exported to the namespace {}", root.namespace));
    }
    Ok((id, (*object).clone()))
}

/// The HTTP routes of a VirtualService whose delegate cannot be used, with the reason.
pub(crate) fn missing_delegates(cx: &Reads<'_>, key: &ObjectId) -> Vec<(usize, String)> {
    let (Some(object), Some(mesh)) = (cx.get::<VirtualServices>(key), cx.get::<Mesh>(&())) else {
        return Vec::new();
    };
    let routes = object.spec.http.iter().enumerate();
    let delegates = routes.filter_map(|(index, route)| Some((index, route.delegate.as_ref()?)));
    delegates.filter_map(|(index, delegate)| Some((index, found(cx, &mesh, key, delegate).err()?))).collect()
}

/// The specification with full names of hosts and gateways, for an object of this namespace. Routes keep their places.
fn with_full_names(spec: &VirtualService, namespace: &str, mesh: &MeshSettings) -> VirtualService {
    let mut out = spec.clone();
    let host = |text: &mut Arc<str>| {
        if let Ok(full) = Hostname::resolve(text, namespace, &mesh.domain) {
            *text = full.as_arc().clone();
        }
    };
    let gateways = |names: &mut Vec<Arc<str>>| {
        for name in names {
            *name = VirtualService::full_gateway(name, namespace);
        }
    };
    let destination = |d: &mut Destination| host(&mut d.host);
    out.hosts.iter_mut().for_each(host);
    gateways(&mut out.gateways);
    for route in &mut out.http {
        route.matches.iter_mut().for_each(|m| gateways(&mut m.gateways));
        route.route.iter_mut().for_each(|r| destination(&mut r.destination));
        route.mirror.iter_mut().for_each(destination);
        route.mirrors.iter_mut().for_each(|m| destination(&mut m.destination));
    }
    for route in &mut out.tcp {
        route.matches.iter_mut().for_each(|m| gateways(&mut m.gateways));
        route.route.iter_mut().for_each(|r| destination(&mut r.destination));
    }
    for route in &mut out.tls {
        route.matches.iter_mut().for_each(|m| gateways(&mut m.gateways));
        route.route.iter_mut().for_each(|r| destination(&mut r.destination));
    }
    out
}
