//! Route tables of clients with unrestricted visibility: the shared table, with the hosts replaced that differ for the
//! client.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::{HostList, RouteAudience, RoutesKey, SharedHostsKey, VirtualHostContent, VirtualHostSpec};
use model::service::ObjectId;
use names::Hostname;
use registry::{Exported, ServicesByExport};
use rustc_hash::FxHashSet;

use super::host::{Client, open};
use super::own::{DifferentHosts, HostDifferences, OwnHostList, OwnHosts};
use super::served::{is_served, services_with};
use super::shared::{OTHERS, SharedHosts, SharedTable};
use super::unique::sorted;
use crate::scope;

/// The virtual hosts of a port for a client with unrestricted visibility, in order.
pub(super) fn seen_by(cx: &Reads<'_>, audience: &Arc<RouteAudience>, port: u16) -> HostList {
    let scope = &audience.scope;
    let key = SharedHostsKey { cluster: scope.cluster.clone(), assigned: scope.assigned, port };
    let different = cx.get::<DifferentHosts>(&(key.clone(), scope.namespace.clone()));
    let own = cx.get::<OwnHosts>(&(audience.clone(), port));
    let (Some(base), Some(different), Some(own)) = (cx.get::<SharedHosts>(&key), different, own) else {
        return HostList::default();
    };
    let private = cx.get::<ServicesByExport>(&Exported::Namespace(scope.namespace.clone()));
    let mut overlay = Overlay::new(&base, &different, &own);
    open(cx, scope, &audience.source, |client| {
        overlay.add_others(client, port, private.is_none_or(|keys| keys.is_empty()));
    });
    overlay.finished()
}

/// A client's table while it is derived from the shared one.
struct Overlay<'a> {
    base: &'a SharedTable,
    /// The indices of shared hosts of services that the client does not use.
    replaced: BTreeSet<usize>,
    /// The client's own virtual hosts of services.
    own: &'a OwnHostList,
    /// The client's own virtual hosts of hosts without a service; `None` if it uses the shared ones.
    own_others: Option<Vec<Arc<VirtualHostSpec>>>,
}

impl<'a> Overlay<'a> {
    fn new(base: &'a SharedTable, different: &HostDifferences, own: &'a OwnHostList) -> Overlay<'a> {
        let replaced = different.replaced().filter_map(|host| base.by_host.get(host)).copied().collect();
        Overlay { base, replaced, own, own_others: None }
    }

    /// Derives the client's own hosts without a service, unless nothing can have changed the shared ones.
    fn add_others(&mut self, client: &Client<'_>, port: u16, no_private: bool) {
        let (base, own) = (self.base, self.own);
        let no_others = base.others.as_ref().is_some_and(Vec::is_empty);
        let same_use = !own.differs && no_private
            || port == 80
            || no_others && own.in_use.iter().all(|id| base.in_use.contains(id));
        let nothing_own = (no_private || no_others) && !client.lookup.is_particular() && !own.moved;
        if base.others.is_some() && same_use && nothing_own {
            return;
        }
        let seen = scope::all_seen(client.cx, client.scope);
        let services = services_with(client.cx, &seen, port);
        let is_served = |host: &Hostname| is_served(&services, |service| &service.key, host);
        let used: Vec<ObjectId> = self.shared().flat_map(|spec| routes(spec)).filter_map(used).collect();
        let in_use = used.iter().chain(&own.in_use).collect();
        self.own_others = Some(client.other_hosts(port, &in_use, &is_served));
    }

    /// The shared virtual hosts of services that the client uses.
    fn shared(&self) -> impl Iterator<Item = &'a Arc<VirtualHostSpec>> {
        let services = self.base.services.iter().enumerate().filter(|(at, _)| !self.replaced.contains(at));
        services.filter_map(|(_, host)| host.spec.as_ref())
    }

    fn finished(self) -> HostList {
        let base = self.base;
        let own = self.own.hosts.iter().map(|(_, spec)| spec);
        if !base.unique || self.conflicts() {
            let mut out: Vec<_> = self.shared().chain(own).cloned().collect();
            // Which host keeps a domain must not depend on how the table was derived: sort by the hosts' own names.
            out.sort_by(|a, b| a.domains.first().cmp(&b.domains.first()));
            let others = self.own_others.or_else(|| base.others.clone()).unwrap_or_default();
            return sorted(others.into_iter().chain(out).collect()).into_iter().collect();
        }
        let mut without: Vec<usize> = self.replaced.iter().filter_map(|at| base.places[*at]).collect();
        let place = |host| base.by_host.get(host).and_then(|at| base.places[*at]);
        let mut own: Vec<_> = self.own.hosts.iter().map(|(host, spec)| (place(host), spec.clone())).collect();
        if let Some(others) = self.own_others {
            without.extend(&base.other_places);
            own.extend(others.into_iter().map(|spec| (None, spec)));
            own.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        }
        without.sort_unstable();
        HostList::overlay(&base.list, &without, own)
    }

    /// Whether a domain of the client's own virtual hosts exists already.
    fn conflicts(&self) -> bool {
        if !self.own.unique {
            return true;
        }
        let base = self.base;
        let is_taken = |at: Option<usize>, domain: &Arc<str>| {
            // Most domains are those of the shared host that the own one replaces.
            let replaced = at.and_then(|at| base.services[at].spec.as_ref());
            if replaced.is_some_and(|spec| spec.domains.contains(domain)) {
                return false;
            }
            let owner = base.owners.get(domain).copied();
            // Shared hosts without a service are dropped where the client has its own.
            owner.is_some_and(|owner| Some(owner) != at && !(self.own_others.is_some() && owner == OTHERS))
        };
        let of_services = self.own.hosts.iter().map(|(host, spec)| (base.by_host.get(host).copied(), spec));
        let mine = of_services.chain(self.own_others.iter().flatten().map(|spec| (None, spec)));
        let mut domains = mine.flat_map(|(at, spec)| spec.domains.iter().map(move |domain| (at, domain)));
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        let mut is_repeated = |domain| self.own_others.is_some() && !seen.insert(domain);
        domains.any(|(at, domain)| is_taken(at, domain) || is_repeated(domain))
    }
}

pub(super) fn routes(spec: &VirtualHostSpec) -> &[Arc<RoutesKey>] {
    match &spec.content {
        VirtualHostContent::Routes(keys) => keys,
        _ => &[],
    }
}

fn used(key: &Arc<RoutesKey>) -> Option<ObjectId> {
    key.virtual_service.clone()
}
