//! Routes without their actions.

use std::cmp::Ordering;
use std::sync::Arc;

use config::gateway_api::reference::ParentReference;
use config::{Meta, Timestamp};
use flow::Reads;
use model::kube::RouteId;
use model::service::ObjectId;
use names::Hostname;
use registry::inputs::{RouteObject, RouteObjects};

use crate::grpc;
use crate::rank::Rank;

/// A route without its actions, so that changes of backends and filters stop here.
#[derive(Clone, PartialEq, Debug)]
pub struct RouteSummary {
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// The objects that it attaches to, in their order.
    pub parents: Vec<ParentReference>,
    /// The hosts; `*` if none are set.
    pub hostnames: Vec<Hostname>,
    /// One per match of an HTTPRoute or GRPCRoute, those of the first rule first. None for matches that never hold.
    pub ranks: Arc<[Option<Rank>]>,
}

flow::rule! {
    /// Routes without their actions.
    pub RouteSummaries: RouteId => Arc<RouteSummary> = "summaries of routes", derive_summary;
}

fn derive_summary(cx: &Reads<'_>, id: &RouteId) -> Option<Arc<RouteSummary>> {
    let summary = match &*cx.get::<RouteObjects>(id)? {
        RouteObject::Http(object) => {
            let matches = object.spec.rules.iter().flat_map(|rule| &rule.matches);
            let ranks = matches.map(Rank::of).collect();
            summary(&object.meta, &object.spec.parent_refs, &object.spec.hostnames, ranks)
        }
        RouteObject::Grpc(object) => {
            let matches = object.spec.rules.iter().flat_map(grpc::matches);
            let ranks = matches.map(|condition| Rank::of_grpc(&condition)).collect();
            summary(&object.meta, &object.spec.parent_refs, &object.spec.hostnames, ranks)
        }
        RouteObject::Tls(object) => {
            summary(&object.meta, &object.spec.parent_refs, &object.spec.hostnames, Arc::default())
        }
        RouteObject::Tcp(object) => summary(&object.meta, &object.spec.parent_refs, &[], Arc::default()),
        RouteObject::Udp(object) => summary(&object.meta, &object.spec.parent_refs, &[], Arc::default()),
    };
    Some(Arc::new(summary))
}

fn summary(
    meta: &Meta,
    parents: &[ParentReference],
    hostnames: &[Arc<str>],
    ranks: Arc<[Option<Rank>]>,
) -> RouteSummary {
    let everything: Arc<str> = "*".into();
    let hostnames = if hostnames.is_empty() { std::slice::from_ref(&everything) } else { hostnames };
    RouteSummary {
        created: meta.creation_timestamp,
        parents: parents.to_vec(),
        hostnames: hostnames.iter().filter_map(|host| Hostname::parse(host).ok()).collect(),
        ranks,
    }
}

/// When a route was created.
pub(crate) fn created(cx: &Reads<'_>, id: &RouteId) -> Option<Timestamp> {
    cx.with::<RouteSummaries, _>(id, |summary| summary.and_then(|one| one.created))
}

/// The order of routes with equal precedence: the oldest first, then by `namespace/name`, then by kind.
pub(crate) fn by_age(a: (Option<Timestamp>, &RouteId), b: (Option<Timestamp>, &RouteId)) -> Ordering {
    a.0.cmp(&b.0).then_with(|| by_name(&a.1.id, &b.1.id)).then_with(|| a.1.cmp(b.1))
}

/// The alphabetical order of `namespace/name`.
pub(crate) fn by_name(a: &ObjectId, b: &ObjectId) -> Ordering {
    fn text(id: &ObjectId) -> impl Iterator<Item = u8> {
        id.namespace.bytes().chain([b'/']).chain(id.name.bytes())
    }
    text(a).cmp(text(b))
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<RouteSummaries>();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_as_text() {
        let id = |namespace: &str, name: &str| ObjectId { namespace: namespace.into(), name: name.into() };
        assert_eq!(by_name(&id("a-b", "x"), &id("a", "x")), Ordering::Less);
        assert_eq!(by_name(&id("a", "x"), &id("a", "y")), Ordering::Less);
        assert_eq!(by_name(&id("a", "x"), &id("a", "x")), Ordering::Equal);
    }
}
