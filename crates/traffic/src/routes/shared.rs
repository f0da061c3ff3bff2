//! Shared base of route tables.
//!
//! Most clients get the same virtual hosts for a port except few: services of their own namespace have short names, and
//! some VirtualServices, policies and services are visible in their namespace only. So the table of a client without
//! such exceptions is derived once per port, each host notes the namespaces whose clients may get another one, and a
//! client's table replaces only these hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use flow::Reads;
use model::audience::{Scope, SharedHostList, SharedHostsKey, VirtualHostSpec};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use rustc_hash::FxHashMap;

use super::host::{Client, open};
use super::overlay::routes;
use super::served::is_served;
use super::virtual_host_name;
use super::{bind, domains, mesh};
use crate::layered::{Base, Differs, Shared};
use crate::policy::particular_to;
use crate::scope::PublicServicesByPort;
use crate::virtual_service::VirtualServiceSummaries;

flow::rule! {
    /// The shared virtual hosts of a port.
    ///
    pub SharedHosts: SharedHostsKey => Arc<SharedTable> = "shared hosts", derive_shared_hosts;
}

/// The shared virtual hosts of a port.
pub struct SharedTable {
    /// Virtual hosts of services, ascending by name.
    pub(super) services: Base<SharedHost>,
    /// The virtual hosts of `services` and `others`. Tables that differ in few of them refer to it.
    pub(super) list: Arc<SharedHostList>,
    /// The index in `list` of each service's virtual host.
    pub(super) places: Vec<Option<usize>>,
    /// The indices in `list` of `others`.
    pub(super) other_places: Vec<usize>,
    /// Indices in `services` by hostname.
    pub(super) by_host: FxHashMap<Hostname, usize>,
    /// Indices in `services` of hosts with routes to another one.
    pub(super) by_destination: FxHashMap<Hostname, Vec<usize>>,
    /// Indices in `services` by the namespaces whose clients may have another host.
    pub(super) by_client: FxHashMap<Arc<str>, Vec<usize>>,
    /// Indices in `services` of hosts that depend on the client's labels.
    pub(super) for_all: Vec<usize>,
    /// The routes of hosts without a service; `None` if they may differ between clients.
    pub(super) others: Option<Vec<Arc<VirtualHostSpec>>>,
    /// The VirtualServices that services use.
    pub(super) in_use: BTreeSet<ObjectId>,
    /// The index in `services` by domain; [`OTHERS`] for hosts without a service.
    pub(super) owners: FxHashMap<Arc<str>, usize>,
    /// Domains are unique.
    pub(super) unique: bool,
}

/// All hosts without a service, in [`SharedTable::owners`].
pub(super) const OTHERS: usize = usize::MAX;

/// A service's virtual host.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct SharedHost {
    /// The service of the host has the port.
    pub(super) served: bool,
    /// None if the port is not HTTP.
    pub(super) spec: Option<Arc<VirtualHostSpec>>,
}

impl PartialEq for SharedTable {
    fn eq(&self, other: &SharedTable) -> bool {
        // The other fields follow from these.
        self.services == other.services && self.others == other.others && self.in_use == other.in_use
    }
}

impl fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.services.0).entries(&self.others).finish()
    }
}

fn derive_shared_hosts(cx: &Reads<'_>, key: &SharedHostsKey) -> Option<Arc<SharedTable>> {
    let SharedHostsKey { cluster, assigned, port } = key;
    let scope = Arc::new(Scope {
        namespace: "".into(),
        sidecar: None,
        selected_rules: Vec::new(),
        cluster: cluster.clone(),
        assigned: *assigned,
    });
    let keys = cx.get::<PublicServicesByPort>(port).map(|members| members.to_vec()).unwrap_or_default();
    let mut table = SharedTable::of(key.clone());
    open(cx, &scope, &bind::unconditional(), |client| {
        let mut served = Vec::with_capacity(keys.len());
        for definitions in keys.chunk_by(|a, b| a.hostname == b.hostname) {
            served.extend(table.add(client, *port, definitions));
        }
        table.add_others(client, *port, &served);
    });
    table.finish();
    Some(Arc::new(table))
}

impl SharedTable {
    /// The virtual hosts.
    pub fn list(&self) -> &Arc<SharedHostList> {
        &self.list
    }

    fn of(key: SharedHostsKey) -> SharedTable {
        SharedTable {
            services: Base::default(),
            list: Arc::new(SharedHostList { key, hosts: Vec::new(), resource_names: Vec::new(), serves_any: false }),
            places: Vec::new(),
            other_places: Vec::new(),
            by_host: FxHashMap::default(),
            by_destination: FxHashMap::default(),
            by_client: FxHashMap::default(),
            for_all: Vec::new(),
            others: None,
            in_use: BTreeSet::new(),
            owners: FxHashMap::default(),
            unique: true,
        }
    }

    /// Adds the host of these services, which are all with this hostname and port. Returns the one that the host
    /// resolves to, if it is among them.
    fn add(&mut self, client: &Client<'_>, port: u16, definitions: &[ServiceKey]) -> Option<ServiceKey> {
        let host = &definitions[0].hostname;
        let key = (client.find)(host).filter(|key| definitions.contains(key));
        let made = key.as_ref().and_then(|key| client.service(key, port));
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        let called = client.aliases.of(host).iter().chain([host]);
        names.extend(called.filter_map(|host| domains::local_namespace(host.as_str()).map(Arc::from)));
        particular_to(client.cx, host, &mut names);
        if let Some(key) = &key {
            mesh::add_particular(client.cx, (key, port), made.as_ref().map(|(spec, _)| &spec.content), &mut names);
        }
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
        self.services.0.push(Shared { host: host.clone(), differs, value: SharedHost { served: key.is_some(), spec } });
        key
    }

    fn add_others(&mut self, client: &Client<'_>, port: u16, keys: &[ServiceKey]) {
        let is_served = |host: &Hostname| is_served(keys, |key| key, host);
        let uses = |id: &ObjectId| port == 80 || self.in_use.contains(id);
        let entries = client.lookup.all(client.egress).filter(|e| uses(&e.id));
        let open = entries.filter(|e| e.hosts.iter().any(|h| !is_served(h)));
        let summaries: Vec<_> = open.filter_map(|e| client.cx.get::<VirtualServiceSummaries>(&e.id)).collect();
        let mut names = BTreeSet::new();
        for summary in &summaries {
            let Some(more) = summary.particular_namespaces(port) else {
                return;
            };
            names.extend(more);
            summary.http_destinations.iter().for_each(|d| particular_to(client.cx, d, &mut names));
        }
        if names.is_empty() {
            let in_use = self.in_use.iter().collect();
            self.others = Some(client.other_hosts(port, &in_use, &is_served));
        }
    }

    fn finish(&mut self) {
        let name = |host: &Shared<SharedHost>| host.value.spec.as_ref().map(|spec| spec.name.clone());
        self.services.0.sort_by_cached_key(name);
        let services = self.services.0.iter().enumerate().filter_map(|(at, h)| Some((at, h.value.spec.as_ref()?)));
        let others = self.others.iter().flatten().map(|spec| (OTHERS, spec));
        let mut all: Vec<(usize, &Arc<VirtualHostSpec>)> = services.chain(others).collect();
        let mut count = 0;
        let domains = all.iter().flat_map(|(at, spec)| spec.domains.iter().map(|d| (d.clone(), *at)));
        self.owners = domains.inspect(|_| count += 1).collect();
        self.unique = self.owners.len() == count;
        all.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        self.places = vec![None; self.services.0.len()];
        for (place, (at, _)) in all.iter().enumerate() {
            match self.places.get_mut(*at) {
                Some(of_service) => *of_service = Some(place),
                None => self.other_places.push(place),
            }
        }
        let hosts: Vec<_> = all.into_iter().map(|(_, spec)| spec.clone()).collect();
        let key = self.list.key.clone();
        let table = key.port.to_string();
        let resource_names = hosts.iter().map(|host| virtual_host_name(&table, &host.name)).collect();
        let serves_any = hosts.iter().any(|host| host.serves_any());
        self.list = Arc::new(SharedHostList { key, hosts, resource_names, serves_any });
        for (at, host) in self.services.0.iter().enumerate() {
            self.by_host.insert(host.host.clone(), at);
            if let Some(spec) = &host.value.spec {
                let of_routes = routes(spec).iter().flat_map(|key| key.destinations.iter()).map(|(to, _)| to);
                for destination in of_routes.chain(mesh::destinations_of(&spec.content)).filter(|to| **to != host.host)
                {
                    self.by_destination.entry(destination.clone()).or_default().push(at);
                }
            }
            match &host.differs {
                Differs::ForAll => self.for_all.push(at),
                Differs::For(names) => {
                    names.iter().for_each(|name| self.by_client.entry(name.clone()).or_default().push(at))
                }
            }
        }
    }
}
