//! Route tables of clients with unrestricted visibility: the shared table, with the hosts replaced that differ for the
//! client.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::{Members, Reads};
use model::audience::{RouteAudience, RoutesKey, VirtualHostContent, VirtualHostSpec};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use registry::{Exported, ServicesByExport};
use rustc_hash::{FxHashMap, FxHashSet};

use super::host::Client;
use super::served::{is_served, services_with};
use super::shared::{OTHERS, SharedHost, SharedHosts, SharedTable};
use super::unique::sorted;
use crate::hosts::EgressHosts;
use crate::layered::Shared;
use crate::scope::{self, ServicesByPort};
use crate::virtual_service::MeshLookup;

/// The virtual hosts of a port for a client with unrestricted visibility, in order.
pub(super) fn seen_by(cx: &Reads<'_>, audience: &RouteAudience, port: u16) -> Vec<Arc<VirtualHostSpec>> {
    let scope = &audience.scope;
    let Some(base) = cx.get::<SharedHosts>(&(scope.cluster.clone(), scope.assigned, port)) else {
        return Vec::new();
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
    /// Shared virtual hosts of services.
    shared: Vec<Arc<VirtualHostSpec>>,
    /// The client's own virtual hosts of services, with the index of the shared one that each replaces.
    own: Vec<(Option<usize>, Arc<VirtualHostSpec>)>,
    /// Virtual hosts of hosts without a service.
    others: Vec<Arc<VirtualHostSpec>>,
    /// `others` are the client's own.
    own_others: bool,
    /// The VirtualServices of the client's own virtual hosts.
    in_use: BTreeSet<&'a ObjectId>,
    /// A shared host was replaced.
    replaced: bool,
    /// For a replaced host, the client's service and the shared one differ in having the port.
    moved: bool,
}

impl<'a> Overlay<'a> {
    fn new(base: &'a SharedTable, private: Option<&'a Members<ServiceKey>>) -> Overlay<'a> {
        let private = private.into_iter().flat_map(|keys| keys.iter()).map(|key| (&key.hostname, key)).collect();
        let shared = Vec::with_capacity(base.services.0.len() + 8);
        Overlay {
            base,
            private,
            shared,
            own: Vec::new(),
            others: Vec::new(),
            own_others: false,
            in_use: BTreeSet::new(),
            replaced: false,
            moved: false,
        }
    }

    fn hosts(mut self, client: &Client<'a>, port: u16) -> Vec<Arc<VirtualHostSpec>> {
        let services = &self.base.services;
        let is_own = |host: &Hostname, shared: &SharedHost| {
            client.lookup.is_particular_about(host) || !self.private.is_empty() && self.leads_to_private(shared)
        };
        let private = self.private.keys().copied();
        let overlay = services.overlay(&client.scope.namespace, private, is_own);
        for (at, Shared { host, value, .. }) in services.0.iter().enumerate() {
            if !overlay.replaced[at] {
                self.shared.extend(value.spec.clone());
            } else if let Some(key) = (client.find)(host) {
                self.replaced = true;
                let served = client.cx.with::<ServicesByPort, _>(&port, |m| m.is_some_and(|m| m.contains(&key)));
                self.moved |= served != value.served;
                self.add_own(client, port, &key, Some(at));
            }
        }
        for host in overlay.added {
            if let Some(key) = (client.find)(host) {
                self.add_own(client, port, &key, None);
            }
        }
        self.add_others(client, port);
        self.finished()
    }

    fn leads_to_private(&self, host: &SharedHost) -> bool {
        let keys = host.spec.iter().flat_map(|spec| routes(spec));
        keys.into_iter().any(|key| key.destinations.keys().any(|host| self.private.contains_key(host)))
    }

    fn add_own(&mut self, client: &Client<'a>, port: u16, key: &ServiceKey, at: Option<usize>) {
        if let Some((spec, routes)) = client.service(key, port) {
            self.own.push((at, spec));
            self.in_use.extend(routes);
        }
    }

    /// Adds hosts without a service. The shared ones are used if nothing can have changed them.
    fn add_others(&mut self, client: &Client<'a>, port: u16) {
        let same_use = !self.replaced
            || port == 80
            || self.base.others.as_ref().is_some_and(Vec::is_empty)
                && self.in_use.iter().all(|id| self.base.in_use.contains(*id));
        let nothing_own = self.private.is_empty() && !client.lookup.is_particular() && !self.moved;
        match &self.base.others {
            Some(others) if same_use && nothing_own => self.others = others.clone(),
            _ => {
                let seen = scope::all_seen(client.cx, client.scope);
                let services = services_with(client.cx, &seen, port);
                let is_served = |host: &Hostname| is_served(&services, host);
                let used: Vec<ObjectId> = self.shared.iter().flat_map(|s| routes(s)).filter_map(used).collect();
                let in_use = used.iter().chain(self.in_use.iter().copied()).collect();
                self.others = client.other_hosts(port, &in_use, &is_served);
                self.own_others = true;
            }
        }
    }

    fn finished(self) -> Vec<Arc<VirtualHostSpec>> {
        let conflict = !self.base.unique || self.conflicts();
        let mut out = self.shared;
        out.extend(self.own.into_iter().map(|(_, spec)| spec));
        if conflict {
            // Which host keeps a domain must not depend on how the table was derived: sort by the hosts' own names.
            out.sort_by(|a, b| a.domains.first().cmp(&b.domains.first()));
            return sorted(self.others.into_iter().chain(out).collect());
        }
        out.extend(self.others);
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out
    }

    /// Whether a domain of the client's own virtual hosts exists already.
    fn conflicts(&self) -> bool {
        let others = self.others.iter().filter(|_| self.own_others).map(|spec| (None, spec));
        let mine = self.own.iter().map(|(at, spec)| (*at, spec)).chain(others);
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        let mut domains = mine.flat_map(|(at, spec)| spec.domains.iter().map(move |domain| (at, domain)));
        domains.any(|(at, domain)| {
            let owner = self.base.owners.get(domain).copied();
            // Shared hosts without a service are dropped where the client has its own.
            let taken = owner.is_some_and(|owner| Some(owner) != at && !(self.own_others && owner == OTHERS));
            taken || !seen.insert(domain)
        })
    }
}

fn routes(spec: &VirtualHostSpec) -> &[Arc<RoutesKey>] {
    match &spec.content {
        VirtualHostContent::Routes(keys) => keys,
        _ => &[],
    }
}

fn used(key: &Arc<RoutesKey>) -> Option<ObjectId> {
    key.virtual_service.clone()
}
