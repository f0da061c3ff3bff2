//! Routes: the Gateways and services that accept them, and whether their references resolve.

use std::sync::Arc;

use flow::Reads;
use model::kube::RouteId;
use model::service::ObjectId;
use model::standing::{CONTROLLERS, Fact, ParentStanding, Standing, StandingBody, condition};
use registry::inputs::RouteObjects;

use super::dropped::{Dropped, UNSUPPORTED_VALUE};
use super::{refused, resolved};
use crate::attach::{Attachments, Parent};
use crate::backends::{Backend, MeshBackends, RouteBackends};
use crate::class::{Class, KnownClasses};
use crate::mesh::{self, MeshAttachments, MeshParent};
use crate::plan;
use crate::route::{RouteSummaries, RouteSummary};

flow::rule! {
    /// The controllers of Gateways of served classes. A relation of its own, so that other changes of a Gateway stop here.
    pub GatewayControllers: ObjectId => &'static str = "controllers of gateways of the gateway api", derive_controller;
    /// Facts about routes. Those that no served Gateway and no service is a parent of have no parents.
    pub RouteStandings: RouteId => Arc<Standing> = "standings of routes", derive_route_standing;
}

fn derive_controller(cx: &Reads<'_>, id: &ObjectId) -> Option<&'static str> {
    let object = plan::object(cx, id)?;
    match *cx.get::<KnownClasses>(&object.spec.gateway_class_name)? {
        Class::Served(controller) => Some(controller),
        Class::Remote => None,
    }
}

fn derive_route_standing(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<Standing>> {
    let Some(object) = cx.get::<RouteObjects>(id) else { return refused::route(cx, id) };
    let summary = cx.get::<RouteSummaries>(id)?;
    let judge = Judge { cx, id, summary: &summary, dropped: Dropped::of(&object) };
    let mut parents = judge.of_gateways();
    parents.extend(judge.of_services());
    // In the order of `parentRefs`.
    parents.sort_by_key(|(index, _)| *index);
    let body = StandingBody::Route { parents: parents.into_iter().map(|(_, parent)| parent).collect() };
    Some(Arc::new(Standing { conditions: Vec::new(), body }))
}

/// Judges a route at its parents.
struct Judge<'a> {
    cx: &'a Reads<'a>,
    id: &'a RouteId,
    summary: &'a RouteSummary,
    dropped: Dropped,
}

impl Judge<'_> {
    /// The facts at each Gateway, with the index of the reference.
    fn of_gateways(&self) -> Vec<(usize, ParentStanding)> {
        let Some(attachment) = self.cx.get::<Attachments>(self.id) else { return Vec::new() };
        let references = references(self.cx.get::<RouteBackends>(self.id));
        let parents = attachment.parents.iter().filter_map(|parent| {
            let controller = *self.cx.get::<GatewayControllers>(&parent.gateway)?;
            self.standing(parent.index, controller, accepted(parent, &self.dropped), &references)
        });
        parents.collect()
    }

    /// The facts at each Service and ServiceEntry, with the index of the reference.
    fn of_services(&self) -> Vec<(usize, ParentStanding)> {
        let Some(parents) = self.cx.get::<MeshAttachments>(self.id) else { return Vec::new() };
        let references = references(self.cx.get::<MeshBackends>(self.id));
        let parents = parents.iter().filter_map(|parent| {
            self.standing(parent.index, CONTROLLERS[0], self.accepted_by_service(parent), &references)
        });
        parents.collect()
    }

    fn standing(
        &self,
        index: usize,
        controller: &'static str,
        accepted: Fact,
        references: &Fact,
    ) -> Option<(usize, ParentStanding)> {
        let parent = self.summary.parents.get(index)?.clone();
        let partially = self.dropped.partially_invalid().filter(|_| accepted.holds);
        let conditions = [Some(accepted), partially, Some(references.clone())];
        Some((index, ParentStanding { parent, controller, conditions: conditions.into_iter().flatten().collect() }))
    }

    fn accepted_by_service(&self, parent: &MeshParent) -> Fact {
        let joined = match &parent.outcome {
            Err(refusal) => return Fact::no(condition::ACCEPTED, refusal.reason, refusal.message.clone()),
            Ok(joined) => joined,
        };
        if joined.iter().all(|frontend| mesh::is_displaced(self.cx, self.id, frontend)) {
            let kind = mesh::more_specific(self.id.kind).map_or("route", |kind| kind.name());
            let message = format!("a {kind} has the same service and port, and takes precedence");
            return Fact::no(condition::ACCEPTED, condition::CONFLICTED, message);
        }
        match self.dropped.is_whole() {
            true => Fact::no(condition::ACCEPTED, UNSUPPORTED_VALUE, self.dropped.message()),
            false => Fact::yes(condition::ACCEPTED, "Accepted", "Route was valid"),
        }
    }
}

/// Whether a Gateway accepts a route.
pub(super) fn accepted(parent: &Parent, dropped: &Dropped) -> Fact {
    match &parent.outcome {
        Err(refusal) => Fact::no(condition::ACCEPTED, refusal.reason.name(), refusal.message.clone()),
        Ok(_) if dropped.is_whole() => Fact::no(condition::ACCEPTED, UNSUPPORTED_VALUE, dropped.message()),
        Ok(joined) => {
            let message = match joined.len() {
                0 | 1 => "Route was valid".to_owned(),
                more => format!("Route was valid, bound to {more} parents"),
            };
            Fact::yes(condition::ACCEPTED, "Accepted", message)
        }
    }
}

fn references(backends: Option<Arc<Arc<[Backend]>>>) -> Fact {
    let problems = backends.iter().flat_map(|all| all.iter()).filter_map(|backend| backend.target.as_ref().err());
    let problems = problems.map(|problem| (problem.reason.name(), &*problem.message));
    resolved(problems, || "All references resolved")
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<GatewayControllers>();
    b.view::<RouteStandings>();
}
