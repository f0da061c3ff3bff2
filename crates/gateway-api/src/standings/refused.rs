//! Objects that validation refuses as a whole, and that have no valid version: their status says so.
//!
//! Only the parents of such an object are read ([`config::parents_of`]). The status writer knows the error, and puts it in place of
//! the messages here.

use std::sync::Arc;

use config::Kind;
use config::gateway_api::reference::ParentReference;
use flow::Reads;
use model::kube::{ListenerOwner, RouteId};
use model::service::ObjectId;
use model::standing::{CONTROLLERS, Fact, ParentStanding, Standing, StandingBody, condition};
use registry::inputs::{RefusedObjects, SelectedNamespaces};

use super::ancestors::{self, Conditions, PolicyTarget};
use super::dropped::UNSUPPORTED_VALUE;
use super::routes::GatewayControllers;
use crate::attach::owner_of;
use crate::backend_policy::target;
use crate::class::{Class, KnownClasses};
use crate::grants::GROUP;
use crate::merged::ListenersByOwner;
use crate::mesh;
use crate::plan::OwnPlans;

/// The reason of conditions of objects other than routes.
const INVALID: &str = "Invalid";

/// The parents of an object that validation refuses; none if it does not.
fn parents(cx: &Reads<'_>, kind: Kind, id: &ObjectId) -> Option<Arc<[ParentReference]>> {
    let parents = cx.get::<RefusedObjects>(&(kind, id.clone()))?;
    cx.get::<SelectedNamespaces>(&(Arc::default(), id.namespace.clone()))?;
    Some((*parents).clone())
}

/// Facts about a route that validation refuses; none if it does not.
pub(super) fn route(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<Standing>> {
    let references = parents(cx, Kind::find(GROUP, id.kind.name())?, &id.id)?;
    let parents = references.iter().filter_map(|parent| {
        let controller = controller(cx, parent, &id.id.namespace)?;
        let refused = Fact::no(condition::ACCEPTED, UNSUPPORTED_VALUE, "validation refuses the route");
        Some(ParentStanding { parent: parent.clone(), controller, conditions: vec![refused] })
    });
    let body = StandingBody::Route { parents: parents.collect() };
    Some(Arc::new(Standing { conditions: Vec::new(), body }))
}

/// The controller that writes the entry of a parent; none for Gateways of other controllers.
fn controller(cx: &Reads<'_>, parent: &ParentReference, namespace: &Arc<str>) -> Option<&'static str> {
    if mesh::is_service(parent) {
        return Some(CONTROLLERS[0]);
    }
    let owner = owner_of(parent, namespace)?;
    let gateway = cx.get::<ListenersByOwner>(&owner)?.gateway.clone();
    cx.get::<GatewayControllers>(&gateway).map(|controller| *controller)
}

/// Facts about a Gateway that validation refuses; none if it does not, or if its class is not known.
pub(super) fn gateway(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    class(cx, id)?;
    let body = StandingBody::Gateway { addresses: Vec::new(), services: Vec::new(), listeners: Vec::new(), sets: None };
    Some(Arc::new(Standing { conditions: conditions("validation refuses the Gateway"), body }))
}

/// The class of a Gateway that validation refuses.
fn class(cx: &Reads<'_>, id: &ObjectId) -> Option<Class> {
    let class = parents(cx, Kind::KubeGateway, id)?.first()?.name.clone();
    cx.get::<KnownClasses>(&class).map(|class| *class)
}

/// Whether validation refuses a Gateway of a served class that has no valid version.
pub(super) fn is_gateway_of_served_class(cx: &Reads<'_>, id: &ObjectId) -> bool {
    matches!(class(cx, id), Some(Class::Served(_)))
}

/// Facts about a ListenerSet that validation refuses; none if it does not, or if its Gateway is not of a served class.
pub(super) fn set(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let parents = parents(cx, Kind::ListenerSet, id)?;
    let ListenerOwner::Gateway(gateway) = owner_of(parents.first()?, &id.namespace)? else { return None };
    if !cx.contains::<OwnPlans>(&gateway) && !is_gateway_of_served_class(cx, &gateway) {
        return None;
    }
    let body = StandingBody::ListenerSet { listeners: Vec::new() };
    Some(Arc::new(Standing { conditions: conditions("validation refuses the ListenerSet"), body }))
}

/// The conditions of an object that is neither accepted nor programmed.
fn conditions(message: &'static str) -> Vec<Fact> {
    [condition::ACCEPTED, condition::PROGRAMMED].map(|kind| Fact::no(kind, INVALID, message)).into()
}

/// Facts about a policy that validation refuses, at the ancestors by its targets that can be read; none if it does not.
pub(super) fn policy(cx: &Reads<'_>, kind: Kind, id: &ObjectId) -> Option<Arc<Standing>> {
    let targets = parents(cx, kind, id)?;
    let targets = targets.iter().filter_map(|one| {
        let key = target(&id.namespace, (&one.group, &one.kind), &one.name)?;
        let section = one.section_name.clone().filter(|_| kind == Kind::BackendTlsPolicy);
        Some((PolicyTarget { key, section }, None))
    });
    let targets: Vec<(PolicyTarget, Option<Fact>)> = targets.collect();
    let accepted = Fact::no(condition::ACCEPTED, INVALID, "validation refuses the policy");
    let ancestors = ancestors::of(cx, &targets, &Conditions { accepted, others: Vec::new() });
    Some(Arc::new(Standing { conditions: Vec::new(), body: StandingBody::Policy { ancestors } }))
}
