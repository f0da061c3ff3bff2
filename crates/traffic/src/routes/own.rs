//! The virtual hosts of services that clients of a namespace have otherwise than the shared list of a port.
//!
//! They have relations of their own, so that a service elsewhere, which changes the shared list, derives none of them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::{RouteAudience, SharedHostsKey, VirtualHostSpec};
use model::service::{ObjectId, ServiceKey};
use names::Hostname;
use registry::{Exported, Services, ServicesByExport};
use rustc_hash::FxHashSet;

use super::host::{Client, open};
use super::shared::SharedHosts;
use crate::virtual_service::MeshLookup;

/// Hosts in the order of the shared list, then those that it lacks.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct HostDifferences {
    /// Hosts of the shared list, and whether the service of each has the port there.
    replaced: Vec<(Hostname, bool)>,
    /// Further hosts.
    added: BTreeSet<Hostname>,
}

impl HostDifferences {
    /// The hosts of the shared list that it leaves out.
    pub(super) fn replaced(&self) -> impl Iterator<Item = &Hostname> {
        self.replaced.iter().map(|(host, _)| host)
    }
}

flow::rule! {
    /// The hosts that clients of a namespace with unrestricted visibility may have otherwise than the shared list.
    pub(super) DifferentHosts: (SharedHostsKey, Arc<str>) => Arc<HostDifferences> = "different hosts", derive_different_hosts;
    /// The virtual hosts of those for the clients of an audience, at a port.
    pub OwnHosts: (Arc<RouteAudience>, u16) => Arc<OwnHostList> = "own hosts", derive_own_hosts;
}

fn derive_different_hosts(
    cx: &Reads<'_>,
    (key, namespace): &(SharedHostsKey, Arc<str>),
) -> Option<Arc<HostDifferences>> {
    let base = cx.get::<SharedHosts>(key)?;
    // Services that are exported to the namespace explicitly.
    let private = cx.get::<ServicesByExport>(&Exported::Namespace(namespace.clone()));
    let mut added: BTreeSet<Hostname> =
        private.iter().flat_map(|keys| keys.iter()).map(|key| key.hostname.clone()).collect();
    let particular = base.by_client.get(namespace).into_iter().flatten();
    let mut replaced: BTreeSet<usize> = base.for_all.iter().chain(particular).copied().collect();
    for host in &added {
        replaced.extend(base.by_destination.get(host).into_iter().flatten());
        replaced.extend(base.by_host.get(host));
    }
    added.retain(|host| !base.by_host.contains_key(host));
    let lookup = MeshLookup::new(cx, namespace);
    if lookup.is_particular() {
        let hosts = base.services.iter().map(|shared| &shared.host).enumerate();
        replaced.extend(hosts.filter(|(_, host)| lookup.is_particular_about(host)).map(|(at, _)| at));
    }
    let shared = replaced.into_iter().map(|at| &base.services[at]);
    let replaced = shared.map(|shared| (shared.host.clone(), shared.served.is_some())).collect();
    Some(Arc::new(HostDifferences { replaced, added }))
}

/// The own virtual hosts of services of an audience.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct OwnHostList {
    /// Ascending by name.
    pub(super) hosts: Vec<(Hostname, Arc<VirtualHostSpec>)>,
    /// The VirtualServices that they use.
    pub(super) in_use: BTreeSet<ObjectId>,
    /// The clients have another service for a shared host, or the same one with other names or routes.
    pub(super) differs: bool,
    /// For such a host, their service and the shared one differ in having the port.
    pub(super) moved: bool,
    /// No two of the virtual hosts have the same domain.
    pub(super) unique: bool,
}

fn derive_own_hosts(cx: &Reads<'_>, (audience, port): &(Arc<RouteAudience>, u16)) -> Option<Arc<OwnHostList>> {
    let (scope, port) = (&audience.scope, *port);
    let key = SharedHostsKey { cluster: scope.cluster.clone(), assigned: scope.assigned, port };
    let differences = cx.get::<DifferentHosts>(&(key, scope.namespace.clone()))?;
    let mut own = OwnHostList::default();
    open(cx, scope, &audience.source, |client| {
        for (host, served) in &differences.replaced {
            if let Some(key) = (client.find)(host) {
                own.differs = true;
                let has_port = cx.with::<Services, _>(&key, |row| row.is_some_and(|row| row.port(port).is_some()));
                own.moved |= has_port != *served;
                own.add(client, port, host, &key);
            }
        }
        for host in &differences.added {
            if let Some(key) = (client.find)(host) {
                own.add(client, port, host, &key);
            }
        }
    });
    own.hosts.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let mut seen: FxHashSet<&str> = FxHashSet::default();
    own.unique = own.hosts.iter().flat_map(|(_, spec)| &spec.domains).all(|domain| seen.insert(domain));
    Some(Arc::new(own))
}

impl OwnHostList {
    fn add(&mut self, client: &Client<'_>, port: u16, host: &Hostname, key: &ServiceKey) {
        if let Some((spec, routes)) = client.service(key, port) {
            self.hosts.push((host.clone(), spec));
            self.in_use.extend(routes.cloned());
        }
    }
}
