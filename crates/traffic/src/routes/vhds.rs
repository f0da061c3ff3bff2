//! The virtual hosts of route tables as resources of their own (VHDS): `TABLE/VIRTUAL HOST`.
//!
//! The list of a port that tables share is one catalogue for all of them. The catalogue of a table has the virtual hosts that
//! differ, and hides the shared ones that the table does not have.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::{
    HostRun, ResourceKey, RouteAudience, RouteTable, Section, SharedHostList, SharedHostsKey, VirtualHostSpec,
};

use super::{RouteTables, SharedHosts, virtual_host_name};
use crate::Catalogue;

flow::rule! {
    /// The virtual hosts that the tables of a port share.
    pub SharedHostCatalogue: SharedHostsKey => Catalogue = "shared virtual host catalogue", derive_shared_host_catalogue;
}

fn derive_shared_host_catalogue(cx: &Reads<'_>, key: &SharedHostsKey) -> Option<Catalogue> {
    let shared = cx.get::<SharedHosts>(key)?;
    let list = shared.list();
    let table: Arc<str> = key.port.to_string().into();
    let hosts = list.resource_names.iter().cloned().zip(&list.hosts);
    Some(Catalogue::new(
        hosts.map(|(name, host)| (name, ResourceKey::VirtualHost(table.clone(), host.clone()))).collect(),
    ))
}

flow::rule! {
    /// The virtual hosts of a route table, or those that differ from the shared ones.
    pub VirtualHostCatalogue: (Section, Arc<RouteAudience>, Arc<str>) => Catalogue = "virtual host catalogue", derive_virtual_host_catalogue;
}

fn derive_virtual_host_catalogue(
    cx: &Reads<'_>,
    (section, audience, name): &(Section, Arc<RouteAudience>, Arc<str>),
) -> Option<Catalogue> {
    let table = cx.get::<RouteTables>(&(audience.clone(), name.clone()))?;
    let scope = &audience.scope;
    let shared = SharedHostsKey::of_table(&scope.cluster, scope.assigned, name).filter(|_| *section == Section::Own);
    // The shared list of the table may be an older one: it only has to be equal in what the table refers to.
    let shared = shared.and_then(|key| cx.get::<SharedHosts>(&key));
    match shared {
        Some(shared) => Some(differing(&table, name, shared.list())),
        None => Some(all(&table, name)),
    }
}

/// The name of a virtual host of a table as a resource: of the one with this index in a run.
pub fn resource_name(run: &HostRun, at: usize, table: &str) -> Arc<str> {
    match run {
        HostRun::Shared(list, range) => list.resource_names[range.start + at].clone(),
        HostRun::Own(host) => virtual_host_name(table, &host.name),
        HostRun::Part(part) => part.resource_names[at].clone(),
    }
}

fn all(table: &RouteTable, name: &Arc<str>) -> Catalogue {
    let mut rows = Vec::with_capacity(table.virtual_hosts.len());
    for run in table.virtual_hosts.runs() {
        let key = |host: &Arc<VirtualHostSpec>| ResourceKey::VirtualHost(name.clone(), host.clone());
        rows.extend(run.hosts().iter().enumerate().map(|(at, host)| (resource_name(run, at, name), key(host))));
    }
    Catalogue::new(rows)
}

/// The virtual hosts that differ from those of the shared list, and rows that hide the others.
fn differing(table: &RouteTable, name: &Arc<str>, shared: &SharedHostList) -> Catalogue {
    let mut rows = Vec::new();
    let mut equal: BTreeSet<usize> = BTreeSet::new();
    // An own host can only replace a shared one that the table leaves out. They are few.
    let missing = table.virtual_hosts.missing(shared);
    for run in table.virtual_hosts.runs() {
        let HostRun::Own(host) = run else { continue };
        match missing.binary_search_by(|at| shared.hosts[*at].name.cmp(&host.name)) {
            Ok(at) if shared.hosts[missing[at]] == *host => drop(equal.insert(missing[at])),
            _ => rows.push((virtual_host_name(name, &host.name), ResourceKey::VirtualHost(name.clone(), host.clone()))),
        }
    }
    // Of two rows with one name the first counts: those that replace a shared virtual host do not hide it.
    let hidden = missing.into_iter().filter(|at| !equal.contains(at));
    rows.extend(hidden.map(|at| (shared.resource_names[at].clone(), ResourceKey::Hidden)));
    Catalogue::new(rows)
}
