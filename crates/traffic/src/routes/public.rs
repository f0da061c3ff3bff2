//! What the tables of all clients who see everything have in common.
//!
//! Most clients of a mesh get the same virtual hosts for a port, but for a few: services of their own namespace have
//! short names for them, and some VirtualServices, policies and services are for their namespace alone. So the table of
//! a client whom nothing is particular about is derived once per port, with a note at each host for whom it may differ,
//! and a client's own table takes its virtual hosts over as they are, and makes only the noted ones itself.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use flow::{Members, Reads, Relation, Rule};
use model::audience::{RouteAudience, RoutesKey, Scope, VirtualHostContent, VirtualHostSpec};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use registry::{Exported, ServicesByExport};
use rustc_hash::{FxHashMap, FxHashSet};

use super::host::Client;
use super::{bind, domains, sidecar};
use crate::hosts::EgressHosts;
use crate::policy::particular_to;
use crate::scope::{self, PublicServicesByPort, ServicesByPort};
use crate::virtual_service::{MeshLookup, VirtualServiceSummaries};

/// The virtual hosts of a port for a client whom nothing is particular about.
pub struct PublicHosts;

impl Relation for PublicHosts {
    const NAME: &'static str = "public hosts";
    type Key = u16;
    type Row = Arc<PublicTable>;
}

/// The virtual hosts of a port, and for whom they may differ.
#[derive(Default)]
pub struct PublicTable {
    /// Of services, in order of the virtual hosts' names.
    services: Vec<PublicHost>,
    /// Of hosts without a service; `None` if they may differ between clients.
    others: Option<Vec<Arc<VirtualHostSpec>>>,
    /// The VirtualServices that services use.
    in_use: BTreeSet<ObjectId>,
    /// Which of `services` has a domain; [`OTHERS`] for hosts without a service.
    owners: FxHashMap<Arc<str>, usize>,
    /// No domain is there twice.
    unique: bool,
}

/// Stands for all hosts without a service in [`PublicTable::owners`].
const OTHERS: usize = usize::MAX;

/// A service's virtual host.
#[derive(Clone, PartialEq, Debug)]
struct PublicHost {
    host: Hostname,
    /// The service that the host means has the port.
    served: bool,
    /// None if the port does not speak HTTP.
    spec: Option<Arc<VirtualHostSpec>>,
    differs: Differs,
}

/// Who may get something else.
#[derive(Clone, PartialEq, Debug)]
enum Differs {
    /// Anybody, by labels.
    ForAll,
    /// Clients of these namespaces.
    For(BTreeSet<Arc<str>>),
}

impl Differs {
    fn concerns(&self, namespace: &str) -> bool {
        match self {
            Differs::ForAll => true,
            Differs::For(names) => !names.is_empty() && names.contains(namespace),
        }
    }
}

impl PartialEq for PublicTable {
    fn eq(&self, other: &PublicTable) -> bool {
        // The rest follows from these.
        self.services == other.services && self.others == other.others && self.in_use == other.in_use
    }
}

impl fmt::Debug for PublicTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.services).entries(&self.others).finish()
    }
}

impl Rule for PublicHosts {
    fn derive(cx: &Reads<'_>, port: &u16) -> Option<Arc<PublicTable>> {
        let scope = Arc::new(Scope {
            namespace: "".into(),
            sidecar: None,
            selected_rules: Vec::new(),
        });
        let lookup = MeshLookup::new(cx, &scope.namespace);
        let (egress, source) = (EgressHosts::everything(), bind::nobody());
        let find = |host: &Hostname| scope::find(cx, &scope, host).map(|s| s.key);
        let client = Client {
            cx,
            scope: &scope,
            source: &source,
            egress: &egress,
            find: &find,
            lookup: &lookup,
            all_ports: false,
        };
        let mut table = PublicTable::default();
        let keys = cx
            .get::<PublicServicesByPort>(port)
            .map(|m| (*m).clone())
            .unwrap_or_default();
        let mut served = Vec::with_capacity(keys.len());
        for definitions in keys.chunk_by(|a, b| a.hostname == b.hostname) {
            served.extend(table.add(&client, *port, definitions));
        }
        table.add_others(&client, *port, &served);
        table.finish();
        Some(Arc::new(table))
    }
}

impl PublicTable {
    /// Adds the host of these services, which are all that have the hostname and this port. Returns the one among them
    /// that the host means, if it means one of them.
    fn add(&mut self, client: &Client<'_>, port: u16, definitions: &[ServiceKey]) -> Option<ServiceKey> {
        let host = &definitions[0].hostname;
        let key = (client.find)(host).filter(|key| definitions.contains(key));
        let made = key.as_ref().and_then(|key| client.service(key, port));
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        names.extend(domains::local_namespace(host.as_str()).map(Arc::from));
        particular_to(client.cx, host, &mut names);
        let mut by_label = false;
        for entry in client.lookup.chosen(client.egress, host) {
            let Some(summary) = client.cx.get::<VirtualServiceSummaries>(&entry.id) else {
                continue;
            };
            match summary.particular_namespaces(port) {
                Some(more) => names.extend(more),
                None => by_label = true,
            }
            for destination in summary.http_destinations.iter().filter(|d| *d != host) {
                particular_to(client.cx, destination, &mut names);
            }
        }
        let spec = made.map(|(spec, routes)| {
            self.in_use.extend(routes.cloned());
            spec
        });
        let differs = if by_label { Differs::ForAll } else { Differs::For(names) };
        self.services.push(PublicHost {
            host: host.clone(),
            served: key.is_some(),
            spec,
            differs,
        });
        key
    }

    fn add_others(&mut self, client: &Client<'_>, port: u16, keys: &[ServiceKey]) {
        let is_served = |host: &Hostname| is_served(keys, host);
        let uses = |id: &ObjectId| port == 80 || self.in_use.contains(id);
        let entries = client.lookup.all(client.egress).filter(|e| uses(&e.id));
        let open = entries.filter(|e| e.hosts.iter().any(|h| !is_served(h)));
        let summaries: Vec<_> = open
            .filter_map(|e| client.cx.get::<VirtualServiceSummaries>(&e.id))
            .collect();
        let mut names = BTreeSet::new();
        for summary in &summaries {
            let Some(more) = summary.particular_namespaces(port) else {
                return;
            };
            names.extend(more);
            summary
                .http_destinations
                .iter()
                .for_each(|d| particular_to(client.cx, d, &mut names));
        }
        if names.is_empty() {
            let in_use = self.in_use.iter().collect();
            self.others = Some(client.other_hosts(port, &in_use, &is_served));
        }
    }

    fn finish(&mut self) {
        let name = |host: &PublicHost| host.spec.as_ref().map(|spec| spec.name.clone());
        self.services.sort_by_cached_key(name);
        let services = self
            .services
            .iter()
            .enumerate()
            .filter_map(|(at, h)| Some((at, h.spec.as_ref()?)));
        let others = self.others.iter().flatten().map(|spec| (OTHERS, spec));
        let domains = services
            .chain(others)
            .flat_map(|(at, spec)| spec.domains.iter().map(move |d| (d.clone(), at)));
        let mut count = 0;
        self.owners = domains.inspect(|_| count += 1).collect();
        self.unique = self.owners.len() == count;
    }
}

fn is_served(keys: &[ServiceKey], host: &Hostname) -> bool {
    if host.is_wildcard() {
        return keys.iter().any(|key| key.hostname.matches(host));
    }
    keys.binary_search_by(|key| key.hostname.cmp(host)).is_ok()
}

/// The virtual hosts of a port as a client gets them who sees everything, in order.
pub(super) fn seen_by(cx: &Reads<'_>, audience: &RouteAudience, port: u16) -> Vec<Arc<VirtualHostSpec>> {
    let scope = &audience.scope;
    let Some(public) = cx.get::<PublicHosts>(&port) else {
        return Vec::new();
    };
    let lookup = MeshLookup::new(cx, &scope.namespace);
    let egress = EgressHosts::everything();
    let find = |host: &Hostname| scope::find(cx, scope, host).map(|s| s.key);
    let client = Client {
        cx,
        scope,
        source: &audience.source,
        egress: &egress,
        find: &find,
        lookup: &lookup,
        all_ports: false,
    };
    let private = cx.get::<ServicesByExport>(&Exported::Namespace(scope.namespace.clone()));
    Overlay::new(&public, private.as_deref()).hosts(&client, port)
}

/// A client's table while it is made from the public one.
struct Overlay<'a> {
    public: &'a PublicTable,
    /// Services that only some namespaces see, this one among them.
    private: FxHashMap<&'a Hostname, &'a ServiceKey>,
    /// Services' virtual hosts that are taken over.
    shared: Vec<Arc<VirtualHostSpec>>,
    /// Services' virtual hosts that are the client's own, and which public one they stand for.
    own: Vec<(Option<usize>, Arc<VirtualHostSpec>)>,
    /// Virtual hosts of hosts without a service.
    others: Vec<Arc<VirtualHostSpec>>,
    /// Those were made for this client.
    own_others: bool,
    /// The VirtualServices of the client's own ones.
    in_use: BTreeSet<&'a ObjectId>,
    /// Some host could not be taken over.
    replaced: bool,
    /// A host that has the port for everybody has it not for this client, or the other way round.
    moved: bool,
}

impl<'a> Overlay<'a> {
    fn new(public: &'a PublicTable, private: Option<&'a Members<ServiceKey>>) -> Overlay<'a> {
        let private = private
            .into_iter()
            .flat_map(|keys| keys.iter())
            .map(|key| (&key.hostname, key))
            .collect();
        let shared = Vec::with_capacity(public.services.len() + 8);
        Overlay {
            public,
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
        let mut unmet = self.private.clone();
        for (at, host) in self.public.services.iter().enumerate() {
            unmet.remove(&host.host);
            if !self.is_own(client, host) {
                self.shared.extend(host.spec.clone());
            } else if let Some(key) = (client.find)(&host.host) {
                self.replaced = true;
                let served = client
                    .cx
                    .with::<ServicesByPort, _>(&port, |m| m.is_some_and(|m| m.contains(&key)));
                self.moved |= served != host.served;
                self.add_own(client, port, &key, Some(at));
            }
        }
        for host in unmet.into_keys().collect::<BTreeSet<_>>() {
            if let Some(key) = (client.find)(host) {
                self.add_own(client, port, &key, None);
            }
        }
        self.add_others(client, port);
        self.finished()
    }

    /// Whether a host is none that can be taken over.
    fn is_own(&self, client: &Client<'_>, host: &PublicHost) -> bool {
        host.differs.concerns(&client.scope.namespace)
            || client.lookup.is_particular_about(&host.host)
            || !self.private.is_empty() && (self.private.contains_key(&host.host) || self.leads_to_private(host))
    }

    fn leads_to_private(&self, host: &PublicHost) -> bool {
        let keys = host.spec.iter().flat_map(|spec| routes(spec));
        keys.into_iter()
            .any(|key| key.destinations.keys().any(|host| self.private.contains_key(host)))
    }

    fn add_own(&mut self, client: &Client<'a>, port: u16, key: &ServiceKey, at: Option<usize>) {
        if let Some((spec, routes)) = client.service(key, port) {
            self.own.push((at, spec));
            self.in_use.extend(routes);
        }
    }

    /// Hosts without a service. They are taken over where nothing can have changed them.
    fn add_others(&mut self, client: &Client<'a>, port: u16) {
        let same_use = !self.replaced
            || port == 80
            || self.public.others.as_ref().is_some_and(Vec::is_empty)
                && self.in_use.iter().all(|id| self.public.in_use.contains(*id));
        let nothing_own = self.private.is_empty() && !client.lookup.is_particular() && !self.moved;
        match &self.public.others {
            Some(others) if same_use && nothing_own => self.others = others.clone(),
            _ => {
                let seen = scope::all_seen(client.cx, client.scope);
                let services = sidecar::services_with(client.cx, &seen, port);
                let is_served = |host: &Hostname| sidecar::is_served(&services, host);
                let used: Vec<ObjectId> = self.shared.iter().flat_map(|s| routes(s)).filter_map(used).collect();
                let in_use = used.iter().chain(self.in_use.iter().copied()).collect();
                self.others = client.other_hosts(port, &in_use, &is_served);
                self.own_others = true;
            }
        }
    }

    fn finished(self) -> Vec<Arc<VirtualHostSpec>> {
        let conflict = !self.public.unique || self.conflicts();
        let mut out = self.shared;
        out.extend(self.own.into_iter().map(|(_, spec)| spec));
        if conflict {
            // Who keeps a domain must not depend on how the table was made: the order is that of the hosts' own names.
            out.sort_by(|a, b| a.domains.first().cmp(&b.domains.first()));
            return sidecar::sorted(self.others.into_iter().chain(out).collect());
        }
        out.extend(self.others);
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out
    }

    /// Whether a domain of the client's own virtual hosts is there already.
    fn conflicts(&self) -> bool {
        let others = self.others.iter().filter(|_| self.own_others).map(|spec| (None, spec));
        let mine = self.own.iter().map(|(at, spec)| (*at, spec)).chain(others);
        let mut seen: FxHashSet<&str> = FxHashSet::default();
        let mut domains = mine.flat_map(|(at, spec)| spec.domains.iter().map(move |domain| (at, domain)));
        domains.any(|(at, domain)| {
            let owner = self.public.owners.get(domain).copied();
            // What the public table has of hosts without a service is gone where the client has its own.
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
