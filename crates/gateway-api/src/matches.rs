//! The order of the matches of a host.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::kube::{ListenerId, RouteId};
use names::Hostname;

use crate::attach::RoutesByHost;
use crate::route::{RouteSummaries, by_age};

/// A host of a route table.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TableHost {
    /// The listeners of the table that have the host.
    pub listeners: Arc<[ListenerId]>,
    /// The host.
    pub host: Hostname,
}

/// One match of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchOf {
    /// The route.
    pub route: RouteId,
    /// The position of the match in the route.
    pub index: u16,
}

flow::rule! {
    /// The matches of a host in order of precedence. None follow a match of all requests.
    pub HostMatches: TableHost => Arc<[MatchOf]> = "ordered matches of hosts", derive_host_matches;
}

fn derive_host_matches(cx: &Reads<'_>, key: &TableHost) -> Option<Arc<[MatchOf]>> {
    let mut routes: BTreeSet<RouteId> = BTreeSet::new();
    for listener in key.listeners.iter() {
        let attached = cx.get::<RoutesByHost>(&(listener.clone(), key.host.clone()));
        routes.extend(attached.iter().flat_map(|members| members.iter().cloned()));
    }
    Some(ordered(cx, &routes))
}

/// The matches of these routes in order of precedence, without those behind a match of all requests.
pub(crate) fn ordered<'a>(cx: &Reads<'_>, routes: impl IntoIterator<Item = &'a RouteId>) -> Arc<[MatchOf]> {
    let mut ranked = Vec::new();
    for route in routes {
        let Some(summary) = cx.get::<RouteSummaries>(route) else { continue };
        for (index, rank) in (0u16..).zip(summary.ranks.iter()) {
            ranked.extend(rank.map(|rank| (rank, summary.created, route, index)));
        }
    }
    ranked.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| by_age((a.1, a.2), (b.1, b.2))).then_with(|| a.3.cmp(&b.3)));
    let last = ranked.iter().position(|(rank, ..)| rank.is_catch_all()).map_or(ranked.len(), |at| at + 1);
    let ordered = ranked[..last].iter().map(|(_, _, route, index)| MatchOf { route: (*route).clone(), index: *index });
    ordered.collect()
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<HostMatches>();
}
