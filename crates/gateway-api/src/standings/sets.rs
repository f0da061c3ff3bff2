//! ListenerSets: whether their Gateway allows them, and their listeners.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::kube::ListenerOwner;
use model::service::ObjectId;
use model::standing::{Fact, Standing, StandingBody, condition};
use registry::Services;
use registry::inputs::ListenerSets;

use super::gateways::{GatewayFacts, NOT_VALID};
use super::listeners::{Judged, judge_all};
use super::refused;
use crate::binding::GatewayServices;
use crate::merged::ListenersByOwner;
use crate::plan::{ListenerPlan, OwnPlans};
use crate::sets::{AllowedSets, SetPlans};

/// A host of a Gateway's service, with its ports.
type ServicePorts = (Arc<str>, BTreeSet<u16>);

flow::rule! {
    /// Facts about ListenerSets whose Gateway exists and is of a served class.
    pub SetStandings: ObjectId => Arc<Standing> = "standings of listener sets", derive_set_standing;
    /// Accepted ListenerSets. A relation of its own, so that other changes of them stop here.
    pub(super) AcceptedSets: ObjectId => () = "accepted listener sets", derive_accepted;
    /// Whether a Gateway is accepted. A relation of its own, so that other changes of it stop here.
    pub(super) AcceptedGateways: ObjectId => () = "accepted gateways of the gateway api", derive_accepted_gateway;
    /// The existing services of a Gateway.
    pub(super) PortsOfGateway: ObjectId => Arc<[ServicePorts]> = "ports of gateways of the gateway api", derive_ports;
}

fn derive_accepted(cx: &Reads<'_>, id: &ObjectId) -> Option<()> {
    is_accepted(&cx.get::<SetStandings>(id)?.conditions)
}

fn derive_accepted_gateway(cx: &Reads<'_>, id: &ObjectId) -> Option<()> {
    is_accepted(&cx.get::<GatewayFacts>(id)?.conditions)
}

fn is_accepted(conditions: &[Fact]) -> Option<()> {
    conditions.iter().any(|fact| fact.kind == condition::ACCEPTED && fact.holds).then_some(())
}

fn derive_ports(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<[ServicePorts]>> {
    let services = cx.get::<GatewayServices>(id)?;
    let ports = services.iter().filter_map(|key| {
        let service = cx.get::<Services>(key)?;
        Some((key.hostname.as_arc().clone(), service.ports.iter().map(|port| port.number).collect()))
    });
    Some(ports.collect())
}

fn derive_set_standing(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let Some(object) = cx.get::<ListenerSets>(id) else { return refused::set(cx, id) };
    let gateway = cx.with::<SetPlans, _>(id, |plan| plan.map(|plan| plan.gateway.clone()))?;
    let parent_is_not_accepted = || {
        let message = format!("the Gateway {gateway} is not accepted");
        both("ParentNotAccepted", "ParentNotProgrammed", message)
    };
    if !cx.contains::<OwnPlans>(&gateway) {
        let is_refused = refused::is_gateway_of_served_class(cx, &gateway);
        return is_refused.then(|| Arc::new(standing(parent_is_not_accepted(), Vec::new())));
    }
    if !cx.contains::<AllowedSets>(id) {
        let message = format!("the Gateway {gateway} does not allow ListenerSets of namespace {:?}", id.namespace);
        return Some(Arc::new(standing(both("NotAllowed", "NotAllowed", message), Vec::new())));
    }
    let owner = ListenerOwner::ListenerSet(id.clone());
    let mut judged = judge_all(cx, &owner, &object.spec.listeners)?;
    let plans = cx.get::<ListenersByOwner>(&owner)?;
    let ports = cx.get::<PortsOfGateway>(&gateway);
    let ports: &[ServicePorts] = ports.as_deref().map(|row| &**row).unwrap_or_default();
    let mut missing = Vec::new();
    for one in judged.iter_mut().filter(|one| one.is_valid) {
        let plan = plans.listeners.iter().find(|plan| plan.name == one.standing.name);
        let Some(problem) = plan.and_then(|plan| without_port(plan, ports)) else { continue };
        one.standing.conditions.push(problem.clone());
        missing.push(problem);
    }
    let conditions = match cx.contains::<AcceptedGateways>(&gateway) {
        true => conditions(&judged, missing),
        false => parent_is_not_accepted(),
    };
    Some(Arc::new(standing(conditions, judged)))
}

fn standing(conditions: Vec<Fact>, judged: Vec<Judged>) -> Standing {
    let listeners = judged.into_iter().map(|one| one.standing).collect();
    Standing { conditions, body: StandingBody::ListenerSet { listeners } }
}

/// The conditions of a ListenerSet that is neither accepted nor programmed.
fn both(accepted: &'static str, programmed: &'static str, message: String) -> Vec<Fact> {
    let message: Arc<str> = message.into();
    vec![Fact::no(condition::ACCEPTED, accepted, message.clone()), Fact::no(condition::PROGRAMMED, programmed, message)]
}

/// The condition of a listener whose port a service of the Gateway lacks.
fn without_port(plan: &ListenerPlan, services: &[ServicePorts]) -> Option<Fact> {
    let (host, _) = services.iter().find(|(_, ports)| !ports.contains(&plan.port))?;
    let message = format!("port {} not found for hostname {host:?}", plan.port);
    Some(Fact::no(condition::PROGRAMMED, "PortUnavailable", message))
}

/// The conditions of a ListenerSet with an accepted Gateway; `missing` are problems with ports.
fn conditions(judged: &[Judged], missing: Vec<Fact>) -> Vec<Fact> {
    let valid = judged.iter().filter(|one| one.is_valid).count();
    let accepted = match valid {
        0 => return both(NOT_VALID, NOT_VALID, "None of the ListenerSet's listeners are valid".to_owned()),
        some if some < judged.len() => {
            Fact::yes(condition::ACCEPTED, NOT_VALID, "One or more of the ListenerSet's listeners are invalid")
        }
        _ => Fact::yes(condition::ACCEPTED, "Accepted", "Resource accepted"),
    };
    let mut conditions = vec![accepted];
    if let Some(first) = missing.first() {
        let messages: BTreeSet<&str> = missing.iter().map(|problem| &*problem.message).collect();
        let messages: Vec<&str> = messages.into_iter().collect();
        conditions.push(Fact { message: messages.join("; ").into(), ..first.clone() });
    }
    conditions
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<AcceptedGateways>();
    b.view::<PortsOfGateway>();
    b.view::<SetStandings>();
    b.view::<AcceptedSets>();
}
