//! HTTPRoutes and GRPCRoutes with a host in common.
//!
//! As the specification says, a listener accepts exactly one of an HTTPRoute and a GRPCRoute that share a host: the older one. A
//! route that is not accepted keeps no other one out, so that the routes of a listener are decided together, the oldest first.
//! Few listeners have routes of both kinds; for others, nothing is read.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::Timestamp;
use flow::Reads;
use model::kube::{ListenerId, RouteId, RouteKind};
use names::Hostname;

use crate::attach::{Attachment, Attempts, Joined};
use crate::route;

flow::index! {
    /// Routes that the settings of a listener let attach, by kind.
    pub AttemptsByListener: (ListenerId, RouteKind) => members of Attempts = "attempts by listener", attempts_by_listener_keys;
}

flow::rule! {
    /// The routes that a listener does not accept, each with the older route of the other kind that shares a host.
    pub Displaced: ListenerId => Arc<BTreeMap<RouteId, RouteId>> = "displaced routes", derive_displaced;
}

fn attempts_by_listener_keys(id: &RouteId, row: &Arc<Attachment>) -> Vec<(ListenerId, RouteKind)> {
    if !matches!(id.kind, RouteKind::Http | RouteKind::Grpc) {
        return Vec::new();
    }
    row.joined().map(|joined| (joined.listener.clone(), id.kind)).collect()
}

/// A route with its hosts at a listener.
struct Candidate {
    created: Option<Timestamp>,
    id: RouteId,
    hosts: Vec<Hostname>,
}

fn derive_displaced(cx: &Reads<'_>, listener: &ListenerId) -> Option<Arc<BTreeMap<RouteId, RouteId>>> {
    let calls = cx.get::<AttemptsByListener>(&(listener.clone(), RouteKind::Grpc))?;
    let requests = cx.get::<AttemptsByListener>(&(listener.clone(), RouteKind::Http))?;
    let candidate = |id: &RouteId| {
        let attempt = cx.get::<Attempts>(id)?;
        let joined = attempt.joined().filter(|joined| joined.listener == *listener);
        let hosts = joined.flat_map(|joined: &Joined| joined.hosts.iter().cloned()).collect();
        Some(Candidate { created: route::created(cx, id), id: id.clone(), hosts })
    };
    let mut candidates: Vec<Candidate> = calls.iter().chain(requests.iter()).filter_map(candidate).collect();
    candidates.sort_by(|a, b| route::by_age((a.created, &a.id), (b.created, &b.id)));
    let displaced = displaced(&candidates);
    (!displaced.is_empty()).then(|| Arc::new(displaced))
}

/// The routes, the oldest first, that share a host with an accepted route of the other kind.
fn displaced(candidates: &[Candidate]) -> BTreeMap<RouteId, RouteId> {
    let mut accepted: Vec<&Candidate> = Vec::new();
    let mut displaced = BTreeMap::new();
    for candidate in candidates {
        let meets = |other: &&&Candidate| {
            other.id.kind != candidate.id.kind
                && candidate.hosts.iter().any(|mine| other.hosts.iter().any(|theirs| mine.matches(theirs)))
        };
        match accepted.iter().find(meets) {
            Some(older) => {
                displaced.insert(candidate.id.clone(), older.id.clone());
            }
            None => accepted.push(candidate),
        }
    }
    displaced
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<AttemptsByListener>();
    b.view::<Displaced>();
}

#[cfg(test)]
mod tests {
    use model::service::ObjectId;

    use super::*;

    fn candidate(kind: RouteKind, name: &str, hosts: &[&str]) -> Candidate {
        let id = RouteId { kind, id: ObjectId { namespace: "x".into(), name: name.into() } };
        Candidate { created: None, id, hosts: hosts.iter().map(|host| Hostname::parse(host).unwrap()).collect() }
    }

    #[test]
    fn the_oldest_of_two_kinds_is_accepted() {
        use RouteKind::{Grpc, Http};
        let all = [
            candidate(Http, "first", &["a.com"]),
            candidate(Grpc, "second", &["*.com", "b.org"]),
            candidate(Http, "third", &["a.com", "b.org"]),
            candidate(Grpc, "fourth", &["c.com"]),
            candidate(Http, "fifth", &["*.com"]),
            candidate(Http, "sixth", &["a.com"]),
        ];
        let found = displaced(&all);
        let found: Vec<(&str, &str)> = found.iter().map(|(one, by)| (&*one.id.name, &*by.id.name)).collect();
        // The second is displaced, so that the third may have `b.org`.
        assert_eq!(found, [("fifth", "fourth"), ("second", "first")]);
    }
}
