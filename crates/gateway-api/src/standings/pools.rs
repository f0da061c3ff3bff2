//! InferencePools: the Gateways whose routes refer to them, and whether their pickers exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::gateway_api::reference::ParentReference;
use flow::Reads;
use model::kube::RouteId;
use model::service::ObjectId;
use model::standing::{Fact, ParentStanding, Standing, StandingBody, condition};
use registry::inputs::RouteObjects;

use super::dropped::Dropped;
use super::routes::{GatewayControllers, accepted};
use crate::attach::Attachments;
use crate::grants::{self, FromKind, Reference, ToKind};
use crate::pools::{Pool, Pools, RoutesByPool};

/// The most Gateways in the status of a pool, as the specification allows.
const MOST: usize = 32;

flow::rule! {
    /// Facts about InferencePools. Routes that may not refer to a pool do not count.
    pub PoolStandings: ObjectId => Arc<Standing> = "standings of inference pools", derive_pool_standing;
}

fn derive_pool_standing(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Standing>> {
    let pool = cx.get::<Pools>(id)?;
    let references = references(&pool);
    let mut gateways: BTreeMap<ObjectId, Fact> = BTreeMap::new();
    let routes = cx.get::<RoutesByPool>(id);
    for route in routes.iter().flat_map(|members| members.iter()).filter(|route| may_refer(cx, route, id)) {
        for (gateway, fact) in at_gateways(cx, route) {
            let known = gateways.entry(gateway).or_insert_with(|| fact.clone());
            if fact.holds {
                *known = fact;
            }
        }
    }
    let parents = gateways.into_iter().take(MOST).filter_map(|(gateway, accepted)| {
        let controller = *cx.get::<GatewayControllers>(&gateway)?;
        let parent =
            ParentReference { namespace: Some(gateway.namespace), name: gateway.name, ..ParentReference::default() };
        Some(ParentStanding { parent, controller, conditions: vec![accepted, references.clone()] })
    });
    Some(Arc::new(Standing { conditions: Vec::new(), body: StandingBody::Pool { parents: parents.collect() } }))
}

fn may_refer(cx: &Reads<'_>, route: &RouteId, pool: &ObjectId) -> bool {
    let from = FromKind::Route(route.kind);
    let namespace = route.id.namespace.clone();
    grants::is_allowed(cx, &Reference { from, namespace, to: ToKind::InferencePool, target: pool.clone() })
}

/// Whether a route is accepted by each of its Gateways.
fn at_gateways(cx: &Reads<'_>, route: &RouteId) -> Vec<(ObjectId, Fact)> {
    let (Some(attachment), Some(object)) = (cx.get::<Attachments>(route), cx.get::<RouteObjects>(route)) else {
        return Vec::new();
    };
    let dropped = Dropped::of(&object);
    let parents = attachment.parents.iter().map(|parent| {
        let fact = accepted(parent, &dropped);
        let fact = match fact.holds {
            true => {
                let message = format!("Referenced by an {} accepted by the parentRef Gateway", route.kind.name());
                Fact::yes(condition::ACCEPTED, "Accepted", message)
            }
            false => {
                let message =
                    format!("Referenced {route:?} not accepted by Gateway {}: {}", parent.gateway, fact.message);
                Fact::no(condition::ACCEPTED, "HTTPRouteNotAccepted", message)
            }
        };
        (parent.gateway.clone(), fact)
    });
    parents.collect()
}

fn references(pool: &Pool) -> Fact {
    match pool.picker.as_ref().map(|picker| &picker.service) {
        Some(Err(message)) => Fact::no(condition::RESOLVED, "InvalidExtensionRef", message.clone()),
        Some(Ok(_)) => {
            Fact::yes(condition::RESOLVED, condition::RESOLVED, "Referenced ExtensionRef resolved successfully")
        }
        None => Fact::yes(condition::RESOLVED, condition::RESOLVED, "The pool has no endpoint picker"),
    }
}

/// Adds this module's rules.
pub(super) fn register(b: &mut flow::Builder) {
    b.view::<PoolStandings>();
}
