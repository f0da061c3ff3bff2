//! Gateways: their addresses and listeners, and the conditions that follow from these.

use std::sync::Arc;

use config::gateway_api::Gateway;
use flow::Reads;
use model::kube::ListenerOwner;
use model::service::ObjectId;
use model::standing::{Fact, ListenerStanding, Standing, StandingBody, condition};

use registry::inputs::GatewayRefusals;

use super::addresses::{self, GatewayAddresses};
use super::listeners::judge_all;
use super::sets::AcceptedSets;
use super::{refused, resolved};
use crate::class::{Class, KnownClasses};
use crate::client_certificate::ClientCertificates;
use crate::frontend;
use crate::plan;
use crate::sets::SetsByGateway;

flow::rule! {
    /// Facts about Gateways of known classes, without those about their ListenerSets.
    pub(super) GatewayFacts: ObjectId => Arc<Standing> = "facts about gateways of the gateway api", derive_facts;
    /// Facts about Gateways of known classes.
    pub GatewayStandings: ObjectId => Arc<Standing> = "standings of gateways of the gateway api", derive_gateway_standing;
}

fn derive_gateway_standing(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let facts = cx.get::<GatewayFacts>(id)?;
    let StandingBody::Gateway { addresses, services, listeners, sets: Some(_) } = &facts.body else {
        return Some((*facts).clone());
    };
    let allowed = cx.get::<SetsByGateway>(id);
    let accepted = allowed.iter().flat_map(|all| all.iter()).filter(|set| cx.contains::<AcceptedSets>(set));
    let body = StandingBody::Gateway {
        addresses: addresses.clone(),
        services: services.clone(),
        listeners: listeners.clone(),
        sets: Some(accepted.count()),
    };
    Some(Arc::new(Standing { conditions: facts.conditions.clone(), body }))
}

/// Facts about a Gateway. If it allows ListenerSets, their number is 0 here.
fn derive_facts(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let Some(object) = plan::object(cx, id) else { return refused::gateway(cx, id) };
    match *cx.get::<KnownClasses>(&object.spec.gateway_class_name)? {
        Class::Served(_) => served(cx, id, &object.spec),
        Class::Remote => Some(Arc::new(remote(&object.spec))),
    }
}

fn remote(spec: &Gateway) -> Standing {
    const MESSAGE: &str = "This Gateway is remote; Istio will not program it";
    Standing {
        conditions: vec![
            Fact::yes(condition::ACCEPTED, "Accepted", MESSAGE),
            Fact::yes(condition::PROGRAMMED, "Programmed", MESSAGE),
        ],
        body: StandingBody::Gateway {
            addresses: addresses::of_remote(&spec.addresses),
            services: Vec::new(),
            listeners: Vec::new(),
            sets: None,
        },
    }
}

fn served(cx: &Reads<'_>, id: &ObjectId, spec: &Gateway) -> Option<Arc<Standing>> {
    let addresses = cx.get::<GatewayAddresses>(id)?;
    let judged = judge_all(cx, &ListenerOwner::Gateway(id.clone()), &spec.listeners)?;
    let valid = judged.iter().filter(|one| one.is_valid).count();
    let all_resolved = judged.iter().all(|one| one.is_resolved);
    let listeners: Vec<ListenerStanding> = judged.into_iter().map(|one| one.standing).collect();
    let refusal = cx.get::<GatewayRefusals>(id);
    let mut conditions = vec![match &refusal {
        Some(refusal) => Fact::no(condition::ACCEPTED, refusal.reason, refusal.message.clone()),
        None => accepted(valid, listeners.len(), &addresses.unsupported),
    }];
    conditions.extend(programmed(valid, &addresses.problem));
    conditions.push(references(cx, id, all_resolved));
    if frontend::is_insecure(spec) {
        let message = "Clients without a valid certificate are accepted (AllowInsecureFallback)";
        conditions.push(Fact::yes(condition::INSECURE_FRONTEND, "ConfigurationChanged", message));
    }
    let body = StandingBody::Gateway {
        addresses: addresses.shown.clone(),
        services: addresses.services.clone(),
        listeners,
        sets: spec.allowed_listeners.is_some().then_some(0),
    };
    Some(Arc::new(Standing { conditions, body }))
}

fn accepted(valid: usize, all: usize, unsupported: &[Arc<str>]) -> Fact {
    if !unsupported.is_empty() {
        let names: Vec<&str> = unsupported.iter().map(|address| &**address).collect();
        let message = format!("only Hostname and IPAddress are supported, ignoring [{}]", names.join(" "));
        return Fact::no(condition::ACCEPTED, "UnsupportedAddress", message);
    }
    match valid {
        0 => Fact::no(condition::ACCEPTED, NOT_VALID, NONE_VALID),
        some if some < all => {
            Fact::yes(condition::ACCEPTED, NOT_VALID, "One or more of the Gateway's listeners are invalid")
        }
        _ => Fact::yes(condition::ACCEPTED, "Accepted", "Resource accepted"),
    }
}

/// The condition `ResolvedRefs`: the references of the Gateway itself, then those of its listeners.
fn references(cx: &Reads<'_>, id: &ObjectId, of_listeners: bool) -> Fact {
    let certificate = cx.get::<ClientCertificates>(id);
    let problem = certificate.as_ref().and_then(|row| row.problem.as_ref());
    let own = problem.map(|problem| (problem.reason.name(), &*problem.message));
    const MESSAGE: &str = "References of one or more of the Gateway's listeners cannot be resolved";
    let of_listeners = (!of_listeners).then_some(("ListenersNotResolved", MESSAGE));
    resolved(own.into_iter().chain(of_listeners), || "All references resolved")
}

/// The condition `Programmed`, if the configuration decides it.
fn programmed(valid: usize, problem: &Option<Fact>) -> Option<Fact> {
    match valid {
        0 => Some(Fact::no(condition::PROGRAMMED, "Invalid", NONE_VALID)),
        _ => problem.clone(),
    }
}

/// The reason of conditions about invalid listeners.
pub(super) const NOT_VALID: &str = "ListenersNotValid";
/// The message about a Gateway without valid listeners.
const NONE_VALID: &str = "None of the Gateway's listeners are valid";

/// Adds the rule that knows no ListenerSets.
pub(super) fn register_facts(b: &mut flow::Builder) {
    b.view::<GatewayFacts>();
}

/// Adds the other rules of this module.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<GatewayStandings>();
}
