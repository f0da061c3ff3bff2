//! Route tables of clients with unrestricted visibility: the shared table, with the hosts replaced that differ for the
//! client.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::{Members, Reads};
use model::audience::{HostList, RouteAudience, RoutesKey, SharedHostsKey, VirtualHostContent, VirtualHostSpec};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use registry::{Exported, ServicesByExport};
use rustc_hash::{FxHashMap, FxHashSet};

use super::host::Client;
use super::served::{is_served, services_with};
use super::shared::{OTHERS, SharedHosts, SharedTable};
use super::unique::sorted;
use crate::hosts::EgressHosts;
use crate::layered::Shared;
use crate::scope::{self, ServicesByPort};
use crate::virtual_service::MeshLookup;

/// The virtual hosts of a port for a client with unrestricted visibility, in order.
pub(super) fn seen_by(cx: &Reads<'_>, audience: &RouteAudience, port: u16) -> HostList {
    let scope = &audience.scope;
    let key = SharedHostsKey { cluster: scope.cluster.clone(), assigned: scope.assigned, port };
    let Some(base) = cx.get::<SharedHosts>(&key) else {
        return HostList::default();
    };
    let lookup = MeshLookup::new(cx, &scope.namespace);
    let aliases = registry::aliases::aliases(cx);
    let egress = EgressHosts::everything();
    let find = |host: &Hostname| scope::find(cx, scope, host).map(|s| s.key);
    let client = Client {
        cx,
        scope,
        source: &audience.source,
        egress: &egress,
        find: &find,
        lookup: &lookup,
        aliases: &aliases,
        all_ports: false,
    };
    let private = cx.get::<ServicesByExport>(&Exported::Namespace(scope.namespace.clone()));
    Overlay::new(&base, private.as_deref()).hosts(&client, port)
}

/// A client's table while it is derived from the shared one.
struct Overlay<'a> {
    base: &'a SharedTable,
    /// Services that are exported to the client's namespace explicitly.
    private: FxHashMap<&'a Hostname, &'a ServiceKey>,
    /// The indices of shared hosts of services that the client does not use.
    replaced: BTreeSet<usize>,
    /// The client's own virtual hosts of services, with the index of the shared one that each replaces.
    own: Vec<(Option<usize>, Arc<VirtualHostSpec>)>,
    /// The client's own virtual hosts of hosts without a service; `None` if it uses the shared ones.
    own_others: Option<Vec<Arc<VirtualHostSpec>>>,
    /// The VirtualServices of the client's own virtual hosts.
    in_use: BTreeSet<&'a ObjectId>,
    /// The client has another service for a shared host, or the same one with other names or routes.
    differs: bool,
    /// For such a host, the client's service and the shared one differ in having the port.
    moved: bool,
}

impl<'a> Overlay<'a> {
    fn new(base: &'a SharedTable, private: Option<&'a Members<ServiceKey>>) -> Overlay<'a> {
        let private = private.into_iter().flat_map(|keys| keys.iter()).map(|key| (&key.hostname, key)).collect();
        Overlay {
            base,
            private,
            replaced: BTreeSet::new(),
            own: Vec::new(),
            own_others: None,
            in_use: BTreeSet::new(),
            differs: false,
            moved: false,
        }
    }

    fn hosts(mut self, client: &Client<'a>, port: u16) -> HostList {
        let base = self.base;
        let mut added: BTreeSet<&Hostname> = self.private.keys().copied().collect();
        self.replaced
            .extend(base.for_all.iter().chain(base.by_client.get(&client.scope.namespace).into_iter().flatten()));
        for host in self.private.keys() {
            self.replaced.extend(base.by_destination.get(*host).into_iter().flatten());
            if let Some(at) = base.by_host.get(*host) {
                added.remove(host);
                self.replaced.insert(*at);
            }
        }
        if client.lookup.is_particular() {
            let about = |(_, host): &(usize, &Hostname)| client.lookup.is_particular_about(host);
            let hosts = base.services.0.iter().map(|shared| &shared.host).enumerate();
            self.replaced.extend(hosts.filter(about).map(|(at, _)| at));
        }
        for at in self.replaced.clone() {
            let Shared { host, value, .. } = &base.services.0[at];
            if let Some(key) = (client.find)(host) {
                self.differs = true;
                let served = client.cx.with::<ServicesByPort, _>(&port, |m| m.is_some_and(|m| m.contains(&key)));
                self.moved |= served != value.served;
                self.add_own(client, port, &key, Some(at));
            }
        }
        for host in added {
            if let Some(key) = (client.find)(host) {
                self.add_own(client, port, &key, None);
            }
        }
        self.add_others(client, port);
        self.finished()
    }

    fn add_own(&mut self, client: &Client<'a>, port: u16, key: &ServiceKey, at: Option<usize>) {
        if let Some((spec, routes)) = client.service(key, port) {
            self.own.push((at, spec));
            self.in_use.extend(routes);
        }
    }

    /// Derives the client's own hosts without a service, unless nothing can have changed the shared ones.
    fn add_others(&mut self, client: &Client<'a>, port: u16) {
        let base = self.base;
        let (no_private, no_others) = (self.private.is_empty(), base.others.as_ref().is_some_and(Vec::is_empty));
        let same_use = !self.differs && no_private
            || port == 80
            || no_others && self.in_use.iter().all(|id| base.in_use.contains(*id));
        let nothing_own = (no_private || no_others) && !client.lookup.is_particular() && !self.moved;
        if base.others.is_some() && same_use && nothing_own {
            return;
        }
        let seen = scope::all_seen(client.cx, client.scope);
        let services = services_with(client.cx, &seen, port);
        let is_served = |host: &Hostname| is_served(&services, |service| &service.key, host);
        let used: Vec<ObjectId> = self.shared().flat_map(|spec| routes(spec)).filter_map(used).collect();
        let in_use = used.iter().chain(self.in_use.iter().copied()).collect();
        self.own_others = Some(client.other_hosts(port, &in_use, &is_served));
    }

    /// The shared virtual hosts of services that the client uses.
    fn shared(&self) -> impl Iterator<Item = &'a Arc<VirtualHostSpec>> {
        let services = self.base.services.0.iter().enumerate().filter(|(at, _)| !self.replaced.contains(at));
        services.filter_map(|(_, host)| host.value.spec.as_ref())
    }

    fn finished(self) -> HostList {
        let base = self.base;
        if !base.unique || self.conflicts() {
            let mut out: Vec<_> = self.shared().chain(self.own.iter().map(|(_, spec)| spec)).cloned().collect();
            // Which host keeps a domain must not depend on how the table was derived: sort by the hosts' own names.
            out.sort_by(|a, b| a.domains.first().cmp(&b.domains.first()));
            let others = self.own_others.or_else(|| base.others.clone()).unwrap_or_default();
            return sorted(others.into_iter().chain(out).collect()).into_iter().collect();
        }
        let mut without: Vec<usize> = self.replaced.iter().filter_map(|at| base.places[*at]).collect();
        let mut own: Vec<_> = self.own.into_iter().map(|(_, spec)| spec).collect();
        if let Some(others) = self.own_others {
            without.extend(&base.other_places);
            own.extend(others);
        }
        without.sort_unstable();
        own.sort_by(|a, b| a.name.cmp(&b.name));
        HostList::overlay(&base.list, &without, own)
    }

    /// Whether a domain of the client's own virtual hosts exists already.
    fn conflicts(&self) -> bool {
        let others = self.own_others.iter().flatten().map(|spec| (None, spec));
        let mine = self.own.iter().map(|(at, spec)| (*at, spec)).chain(others);
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        let mut domains = mine.flat_map(|(at, spec)| spec.domains.iter().map(move |domain| (at, domain)));
        domains.any(|(at, domain)| {
            let owner = self.base.owners.get(domain).copied();
            // Shared hosts without a service are dropped where the client has its own.
            let taken = owner.is_some_and(|owner| Some(owner) != at && !(self.own_others.is_some() && owner == OTHERS));
            taken || !seen.insert(domain)
        })
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
