//! ListenerSets, and the Gateways that allow them.

use std::sync::Arc;

use config::gateway_api::{FromListenerNamespaces, ListenerSet};
use config::{Object, Timestamp};
use flow::Reads;
use model::service::ObjectId;
use registry::inputs::{ListenerSets, namespace_labels};

use crate::grants::GROUP;
use crate::plan::{self, ListenerPlan, OwnPlan, OwnPlans};

/// A ListenerSet, without regard to its Gateway.
#[derive(Clone, PartialEq, Debug)]
pub struct SetPlan {
    /// The Gateway that it adds to. It need not exist.
    pub gateway: ObjectId,
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// The listeners, in their order.
    pub listeners: Arc<[ListenerPlan]>,
}

flow::rule! {
    /// The ListenerSets with a Gateway as their parent.
    pub SetPlans: ObjectId => Arc<SetPlan> = "plans of listener sets", derive_set;
    /// The namespaces of the ListenerSets that a Gateway of a served class allows. A relation of its own, so that other changes of
    /// Gateways stop here.
    pub AllowedNamespacesOfSets: ObjectId => FromListenerNamespaces = "namespaces of listener sets", derive_namespaces;
    /// Namespaces that a Gateway's selector of ListenerSets selects.
    pub SelectedForSets: (ObjectId, Arc<str>) => () = "namespaces that gateways select", derive_selected;
    /// The ListenerSets that their Gateway allows, each with it.
    pub AllowedSets: ObjectId => ObjectId = "allowed listener sets", derive_allowed;
}

flow::index! {
    /// Allowed ListenerSets by Gateway.
    pub SetsByGateway: ObjectId => members of AllowedSets = "listener sets by gateway", sets_by_gateway_keys;
}

fn derive_set(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<SetPlan>> {
    let object: Arc<Object<ListenerSet>> = (*cx.get::<ListenerSets>(id)?).clone();
    let parent = &object.spec.parent_ref;
    if &*parent.group != GROUP || &*parent.kind != "Gateway" {
        return None;
    }
    let namespace = parent.namespace.as_ref().unwrap_or(&id.namespace).clone();
    Some(Arc::new(SetPlan {
        gateway: ObjectId { namespace, name: parent.name.clone() },
        created: object.meta.creation_timestamp,
        // Only Gateways connect networks without being asked.
        listeners: plan::listeners(&object.spec.listeners, false),
    }))
}

fn derive_namespaces(cx: &Reads<'_>, gateway: &ObjectId) -> Option<FromListenerNamespaces> {
    cx.with::<OwnPlans, _>(gateway, |plan: Option<&Arc<OwnPlan>>| plan.map(drop))?;
    let object = plan::object(cx, gateway)?;
    Some(object.spec.allowed_listeners.as_ref()?.namespaces.from)
}

fn derive_selected(cx: &Reads<'_>, (gateway, namespace): &(ObjectId, Arc<str>)) -> Option<()> {
    let object = plan::object(cx, gateway)?;
    // Without a selector, no namespace is selected.
    let selector = object.spec.allowed_listeners.as_ref()?.namespaces.selector.as_ref()?;
    let labels = namespace_labels(cx, &(Arc::default(), namespace.clone()));
    selector.matches(&labels).then_some(())
}

fn derive_allowed(cx: &Reads<'_>, id: &ObjectId) -> Option<ObjectId> {
    let gateway = cx.with::<SetPlans, _>(id, |plan| plan.map(|plan| plan.gateway.clone()))?;
    let allowed = match *cx.get::<AllowedNamespacesOfSets>(&gateway)? {
        FromListenerNamespaces::None => false,
        FromListenerNamespaces::Same => gateway.namespace == id.namespace,
        FromListenerNamespaces::All => true,
        FromListenerNamespaces::Selector => cx.contains::<SelectedForSets>(&(gateway.clone(), id.namespace.clone())),
    };
    allowed.then_some(gateway)
}

fn sets_by_gateway_keys(_: &ObjectId, gateway: &ObjectId) -> Vec<ObjectId> {
    vec![gateway.clone()]
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<SetPlans, ListenerSets>();
    b.view::<AllowedNamespacesOfSets>();
    b.view::<SelectedForSets>();
    b.world::<AllowedSets, SetPlans>();
    b.index::<SetsByGateway>();
}
