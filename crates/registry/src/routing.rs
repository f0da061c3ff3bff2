//! Gateways and VirtualServices, including those that Ingresses are translated to.

use std::sync::Arc;

use config::Object;
use config::istio::{Gateway, VirtualService};
use flow::{Index, Members, Reads, Relation, Rule};
use model::service::ObjectId;

use crate::ingress;
use crate::inputs::{RoutingKey, RoutingKind, RoutingObject, RoutingObjects};

/// Source of a Gateway: the object or an Ingress.
pub struct GatewaySources;

impl Relation for GatewaySources {
    const NAME: &'static str = "sources of gateways";
    type Key = ObjectId;
    type Row = Members<RoutingKey>;
}

impl Index for GatewaySources {
    type Of = RoutingObjects;
    fn keys(key: &RoutingKey, _: &RoutingObject) -> Vec<ObjectId> {
        match key.kind {
            RoutingKind::Gateway => vec![key.id.clone()],
            RoutingKind::VirtualService => Vec::new(),
            RoutingKind::Ingress => vec![ingress::gateway_id(&key.id)],
        }
    }
}

/// Source of a VirtualService: the object or all Ingresses with its host.
pub struct VirtualServiceSources;

impl Relation for VirtualServiceSources {
    const NAME: &'static str = "sources of virtual services";
    type Key = ObjectId;
    type Row = Members<RoutingKey>;
}

impl Index for VirtualServiceSources {
    type Of = RoutingObjects;
    fn keys(key: &RoutingKey, row: &RoutingObject) -> Vec<ObjectId> {
        match row {
            RoutingObject::Gateway(_) => Vec::new(),
            RoutingObject::VirtualService(_) => vec![key.id.clone()],
            RoutingObject::Ingress(object) => ingress::hosts(&object.spec).map(ingress::route_id).collect(),
        }
    }
}

/// All Istio Gateways. A user's object replaces a generated one with the same name.
pub struct Gateways;

impl Relation for Gateways {
    const NAME: &'static str = "gateways";
    type Key = ObjectId;
    type Row = Arc<Object<Gateway>>;
}

impl Rule for Gateways {
    fn derive(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Object<Gateway>>> {
        let sources = cx.get::<GatewaySources>(key)?;
        match cx.get::<RoutingObjects>(sources.iter().next()?).as_deref()? {
            RoutingObject::Gateway(object) => Some(object.clone()),
            RoutingObject::Ingress(object) => ingress::gateway(cx, key, object),
            RoutingObject::VirtualService(_) => None,
        }
    }
}

/// All VirtualServices. A user's object replaces a generated one with the same name.
pub struct VirtualServices;

impl Relation for VirtualServices {
    const NAME: &'static str = "virtual services";
    type Key = ObjectId;
    type Row = Arc<Object<VirtualService>>;
}

impl Rule for VirtualServices {
    fn derive(cx: &Reads<'_>, key: &ObjectId) -> Option<Arc<Object<VirtualService>>> {
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
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<GatewaySources>();
    b.index::<VirtualServiceSources>();
    b.world::<Gateways, GatewaySources>();
    b.world::<VirtualServices, VirtualServiceSources>();
}
