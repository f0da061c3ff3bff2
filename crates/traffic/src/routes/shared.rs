//! Shared base of route tables.
//!
//! Most clients get the same virtual hosts for a port except few: services of their own namespace have short names, and
//! some VirtualServices, policies and services are visible in their namespace only. So the table of a client without
//! such exceptions is derived once per port, each host notes the namespaces whose clients may get another one, and a
//! client's table replaces only these hosts.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use flow::{Index, Reads};
use model::audience::{Scope, SharedHostList, SharedHostsKey, VirtualHostSpec};
use model::service::{ObjectId, Service, ServiceKey};
use names::Hostname;
use registry::Services;
use rustc_hash::FxHashMap;

use super::host::{Client, open};
use super::overlay::routes;
use super::served::is_served;
use super::virtual_host_name;
use super::{bind, domains, mesh};
use crate::layered::Differs;
use crate::policy::particular_to;
use crate::scope::PublicServicesByPort;
use crate::virtual_service::VirtualServiceSummaries;

flow::rule! {
    /// The shared virtual host of a hostname with public services at a port. A relation of its own, so that a change of one
    /// service or policy does not derive the others.
    pub SharedHostRows: (SharedHostsKey, Hostname) => Arc<SharedHost> = "rows of shared hosts", derive_shared_host;
    /// The shared virtual hosts of a port.
    pub SharedHosts: SharedHostsKey => Arc<SharedTable> = "shared hosts", derive_shared_hosts;
}

/// The shared virtual hosts of a port.
pub struct SharedTable {
    /// The hosts of services, ascending by the name of the virtual host.
    pub(super) services: Vec<Arc<SharedHost>>,
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

/// The virtual host of a hostname.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedHost {
    pub(super) host: Hostname,
    /// The clients that may have another one.
    differs: Differs,
    /// The service that the host resolves to, if it has the port.
    pub(super) served: Option<ServiceKey>,
    /// None if the port is not HTTP.
    pub(super) spec: Option<Arc<VirtualHostSpec>>,
    /// The VirtualService that it uses.
    in_use: Option<ObjectId>,
}

impl PartialEq for SharedTable {
    fn eq(&self, other: &SharedTable) -> bool {
        // The other fields follow from these.
        self.services == other.services && self.others == other.others && self.in_use == other.in_use
    }
}

impl fmt::Debug for SharedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.services).entries(&self.others).finish()
    }
}

/// The scope of a client without exceptions.
fn common_scope(key: &SharedHostsKey) -> Arc<Scope> {
    Arc::new(Scope {
        namespace: "".into(),
        sidecar: None,
        selected_rules: Vec::new(),
        cluster: key.cluster.clone(),
        assigned: key.assigned,
    })
}

fn derive_shared_host(cx: &Reads<'_>, (key, host): &(SharedHostsKey, Hostname)) -> Option<Arc<SharedHost>> {
    let port = key.port;
    let is_public = |service: &ServiceKey| {
        let keys = |row: &Arc<Service>| PublicServicesByPort::keys(service, row).contains(&port);
        cx.with::<Services, _>(service, |row| row.is_some_and(keys))
    };
    open(cx, &common_scope(key), &bind::unconditional(), |client| {
        let served = (client.find)(host).filter(is_public);
        Some(Arc::new(SharedHost::of(client, port, host, served)))
    })
}

fn derive_shared_hosts(cx: &Reads<'_>, key: &SharedHostsKey) -> Option<Arc<SharedTable>> {
    let mut table = SharedTable::of(key.clone());
    let public = cx.get::<PublicServicesByPort>(&key.port);
    let mut hosts: Vec<&Hostname> = public.iter().flat_map(|keys| keys.iter()).map(|key| &key.hostname).collect();
    hosts.dedup();
    let rows = hosts.into_iter().filter_map(|host| cx.get::<SharedHostRows>(&(key.clone(), host.clone())));
    table.services = rows.map(|row| (*row).clone()).collect();
    table.in_use = table.services.iter().filter_map(|row| row.in_use.clone()).collect();
    let served: Vec<ServiceKey> = table.services.iter().filter_map(|row| row.served.clone()).collect();
    open(cx, &common_scope(key), &bind::unconditional(), |client| table.add_others(client, key.port, &served));
    table.finish();
    Some(Arc::new(table))
}

impl SharedHost {
    /// The host, which resolves to this service with the port.
    fn of(client: &Client<'_>, port: u16, host: &Hostname, served: Option<ServiceKey>) -> SharedHost {
        let made = served.as_ref().and_then(|key| client.service(key, port));
        let mut names: BTreeSet<Arc<str>> = BTreeSet::new();
        let called = client.aliases.of(host).iter().chain([host]);
        names.extend(called.filter_map(|host| domains::local_namespace(host.as_str()).map(Arc::from)));
        particular_to(client.cx, host, &mut names);
        if let Some(key) = &served {
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
        let differs = if by_label { Differs::ForAll } else { Differs::For(names) };
        let (spec, in_use) = made.map_or((None, None), |(spec, routes)| (Some(spec), routes.cloned()));
        SharedHost { host: host.clone(), differs, served, spec, in_use }
    }

    fn name(&self) -> Option<&Arc<str>> {
        self.spec.as_ref().map(|spec| &spec.name)
    }
}

impl SharedTable {
    /// The virtual hosts.
    pub fn list(&self) -> &Arc<SharedHostList> {
        &self.list
    }

    fn of(key: SharedHostsKey) -> SharedTable {
        SharedTable {
            services: Vec::new(),
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
        self.services.sort_by(|a, b| a.name().cmp(&b.name()));
        let services = self.services.iter().enumerate().filter_map(|(at, host)| Some((at, host.spec.as_ref()?)));
        let others = self.others.iter().flatten().map(|spec| (OTHERS, spec));
        let mut all: Vec<(usize, &Arc<VirtualHostSpec>)> = services.chain(others).collect();
        let mut count = 0;
        let domains = all.iter().flat_map(|(at, spec)| spec.domains.iter().map(|d| (d.clone(), *at)));
        self.owners = domains.inspect(|_| count += 1).collect();
        self.unique = self.owners.len() == count;
        all.sort_by(|a, b| a.1.name.cmp(&b.1.name));
        self.places = vec![None; self.services.len()];
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
        for (at, host) in self.services.iter().enumerate() {
            self.by_host.insert(host.host.clone(), at);
            if let Some(spec) = &host.spec {
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
