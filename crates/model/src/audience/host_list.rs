//! The virtual hosts of a route table: runs of a list that many tables share, and hosts of the table's own.
//!
//! A table of a thousand virtual hosts that has three of its own holds a few runs. Its memory, and the work to derive it, do
//! not grow with the shared list.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::VirtualHostSpec;

/// Decides a list of virtual hosts that tables share.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SharedHostsKey {
    /// The clients' cluster, as in [`Scope`](super::Scope).
    pub cluster: Arc<str>,
    /// The clients call automatically assigned addresses, as in [`Scope`](super::Scope).
    pub assigned: bool,
    /// The port.
    pub port: u16,
}

impl SharedHostsKey {
    /// The list of a route table, by the name of the table; `None` if such a table has none.
    pub fn of_table(cluster: &Arc<str>, assigned: bool, table: &str) -> Option<SharedHostsKey> {
        let port: u16 = table.parse().ok()?;
        let is_port = port != 0 && port.to_string() == table;
        is_port.then(|| SharedHostsKey { cluster: cluster.clone(), assigned, port })
    }
}

/// Virtual hosts that tables share, ascending by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedHostList {
    /// Decides the list.
    pub key: SharedHostsKey,
    /// The virtual hosts.
    pub hosts: Vec<Arc<VirtualHostSpec>>,
    /// The name of each as a resource of VHDS.
    pub resource_names: Vec<Arc<str>>,
    /// One of them serves any domain.
    pub serves_any: bool,
}

/// A part of the virtual hosts of a table that has very many, ascending by name. Parts that did not change are not listed again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPart {
    /// The virtual hosts.
    pub hosts: Vec<Arc<VirtualHostSpec>>,
    /// The name of each as a resource of VHDS.
    pub resource_names: Vec<Arc<str>>,
    /// One of them serves any domain.
    pub serves_any: bool,
}

impl HostPart {
    /// Whether it has a host of this name.
    pub fn has(&self, name: &str) -> bool {
        self.hosts.binary_search_by(|host| (*host.name).cmp(name)).is_ok()
    }
}

/// The virtual hosts of a table, in order.
///
/// Lists are equal if their runs are: a run stands for a part of what is derived from its shared list.
#[derive(Clone, Default)]
pub struct HostList(Vec<HostRun>);

/// Virtual hosts that follow each other.
#[derive(Clone)]
pub enum HostRun {
    /// A part of a shared list.
    Shared(Arc<SharedHostList>, Range<usize>),
    /// A virtual host of the table's own.
    Own(Arc<VirtualHostSpec>),
    /// Virtual hosts of the table's own.
    Part(Arc<HostPart>),
}

impl HostList {
    /// A shared list without the hosts at these indices (ascending), and with these hosts (ascending by name), each with the
    /// index of a shared host that may have the same name.
    pub fn overlay(
        list: &Arc<SharedHostList>,
        without: &[usize],
        own: Vec<(Option<usize>, Arc<VirtualHostSpec>)>,
    ) -> HostList {
        let mut out = HostList::default();
        let (mut from, mut without) = (0, without.iter().copied());
        let mut next = without.next();
        let mut share = |out: &mut HostList, until: usize| {
            while let Some(at) = next.filter(|at| *at < until) {
                out.share(list, from..at);
                from = at + 1;
                next = without.next();
            }
            out.share(list, from..until);
            from = from.max(until);
        };
        for (place, host) in own {
            let place = place.filter(|at| list.hosts.get(*at).is_some_and(|other| other.name == host.name));
            let behind = || list.hosts.partition_point(|other| other.name <= host.name);
            share(&mut out, place.map_or_else(behind, |at| at + 1));
            out.push(host);
        }
        share(&mut out, list.hosts.len());
        out
    }

    fn share(&mut self, list: &Arc<SharedHostList>, range: Range<usize>) {
        if !range.is_empty() {
            self.0.push(HostRun::Shared(list.clone(), range));
        }
    }

    /// Adds a host at the end.
    pub fn push(&mut self, host: Arc<VirtualHostSpec>) {
        self.0.push(HostRun::Own(host));
    }

    /// The hosts in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<VirtualHostSpec>> {
        self.0.iter().flat_map(|run| run.hosts())
    }

    /// Whether this host is among them.
    pub fn contains(&self, host: &VirtualHostSpec) -> bool {
        self.0.iter().any(|run| match run {
            HostRun::Shared(list, range) => {
                let found = list.hosts.binary_search_by(|other| other.name.cmp(&host.name));
                found.is_ok_and(|at| range.contains(&at) && *list.hosts[at] == *host)
            }
            HostRun::Own(own) => **own == *host,
            HostRun::Part(part) => part.hosts.iter().any(|own| **own == *host),
        })
    }

    /// The indices in the shared list of the hosts that are not among them. A list has parts of one shared list at most.
    pub fn missing(&self, shared: &SharedHostList) -> Vec<usize> {
        let mut missing = Vec::new();
        let mut from = 0;
        for run in &self.0 {
            if let HostRun::Shared(_, range) = run {
                missing.extend(from..range.start);
                from = range.end;
            }
        }
        missing.extend(from..shared.hosts.len());
        missing
    }

    /// Whether a part of a shared list is among them.
    pub fn shares(&self) -> bool {
        self.0.iter().any(|run| matches!(run, HostRun::Shared(..)))
    }

    /// The runs in order.
    pub fn runs(&self) -> &[HostRun] {
        &self.0
    }

    /// The number of hosts.
    pub fn len(&self) -> usize {
        self.0.iter().map(|run| run.hosts().len()).sum()
    }

    /// Whether one of the hosts serves any domain.
    pub fn serves_any(&self) -> bool {
        let may_serve = |run: &&HostRun| match run {
            HostRun::Shared(list, _) => list.serves_any,
            HostRun::Own(_) => true,
            HostRun::Part(part) => part.serves_any,
        };
        self.0.iter().filter(may_serve).flat_map(HostRun::hosts).any(|host| host.serves_any())
    }

    /// Whether there are no hosts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl HostRun {
    /// The hosts in order.
    pub fn hosts(&self) -> &[Arc<VirtualHostSpec>] {
        match self {
            HostRun::Shared(list, range) => &list.hosts[range.clone()],
            HostRun::Own(host) => std::slice::from_ref(host),
            HostRun::Part(part) => &part.hosts,
        }
    }
}

impl FromIterator<HostRun> for HostList {
    fn from_iter<I: IntoIterator<Item = HostRun>>(runs: I) -> HostList {
        HostList(runs.into_iter().collect())
    }
}

impl FromIterator<Arc<VirtualHostSpec>> for HostList {
    fn from_iter<I: IntoIterator<Item = Arc<VirtualHostSpec>>>(hosts: I) -> HostList {
        HostList(hosts.into_iter().map(HostRun::Own).collect())
    }
}

impl PartialEq for HostRun {
    fn eq(&self, other: &HostRun) -> bool {
        match (self, other) {
            (HostRun::Shared(one, at), HostRun::Shared(other, there)) => {
                at == there
                    && (Arc::ptr_eq(one, other)
                        || one.key == other.key && one.hosts[at.clone()] == other.hosts[at.clone()])
            }
            (HostRun::Own(one), HostRun::Own(other)) => one == other,
            (HostRun::Part(one), HostRun::Part(other)) => one == other,
            _ => false,
        }
    }
}

impl PartialEq for HostList {
    fn eq(&self, other: &HostList) -> bool {
        self.0 == other.0
    }
}

impl Eq for HostList {}

impl fmt::Debug for HostList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::VirtualHostContent;
    use super::*;

    fn host(name: u8) -> Arc<VirtualHostSpec> {
        Arc::new(VirtualHostSpec {
            name: format!("{name:03}").into(),
            domains: Vec::new(),
            content: VirtualHostContent::NotFound,
            require_tls: false,
            session: None,
            overrides: None,
        })
    }

    proptest! {
        #[test]
        fn an_overlay_has_the_kept_and_the_own_hosts_in_order(
            shared in prop::collection::btree_map(any::<u8>(), any::<bool>(), 0..40),
            own in prop::collection::btree_map(any::<u8>(), any::<prop::sample::Index>(), 0..10),
        ) {
            let key = SharedHostsKey { cluster: "".into(), assigned: false, port: 80 };
            let hosts = shared.keys().map(|name| host(*name)).collect();
            let list = Arc::new(SharedHostList { key, hosts, resource_names: Vec::new(), serves_any: false });
            // A host of the table's own replaces the shared one.
            let kept = |(name, keep): (&u8, &bool)| *keep && !own.contains_key(name);
            let without: Vec<usize> = shared.iter().enumerate().filter(|(_, row)| !kept(*row)).map(|(at, _)| at).collect();
            let place = |name: &u8, wrong: &prop::sample::Index| match shared.keys().position(|other| other == name) {
                Some(at) => Some(at),
                None => (!shared.is_empty()).then(|| wrong.index(shared.len())),
            };
            let own_hosts = own.iter().map(|(name, wrong)| (place(name, wrong), host(*name))).collect();
            let made = HostList::overlay(&list, &without, own_hosts);
            let mut expected: Vec<u8> = shared.iter().filter(|row| kept(*row)).map(|(name, _)| *name).collect();
            expected.extend(own.keys());
            expected.sort_unstable();
            let names: Vec<String> = expected.iter().map(|name| format!("{name:03}")).collect();
            prop_assert_eq!(made.iter().map(|host| host.name.to_string()).collect::<Vec<_>>(), names);
            prop_assert!(made.runs().len() <= without.len() + 2 * own.len() + 1);
            prop_assert_eq!(made.missing(&list), without);
        }
    }
}
