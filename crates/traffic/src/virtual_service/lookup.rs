//! Lookups of VirtualServices: by host for sidecars, by gateway for gateways.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use flow::Reads;
use model::service::{ExportTo, ObjectId};
use names::Hostname;
use registry::Exported;
use rustc_hash::FxHashMap;

use super::{Binding, Summary, VirtualServiceSummaries};
use crate::hosts::{EgressHosts, suffixes};

flow::index! {
    /// VirtualServices of sidecars, by the namespaces they are exported to.
    pub MeshVirtualServicesByExport: Exported => members of VirtualServiceSummaries = "mesh virtual services by export", mesh_virtual_services_by_export_keys;
}

fn mesh_virtual_services_by_export_keys(_: &ObjectId, row: &Arc<Summary>) -> Vec<Exported> {
    match &row.export_to {
        _ if !row.applies_to_mesh() => Vec::new(),
        ExportTo::All => vec![Exported::All],
        ExportTo::Namespaces(names) => names.iter().map(|n| Exported::Namespace(n.clone())).collect(),
    }
}

flow::index! {
    /// VirtualServices by their gateways.
    pub VirtualServicesByGateway: ObjectId => members of VirtualServiceSummaries = "virtual services by gateway", virtual_services_by_gateway_keys;
}

fn virtual_services_by_gateway_keys(_: &ObjectId, row: &Arc<Summary>) -> Vec<ObjectId> {
    let gateways = row.gateways.iter().filter_map(|g| match g {
        Binding::Gateway(id) => Some(id.clone()),
        Binding::Mesh => None,
    });
    gateways.collect()
}

/// The VirtualServices that are bound to a gateway and exported to the namespace of its proxies. Those that are
/// exported to this namespace only come first, then the oldest.
pub fn for_gateway(cx: &Reads<'_>, gateway: &ObjectId, namespace: &str) -> Vec<Arc<Summary>> {
    let Some(members) = cx.get::<VirtualServicesByGateway>(gateway) else {
        return Vec::new();
    };
    let summaries = members.iter().filter_map(|id| cx.get::<VirtualServiceSummaries>(id));
    let mut out: Vec<_> = summaries.filter(|s| s.export_to.includes(namespace)).map(|s| (*s).clone()).collect();
    out.sort_by(|a, b| precedence(a, b, namespace));
    out
}

/// Private ones first, then those exported to the namespace explicitly, then public ones; the oldest first in each
/// group.
pub(crate) fn precedence(a: &Summary, b: &Summary, namespace: &str) -> Ordering {
    let rank = |s: &Summary| match s.export_to {
        ExportTo::Namespaces(_) if &*s.id.namespace == namespace => 0,
        ExportTo::Namespaces(_) => 1,
        ExportTo::All => 2,
    };
    let age = |s: &Summary| (s.created, s.id.name.clone(), s.id.namespace.clone());
    rank(a).cmp(&rank(b)).then_with(|| age(a).cmp(&age(b)))
}

flow::rule! {
    /// The hosts of the VirtualServices that are exported to all namespaces, or to one namespace explicitly.
    pub MeshHosts: Exported => Arc<MeshHostTable> = "mesh hosts", derive_mesh_hosts;
}

fn derive_mesh_hosts(cx: &Reads<'_>, key: &Exported) -> Option<Arc<MeshHostTable>> {
    let members = cx.get::<MeshVirtualServicesByExport>(key)?;
    let namespace = match key {
        Exported::All => "",
        Exported::Namespace(name) => name,
    };
    let mut summaries: Vec<_> = members.iter().filter_map(|id| cx.get::<VirtualServiceSummaries>(id)).collect();
    summaries.sort_by(|a, b| precedence(a, b, namespace));
    let entries = summaries.iter().map(|s| MeshEntry { id: s.id.clone(), hosts: s.hosts.clone() });
    Some(Arc::new(MeshHostTable::new(entries.collect())))
}

/// A VirtualService and its hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeshEntry {
    /// The VirtualService.
    pub id: ObjectId,
    /// Its hosts.
    pub hosts: Vec<Hostname>,
}

/// VirtualServices in order of precedence, indexed by host.
#[derive(Clone, Default)]
pub struct MeshHostTable {
    entries: Vec<MeshEntry>,
    exact: FxHashMap<Arc<str>, Vec<usize>>,
    /// By the suffix after the star.
    wildcards: FxHashMap<Arc<str>, Vec<usize>>,
}

impl PartialEq for MeshHostTable {
    fn eq(&self, other: &MeshHostTable) -> bool {
        // The indexes follow from the entries.
        self.entries == other.entries
    }
}

impl fmt::Debug for MeshHostTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

impl MeshHostTable {
    fn new(entries: Vec<MeshEntry>) -> MeshHostTable {
        let mut out = MeshHostTable::default();
        for (at, entry) in entries.iter().enumerate() {
            for host in &entry.hosts {
                let list = match host.as_str().strip_prefix('*') {
                    Some(suffix) => out.wildcards.entry(suffix.into()).or_default(),
                    None => out.exact.entry(host.as_arc().clone()).or_default(),
                };
                list.push(at);
            }
        }
        out.entries = entries;
        out
    }

    /// Whether a VirtualService has this host or an overlapping wildcard.
    fn concerns(&self, host: &Hostname) -> bool {
        if host.is_wildcard() {
            return self.entries.iter().any(|e| e.hosts.iter().any(|h| h.matches(host)));
        }
        let covered = || suffixes(host).any(|suffix| !self.behind_star(suffix).is_empty());
        !self.exactly(host.as_str()).is_empty() || !self.wildcards.is_empty() && covered()
    }

    fn exactly(&self, host: &str) -> &[usize] {
        self.exact.get(host).map_or(&[], |list| list)
    }

    fn behind_star(&self, suffix: &str) -> &[usize] {
        self.wildcards.get(suffix).map_or(&[], |list| list)
    }
}

/// The VirtualServices that sidecars of a namespace see.
pub struct MeshLookup {
    /// The hosts exported to the namespace explicitly, then the hosts exported to all.
    tables: [Arc<MeshHostTable>; 2],
}

impl MeshLookup {
    /// Reads the VirtualServices that a namespace sees: two rows, whatever is looked up.
    pub fn new(cx: &Reads<'_>, namespace: &Arc<str>) -> MeshLookup {
        let table = |key| cx.get::<MeshHosts>(&key).map(|t| (*t).clone()).unwrap_or_default();
        MeshLookup { tables: [table(Exported::Namespace(namespace.clone())), table(Exported::All)] }
    }

    /// Whether VirtualServices are exported to the namespace explicitly.
    pub fn is_particular(&self) -> bool {
        !self.tables[0].entries.is_empty()
    }

    /// Whether one of those has this host or an overlapping wildcard.
    pub fn is_particular_about(&self, host: &Hostname) -> bool {
        self.is_particular() && self.tables[0].concerns(host)
    }

    /// All VirtualServices of a listener, in order of precedence.
    pub fn all<'a>(&'a self, listener: &'a EgressHosts) -> impl Iterator<Item = &'a MeshEntry> {
        let entries = self.tables.iter().flat_map(|t| &t.entries);
        entries.filter(|e| listener.admits_routes(&e.id.namespace, &e.hosts))
    }

    /// The VirtualServices of HTTP requests for a host, in order of precedence: those with this host, else those with
    /// the most specific wildcard that covers it.
    pub fn chosen(&self, listener: &EgressHosts, host: &Hostname) -> Vec<&MeshEntry> {
        if !host.is_wildcard() {
            let named = self.select(listener, |t| t.exactly(host.as_str()));
            if !named.is_empty() {
                return named;
            }
        }
        if self.tables.iter().all(|t| t.wildcards.is_empty()) {
            return Vec::new();
        }
        let covering = suffixes(host).map(|suffix| self.select(listener, |t| t.behind_star(suffix)));
        covering.into_iter().find(|list| !list.is_empty()).unwrap_or_default()
    }

    /// All VirtualServices with this host or an overlapping wildcard, in order of precedence.
    pub fn matching<'a>(&'a self, listener: &'a EgressHosts, host: &Hostname) -> Vec<&'a MeshEntry> {
        if host.is_wildcard() {
            return self.all(listener).filter(|e| e.hosts.iter().any(|h| h.matches(host))).collect();
        }
        let mut out = Vec::new();
        for table in &self.tables {
            let mut found = table.exactly(host.as_str()).to_vec();
            if !table.wildcards.is_empty() {
                found.extend(suffixes(host).flat_map(|suffix| table.behind_star(suffix)));
            }
            found.sort_unstable();
            found.dedup();
            let entries = found.into_iter().map(|at| &table.entries[at]);
            out.extend(entries.filter(|e| listener.admits_routes(&e.id.namespace, &e.hosts)));
        }
        out
    }

    fn select<'a>(
        &'a self,
        listener: &EgressHosts,
        list: impl Fn(&'a MeshHostTable) -> &'a [usize],
    ) -> Vec<&'a MeshEntry> {
        let found = self.tables.iter().flat_map(|t| list(t).iter().map(|at| &t.entries[*at]));
        found.filter(|e| listener.admits_routes(&e.id.namespace, &e.hosts)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Hostname {
        Hostname::parse(text).unwrap()
    }

    fn table(entries: &[(&str, &[&str])]) -> Arc<MeshHostTable> {
        let entry = |(name, hosts): &(&str, &[&str])| MeshEntry {
            id: ObjectId { namespace: "n".into(), name: (*name).into() },
            hosts: hosts.iter().map(|h| host(h)).collect(),
        };
        Arc::new(MeshHostTable::new(entries.iter().map(entry).collect()))
    }

    fn names(entries: Vec<&MeshEntry>) -> Vec<&str> {
        entries.into_iter().map(|e| &*e.id.name).collect()
    }

    #[test]
    fn the_most_specific_host_wins_then_the_order() {
        let private = table(&[("p", &["*.b.c"])]);
        let public = table(&[
            ("wide", &["*.c", "*.b.c"]),
            ("exact", &["a.b.c", "z.z"]),
            ("later", &["a.b.c"]),
            ("part", &["*x.b.c"]),
        ]);
        let lookup = MeshLookup { tables: [private, public] };
        let all = EgressHosts::everything();
        assert_eq!(names(lookup.chosen(&all, &host("a.b.c"))), ["exact", "later"]);
        assert_eq!(names(lookup.chosen(&all, &host("y.b.c"))), ["p", "wide"]);
        assert_eq!(names(lookup.chosen(&all, &host("yx.b.c"))), ["part"]);
        assert_eq!(names(lookup.chosen(&all, &host("q.c"))), ["wide"]);
        assert!(lookup.chosen(&all, &host("c")).is_empty());
        assert_eq!(names(lookup.matching(&all, &host("a.b.c"))), ["p", "wide", "exact", "later"]);
        assert_eq!(names(lookup.matching(&all, &host("*.z"))), ["exact"]);
        let narrow = EgressHosts::parse(&["n/z.z"], "n");
        assert_eq!(names(lookup.chosen(&narrow, &host("a.b.c"))), ["exact"]);
        assert_eq!(names(lookup.all(&narrow).collect()), ["exact"]);
    }
}
