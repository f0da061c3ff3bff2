//! Gateways and VirtualServices, including those that Ingresses are translated to.

use std::sync::Arc;

use config::Object;
use config::istio::{Gateway, VirtualService};
use flow::Reads;
use model::service::ObjectId;

use crate::ingress;
use crate::inputs::{RoutingKey, RoutingKind, RoutingObject, RoutingObjects};

flow::index! {
    /// Source of a Gateway: the object or an Ingress.
    pub GatewaySources: ObjectId => members of RoutingObjects = "sources of gateways", gateway_sources_keys;
}

fn gateway_sources_keys(key: &RoutingKey, _: &RoutingObject) -> Vec<ObjectId> {
    match key.kind {
        RoutingKind::Gateway => vec![key.id.clone()],
        RoutingKind::VirtualService => Vec::new(),
        RoutingKind::Ingress => vec![ingress::gateway_id(&key.id)],
    }
}

flow::index! {
    /// Source of a VirtualService: the object or all Ingresses with its host.
    pub VirtualServiceSources: ObjectId => members of RoutingObjects = "sources of virtual services", virtual_service_sources_keys;
}

fn virtual_service_sources_keys(key: &RoutingKey, row: &RoutingObject) -> Vec<ObjectId> {
    match row {
        RoutingObject::Gateway(_) => Vec::new(),
        RoutingObject::VirtualService(_) => vec![key.id.clone()],
        RoutingObject::Ingress(object) => ingress::hosts(&object.spec).map(ingress::route_id).collect(),
    }
}

flow::rule! {
    /// All Istio Gateways. A user's object replaces a generated one with the same name.
    pub Gateways: ObjectId => Arc<Object<Gateway>> = "gateways", derive_gateways;
}

fn derive_gateways(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Object<Gateway>>> {
    let sources = cx.get::<GatewaySources>(key)?;
    match cx.get::<RoutingObjects>(sources.iter().next()?).as_deref()? {
        RoutingObject::Gateway(object) => Some(object.clone()),
        RoutingObject::Ingress(object) => ingress::gateway(cx, key, object),
        RoutingObject::VirtualService(_) => None,
    }
}

flow::rule! {
    /// All VirtualServices. A user's object replaces a generated one with the same name.
    pub VirtualServices: ObjectId => Arc<Object<VirtualService>> = "virtual services", derive_virtual_services;
}

fn derive_virtual_services(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Object<VirtualService>>> {
    let sources = cx.get::<VirtualServiceSources>(key)?;
    let mut ingresses = Vec::new();
    for source in sources.iter() {
        match cx.get::<RoutingObjects>(source).as_deref()? {
            RoutingObject::VirtualService(object) => return Some(object.clone()),
            RoutingObject::Ingress(object) => ingresses.push(object.clone()),
            RoutingObject::Gateway(_) => {}
        }
    }
    ingress::routes(cx, key, ingresses)
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<GatewaySources>();
    b.index::<VirtualServiceSources>();
    b.world::<Gateways, GatewaySources>();
    b.world::<VirtualServices, VirtualServiceSources>();
}
