//! The listeners of Gateways with those of their ListenerSets.
//!
//! A part of a plan is the `Arc` of its object, unless conflicts with other objects change it. A change of a ListenerSet merges the
//! parts again, and whatever depends on the listeners of one object alone stays.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Timestamp;
use flow::Reads;
use model::kube::ListenerOwner;
use model::service::ObjectId;
use names::Hostname;

use crate::conflict::Claims;
use crate::plan::{ListenerPlan, ListenerProtocol, OwnPlans};
use crate::route;
use crate::sets::{SetPlans, SetsByGateway};

/// A Gateway of a served class, with all of its listeners.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayPlan {
    /// The listeners by object, in order of precedence: those of the Gateway, then those of its ListenerSets by age.
    parts: Vec<(ListenerOwner, Arc<[ListenerPlan]>)>,
    /// The position of each ListenerSet.
    sets: BTreeMap<ObjectId, usize>,
}

impl GatewayPlan {
    /// All listeners, each with its object, in order of precedence.
    pub fn listeners(&self) -> impl Iterator<Item = (&ListenerOwner, &ListenerPlan)> {
        self.parts.iter().flat_map(|(owner, listeners)| listeners.iter().map(move |listener| (owner, listener)))
    }

    fn part(&self, owner: &ListenerOwner) -> Option<&Arc<[ListenerPlan]>> {
        let at = match owner {
            ListenerOwner::Gateway(_) => 0,
            ListenerOwner::ListenerSet(id) => *self.sets.get(id)?,
        };
        self.parts.get(at).map(|(_, listeners)| listeners)
    }
}

/// The listeners of one object, with their conflicts.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnedListeners {
    /// The Gateway.
    pub gateway: ObjectId,
    /// The listeners, in their order. None for a ListenerSet that the Gateway does not allow.
    pub listeners: Arc<[ListenerPlan]>,
}

/// A hostname of the listeners of a Gateway that share a port.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PortHost {
    gateway: ObjectId,
    port: u16,
    /// Listeners that are selected by SNI count as one protocol.
    protocol: ListenerProtocol,
    host: Hostname,
}

impl PortHost {
    /// A hostname beside a listener.
    pub fn of(gateway: &ObjectId, listener: &ListenerPlan, host: &Hostname) -> PortHost {
        let protocol = if listener.protocol.is_by_name() { ListenerProtocol::Https } else { listener.protocol };
        PortHost { gateway: gateway.clone(), port: listener.port, protocol, host: host.clone() }
    }
}

flow::rule! {
    /// The Gateways of served classes, with all of their listeners.
    pub GatewayPlans: ObjectId => Arc<GatewayPlan> = "plans of gateways of the gateway api", derive_plan;
    /// The listeners of a Gateway, or of a ListenerSet whose Gateway exists. A relation of its own, so that changes of other objects of
    /// the Gateway stop here.
    pub ListenersByOwner: ListenerOwner => OwnedListeners = "listeners by object", derive_owned;
}

flow::index! {
    /// The hostnames of served listeners.
    pub HostsOfPort: PortHost => members of GatewayPlans = "hostnames by port", hosts_of_port_keys;
}

fn derive_plan(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<GatewayPlan>> {
    let own = cx.get::<OwnPlans>(id)?;
    let mut claims = Claims::default();
    let mut parts = vec![(ListenerOwner::Gateway(id.clone()), claims.add(&own.listeners))];
    let mut dated: Vec<(Option<Timestamp>, ObjectId, Arc<[ListenerPlan]>)> = Vec::new();
    for set in cx.get::<SetsByGateway>(id).iter().flat_map(|all| all.iter()) {
        let Some(plan) = cx.get::<SetPlans>(set) else { continue };
        dated.push((plan.created, set.clone(), plan.listeners.clone()));
    }
    dated.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| route::by_name(&a.1, &b.1)));
    let mut sets = BTreeMap::new();
    for (_, set, listeners) in dated {
        sets.insert(set.clone(), parts.len());
        parts.push((ListenerOwner::ListenerSet(set), claims.add(&listeners)));
    }
    Some(Arc::new(GatewayPlan { parts, sets }))
}

fn derive_owned(cx: &Reads<'_>, owner: &ListenerOwner) -> Option<OwnedListeners> {
    let gateway = match owner {
        ListenerOwner::Gateway(id) => id.clone(),
        ListenerOwner::ListenerSet(id) => cx.with::<SetPlans, _>(id, |plan| plan.map(|plan| plan.gateway.clone()))?,
    };
    let plan = cx.get::<GatewayPlans>(&gateway)?;
    Some(OwnedListeners { gateway, listeners: plan.part(owner).cloned().unwrap_or_default() })
}

fn hosts_of_port_keys(id: &ObjectId, plan: &Arc<GatewayPlan>) -> Vec<PortHost> {
    let served = plan.listeners().filter(|(_, listener)| listener.is_served());
    served.map(|(_, listener)| PortHost::of(id, listener, &listener.hostname)).collect()
}

/// The listeners of an object without regard to other objects.
pub(crate) fn own_listeners(cx: &Reads<'_>, owner: &ListenerOwner) -> Option<Arc<[ListenerPlan]>> {
    match owner {
        ListenerOwner::Gateway(id) => cx.with::<OwnPlans, _>(id, |plan| plan.map(|plan| plan.listeners.clone())),
        ListenerOwner::ListenerSet(id) => cx.with::<SetPlans, _>(id, |plan| plan.map(|plan| plan.listeners.clone())),
    }
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.world::<GatewayPlans, OwnPlans>();
    b.view::<ListenersByOwner>();
    b.index::<HostsOfPort>();
}
