//! Patched route tables.
//!
//! Virtual hosts that no patch can match are not read one by one: the table shares their bytes with other tables. Each of the
//! others has a cell of its own, so that a changed route decodes one virtual host and not the table.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use config::istio::envoy_filter::{ApplyTo, PatchOperation};
use envoy::{Pieces, RouteConfigs, SharedVirtualHosts, TableOptions, VirtualHosts};
use flow::Reads;
use model::audience::{Filters, HostList, HostRun, RouteAudience, SharedHostsKey, VirtualHostSpec};
use model::xds::Resource;
use protos::dynamic::{DynamicMessage, Value, descriptor, encode_dynamic};
use traffic::routes::RouteTables;

use crate::apply::{self, domains};
use crate::budget::Budget;
use crate::compile::{Chosen, chosen, refer};
use crate::error::PatchError;
use crate::matching::{TableFacts, matches_host, outbound};
use crate::outcome::{Left, Outcomes, Patched};

flow::rule! {
    /// Patched virtual hosts, each encoded as the `virtual_hosts` field of a table; absent if a patch removes it.
    pub PatchedVirtualHosts: Arc<PatchedHost> => HostRow = "patched virtual hosts", derive_patched_virtual_hosts;
}

/// A virtual host, and the patches that may match it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchedHost {
    /// The unpatched virtual host.
    pub host: Arc<VirtualHostSpec>,
    /// The patches; at least one.
    pub filters: Filters,
}

/// A patched virtual host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRow {
    /// The encoded field.
    body: Bytes,
    /// Its domains, which the patches may have changed.
    domains: Vec<String>,
    /// The patches of its key that were not applied.
    left: Box<[Left]>,
}

fn derive_patched_virtual_hosts(cx: &Reads<'_>, key: &Arc<PatchedHost>) -> Option<HostRow> {
    let plain = cx.get::<VirtualHosts>(&key.host)?;
    let unchanged = || HostRow {
        body: (*plain).clone(),
        domains: key.host.domains.iter().map(|domain| domain.to_string()).collect(),
        left: Outcomes::default().left(&key.filters),
    };
    let Some(host) = decode_hosts(&plain).pop() else {
        return Some(unchanged());
    };
    let mut outcomes = Outcomes::default();
    let host = apply::virtual_host(host, &chosen(cx, &key.filters), &mut outcomes)?;
    Some(HostRow { domains: domains(&host), body: encode_hosts(vec![host]), left: outcomes.left(&key.filters) })
}

flow::rule! {
    /// Encoded route tables of audiences with patches.
    pub PatchedRouteConfigs: (Arc<RouteAudience>, Arc<str>) => Patched = "patched route configurations", derive_patched_route_configs;
}

fn derive_patched_route_configs(cx: &Reads<'_>, (audience, name): &(Arc<RouteAudience>, Arc<str>)) -> Option<Patched> {
    let plain = (audience.plain(), name.clone());
    let facts = TableFacts::discovered(audience, name);
    let context = outbound(&audience.class);
    let patches = chosen(cx, &audience.filters).into_iter();
    let patches: Vec<Chosen> = patches.filter(|patch| patch.is_for(context) && facts.matches(patch)).collect();
    let mut outcomes = Outcomes::default();
    if patches.is_empty() {
        return Some(Patched {
            resource: (*cx.get::<RouteConfigs>(&plain)?).clone(),
            left: outcomes.left(&audience.filters),
        });
    }
    let table = cx.get::<RouteTables>(&plain)?;
    let mut budget = Budget::of_many();
    let mut taken: Vec<Vec<String>> = Vec::new();
    let plain: Vec<Arc<VirtualHostSpec>> = table.virtual_hosts.iter().cloned().collect();
    let mut hosts = TableHosts::default();
    for (run, at, host) in each(&table.virtual_hosts) {
        let mut matching: Vec<&Chosen> = patches.iter().filter(|patch| is_of_host(patch, host)).collect();
        matching.retain(|patch| {
            let covered = budget.admit(patch);
            if !covered {
                outcomes.skip(&patch.id, || PatchError::TooMuchForMany.to_string().into());
            }
            covered
        });
        let row = match matching.is_empty() {
            true => None,
            false => match changed(cx, host, &plain, &matching, &mut outcomes) {
                Changed::Removed => continue,
                Changed::Replaced(row) => Some(row),
                Changed::Unchanged => None,
            },
        };
        match row {
            Some(row) => {
                if !same(&row.domains, host) {
                    taken.push(row.domains.clone());
                }
                hosts.push(row.body.clone());
            }
            None => hosts.unchanged(cx, run, at, host),
        }
    }
    add(&patches, &plain, taken, &mut hosts, &mut outcomes);
    let (before, behind) = envoy::route_configuration(name, None, TableOptions::of(&table));
    let resource = match changes_table(&patches) {
        None => Resource::in_pieces(name.clone(), hosts.table(cx, &before, &behind)),
        Some(Settings::Other) => {
            let fields = settings([before, behind].concat().into(), &patches, &mut outcomes);
            Resource::in_pieces(name.clone(), hosts.table(cx, &fields, &[]))
        }
        Some(Settings::Hosts) => {
            let body = hosts.table(cx, &before, &behind).concat().into();
            Resource::new(name.clone(), settings(body, &patches, &mut outcomes))
        }
    };
    Some(Patched { resource, left: outcomes.left(&audience.filters) })
}

/// The virtual hosts of a table, each with its run and its index there.
fn each(hosts: &HostList) -> impl Iterator<Item = (&HostRun, usize, &Arc<VirtualHostSpec>)> {
    hosts.runs().iter().flat_map(|run| run.hosts().iter().enumerate().map(move |(at, host)| (run, at, host)))
}

/// The encoded virtual hosts of a table, in order.
#[derive(Default)]
struct TableHosts(Vec<Encoded>);

enum Encoded {
    /// Virtual hosts of a list that tables share.
    Shared(SharedHostsKey, Range<usize>),
    /// A virtual host, or several.
    Own(Bytes),
}

impl TableHosts {
    fn push(&mut self, host: Bytes) {
        self.0.push(Encoded::Own(host));
    }

    /// Adds a virtual host as it is: that of a run with this index.
    fn unchanged(&mut self, cx: &Reads<'_>, run: &HostRun, at: usize, host: &Arc<VirtualHostSpec>) {
        let HostRun::Shared(list, range) = run else {
            self.0.extend(cx.get::<VirtualHosts>(host).map(|row| Encoded::Own((*row).clone())));
            return;
        };
        let at = range.start + at;
        match self.0.last_mut() {
            Some(Encoded::Shared(key, range)) if range.end == at && *key == list.key => range.end = at + 1,
            _ => self.0.push(Encoded::Shared(list.key.clone(), at..at + 1)),
        }
    }

    /// The table with these fields before and behind its virtual hosts.
    fn table(self, cx: &Reads<'_>, before: &[u8], behind: &[u8]) -> Box<[Bytes]> {
        let mut body = Pieces::default();
        body.copy(before);
        for hosts in self.0 {
            match hosts {
                Encoded::Own(host) => body.copy(&host),
                Encoded::Shared(key, range) => {
                    cx.with::<SharedVirtualHosts, _>(&key, |shared| shared.map(|s| body.share(s.slice(&range))));
                }
            }
        }
        body.copy(behind);
        body.finish()
    }
}

/// The result for a virtual host.
enum Changed {
    Removed,
    Replaced(Arc<HostRow>),
    Unchanged,
}

/// Applies patches to a virtual host of a table.
fn changed(
    cx: &Reads<'_>,
    host: &Arc<VirtualHostSpec>,
    table: &[Arc<VirtualHostSpec>],
    matching: &[&Chosen],
    outcomes: &mut Outcomes,
) -> Changed {
    let filters = refer(matching.iter().copied());
    let key = Arc::new(PatchedHost { host: host.clone(), filters });
    let Some(row) = cx.get::<PatchedVirtualHosts>(&key) else {
        let removes =
            |patch: &&&Chosen| patch.apply_to == ApplyTo::VirtualHost && patch.operation == PatchOperation::Remove;
        matching.iter().filter(removes).for_each(|patch| outcomes.applied(&patch.id));
        return Changed::Removed;
    };
    let mut found = Outcomes::default();
    found.add_left(&key.filters, &row.left);
    // Envoy rejects a table with duplicate domains.
    let fits = same(&row.domains, host) || are_free(&row.domains, host, table);
    if !fits {
        found.discarded(&PatchError::DomainTaken);
    }
    outcomes.add(found);
    if fits { Changed::Replaced(row) } else { Changed::Unchanged }
}

/// Adds virtual hosts whose domains are not in the table.
fn add(
    patches: &[Chosen],
    table: &[Arc<VirtualHostSpec>],
    mut taken: Vec<Vec<String>>,
    hosts: &mut TableHosts,
    outcomes: &mut Outcomes,
) {
    for (patch, value) in apply::added_hosts(patches) {
        let domains = domains(value);
        let there = |domain: &String| {
            taken.iter().any(|others| others.contains(domain))
                || table.iter().any(|host| host.domains.iter().any(|one| **one == **domain))
        };
        if domains.iter().any(there) {
            outcomes.attempt(patch, || Err(PatchError::DomainTaken));
        } else {
            outcomes.attempt(patch, || {
                taken.push(domains);
                hosts.push(encode_hosts(vec![value.clone()]));
                Ok(true)
            });
        }
    }
}

/// Whether a patch may change a virtual host or its routes.
fn is_of_host(patch: &Chosen, host: &VirtualHostSpec) -> bool {
    let changes = match patch.apply_to {
        ApplyTo::VirtualHost => patch.operation != PatchOperation::Add,
        ApplyTo::HttpRoute => true,
        _ => false,
    };
    changes && matches_host(patch, &host.name, |domain| host.domains.iter().any(|one| **one == *domain))
}

/// The fields that patches of the table itself change.
enum Settings {
    /// Its list of virtual hosts.
    Hosts,
    /// No virtual hosts, so that those need not be decoded.
    Other,
}

/// The fields of the table itself that patches change; `None` if there are no such patches.
fn changes_table(patches: &[Chosen]) -> Option<Settings> {
    let merged = |patch: &&Chosen| patch.apply_to == ApplyTo::RouteConfiguration && patch.operation.merges();
    let lists = |patch: &Chosen| patch.value.as_ref().is_some_and(|value| value.has_field_by_name("virtual_hosts"));
    let mut merged = patches.iter().filter(merged).peekable();
    merged.peek()?;
    Some(if merged.any(lists) { Settings::Hosts } else { Settings::Other })
}

/// Merges patches into a table, or into its fields without the virtual hosts.
fn settings(body: Bytes, patches: &[Chosen], outcomes: &mut Outcomes) -> Bytes {
    let descriptor = ApplyTo::RouteConfiguration.message().and_then(descriptor);
    let decoded = descriptor.and_then(|of| DynamicMessage::decode(of, body.clone()).ok());
    match decoded {
        Some(mut table) => {
            apply::table_settings(&mut table, patches, outcomes);
            encode_dynamic(&table).into()
        }
        None => body,
    }
}

fn same(domains: &[String], host: &VirtualHostSpec) -> bool {
    domains.iter().map(String::as_str).eq(host.domains.iter().map(|domain| &**domain))
}

/// Whether these domains are unique in the table.
fn are_free(domains: &[String], host: &Arc<VirtualHostSpec>, table: &[Arc<VirtualHostSpec>]) -> bool {
    let others = || table.iter().filter(|other| !Arc::ptr_eq(other, host) && other.name != host.name);
    let free = |(at, domain): (usize, &String)| {
        !domains[..at].contains(domain) && !others().any(|other| other.domains.iter().any(|one| **one == **domain))
    };
    domains.iter().enumerate().all(free)
}

/// The virtual hosts in encoded fields of a table.
fn decode_hosts(fields: &Bytes) -> Vec<DynamicMessage> {
    let descriptor = ApplyTo::RouteConfiguration.message().and_then(descriptor);
    let table = descriptor.and_then(|of| DynamicMessage::decode(of, fields.clone()).ok());
    let hosts = table.and_then(|mut table| table.take_field_by_name("virtual_hosts"));
    let Some(Value::List(hosts)) = hosts else {
        return Vec::new();
    };
    let hosts = hosts.into_iter().filter_map(|host| match host {
        Value::Message(host) => Some(host),
        _ => None,
    });
    hosts.collect()
}

/// Virtual hosts as encoded fields of a table.
fn encode_hosts(hosts: Vec<DynamicMessage>) -> Bytes {
    let Some(descriptor) = ApplyTo::RouteConfiguration.message().and_then(descriptor) else {
        return Bytes::new();
    };
    let mut table = DynamicMessage::new(descriptor);
    let hosts = hosts.into_iter().map(Value::Message).collect();
    table.set_field_by_name("virtual_hosts", Value::List(hosts));
    encode_dynamic(&table).into()
}
