//! The virtual hosts of route tables with patches, for VHDS.
//!
//! Patches that may match many virtual hosts are applied to the list of a port that tables share. Patches that name one are
//! in the own lists of the audiences, whose rows replace, hide or add to the shared ones. So the size of an own list depends on
//! the patches and not on the mesh.

use std::collections::BTreeSet;
use std::sync::Arc;

use flow::Reads;
use model::audience::{
    Filters, HostList, HostRun, ResourceKey, RouteAudience, Section, SharedHostsKey, VirtualHostAudience,
};
use traffic::Catalogue;
use traffic::routes::{
    RouteTables, SharedHostCatalogue, SharedHosts, VirtualHostCatalogue, resource_name, virtual_host_name,
};
use traffic::serving::Either;

use crate::hosts::{Plan, Planned, patches_of_table, plan};
use crate::matching::TableFacts;
use crate::outcome::{Left, Outcomes};

flow::rule! {
    /// The virtual hosts of a route table of an audience with patches.
    pub PatchedHostCatalogue: (VirtualHostAudience, Arc<str>) => PatchedHostList = "patched virtual host catalogue", derive_patched_host_catalogue;
}

/// The virtual hosts of a route table with patches.
#[derive(Clone, PartialEq, Debug)]
pub struct PatchedHostList {
    /// The name of the table.
    pub(crate) table: Arc<str>,
    /// The catalogue.
    pub catalogue: Arc<Catalogue>,
    /// The patches that did not change the list. They may change virtual hosts of it.
    pub(crate) left: Box<[Left]>,
}

/// The key of a catalogue of virtual hosts without patches.
pub(crate) type PlainHosts = Either<SharedHostsKey, (Section, Arc<RouteAudience>, Arc<str>)>;

/// The catalogue of an audience without its patches.
pub(crate) fn plain_hosts(audience: &VirtualHostAudience, table: &Arc<str>) -> Option<PlainHosts> {
    Some(match audience {
        VirtualHostAudience::All(audience) => Either::Second((Section::All, audience.plain(), table.clone())),
        VirtualHostAudience::Shared { .. } => Either::First(audience.shared_list(table)?),
        VirtualHostAudience::Own(audience, _) => Either::Second((Section::Own, audience.plain(), table.clone())),
    })
}

fn derive_patched_host_catalogue(
    cx: &Reads<'_>,
    (audience, name): &(VirtualHostAudience, Arc<str>),
) -> Option<PatchedHostList> {
    let filters = audience.filters();
    let (list, facts) = match audience {
        VirtualHostAudience::All(of) | VirtualHostAudience::Own(of, _) => {
            let table = cx.get::<RouteTables>(&(of.plain(), name.clone()))?;
            (table.virtual_hosts.clone(), TableFacts::discovered(of, name))
        }
        VirtualHostAudience::Shared { .. } => (shared(cx, audience, name)?, TableFacts::sidecar(name)),
    };
    let patches = patches_of_table(cx, filters, &facts);
    if patches.is_empty() {
        let catalogue = match plain_hosts(audience, name)? {
            Either::First(key) => cx.get::<SharedHostCatalogue>(&key)?,
            Either::Second(key) => cx.get::<VirtualHostCatalogue>(&key)?,
        };
        let left = Outcomes::default().left(filters);
        return Some(PatchedHostList { table: name.clone(), catalogue, left });
    }
    let planned = plan(cx, &list, &patches);
    let mut catalogue = rows(&planned, name);
    if let VirtualHostAudience::Own(_, below) = audience
        && let Some(list) = shared(cx, audience, name)
    {
        catalogue = catalogue.beside(&shared_rows(cx, &list, below, name));
    }
    let left = planned.outcomes.left(filters);
    Some(PatchedHostList { table: name.clone(), catalogue: Arc::new(catalogue), left })
}

/// The virtual hosts that tables of this name share, without patches.
fn shared(cx: &Reads<'_>, audience: &VirtualHostAudience, name: &str) -> Option<HostList> {
    let table = cx.get::<SharedHosts>(&audience.shared_list(name)?)?;
    Some(HostList::overlay(table.list(), &[], Vec::new()))
}

/// The catalogue of a shared list with patches.
fn shared_rows(cx: &Reads<'_>, list: &HostList, filters: &Filters, name: &Arc<str>) -> Catalogue {
    rows(&plan(cx, list, &patches_of_table(cx, filters, &TableFacts::sidecar(name))), name)
}

fn rows(plan: &Plan<'_>, table: &Arc<str>) -> Catalogue {
    let mut rows: Vec<(Arc<str>, ResourceKey)> = Vec::with_capacity(plan.hosts.len());
    let name_of = |(run, at): (&HostRun, usize)| resource_name(run, at, table);
    let patched = |name: Arc<str>, host| (name.clone(), ResourceKey::PatchedVirtualHost(name, host));
    for planned in &plan.hosts {
        rows.push(match planned {
            Planned::Plain(place) => {
                let host = place.0.hosts()[place.1].clone();
                (name_of(*place), ResourceKey::VirtualHost(table.clone(), host))
            }
            Planned::Patched(place, host) => patched(name_of(*place), host.clone()),
            Planned::Added(..) => continue,
        });
    }
    // Resources have unique names, which virtual hosts of a table need not have.
    let added = plan.hosts.iter().filter_map(|planned| match planned {
        Planned::Added(name, host) => Some((name, host)),
        _ => None,
    });
    let mut names: Option<BTreeSet<Arc<str>>> = None;
    for (name, host) in added.collect::<Vec<_>>() {
        let names = names.get_or_insert_with(|| rows.iter().map(|(name, _)| name.clone()).collect());
        let mut full = virtual_host_name(table, name);
        if !names.insert(full.clone()) {
            full = virtual_host_name(table, &format!("{name}~{}", host.host));
        }
        rows.push(patched(full, host.clone()));
    }
    Catalogue::new(rows)
}
