//! Patched virtual hosts of route tables.
//!
//! Virtual hosts that no patch can match stay as they are: tables share their bytes, or the resources of VHDS. Each of the
//! others has a cell of its own, so that a changed route decodes one virtual host. Which they are is decided by a [`plan`],
//! which reads a patched virtual host only if a patch may remove it or change its domains.

use std::sync::Arc;

use bytes::Bytes;
use config::istio::envoy_filter::{ApplyTo, PatchOperation};
use envoy::VirtualHosts;
use flow::Reads;
use model::audience::{Filters, HostList, HostRun, HostSource, PatchedHost, VirtualHostSpec};
use protos::dynamic::{DynamicMessage, Value, descriptor, encode_dynamic};

use crate::apply::{self, Domains, domains, text};
use crate::budget::Budget;
use crate::compile::{Chosen, CompiledFilters, chosen, refer};
use crate::error::PatchError;
use crate::matching::{TableFacts, matches_host};
use crate::outcome::{Left, Outcomes, Patched};

flow::rule! {
    /// Patched virtual hosts, each encoded as the `virtual_hosts` field of a table; absent if a patch removes it.
    pub PatchedVirtualHosts: Arc<PatchedHost> => HostRow = "patched virtual hosts", derive_patched_virtual_hosts;
}

/// A patched virtual host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostRow {
    /// The encoded field.
    pub(crate) body: Bytes,
    /// Its domains, which the patches may have changed.
    domains: Vec<String>,
    /// The patches of its key that were not applied.
    pub(crate) left: Box<[Left]>,
}

fn derive_patched_virtual_hosts(cx: &Reads<'_>, key: &Arc<PatchedHost>) -> Option<HostRow> {
    let mut outcomes = Outcomes::default();
    let host = match &key.host {
        HostSource::Table(host) => {
            let plain = cx.get::<VirtualHosts>(host)?;
            let Some(decoded) = decode_host(&plain) else {
                let domains = host.domains.iter().map(|domain| domain.to_string()).collect();
                return Some(HostRow { body: (*plain).clone(), domains, left: outcomes.left(&key.filters) });
            };
            decoded
        }
        HostSource::Patch { filter, patch, host } => {
            let filter = cx.get::<CompiledFilters>(filter)?;
            apply::added_host(filter.patches.get(usize::from(*patch))?.as_ref()?, *host)?
        }
    };
    let host = apply::virtual_host(host, &chosen(cx, &key.filters), &mut outcomes)?;
    Some(HostRow { domains: domains(&host), body: encode_host(host), left: outcomes.left(&key.filters) })
}

flow::rule! {
    /// Patched virtual hosts as resources of these names. A patch does not change the name: Envoy removes virtual hosts by the
    /// names of their resources.
    pub PatchedVirtualHostResources: (Arc<str>, Arc<PatchedHost>) => Patched = "patched virtual host resources", derive_patched_virtual_host_resources;
}

fn derive_patched_virtual_host_resources(
    cx: &Reads<'_>,
    (name, host): &(Arc<str>, Arc<PatchedHost>),
) -> Option<Patched> {
    let row = cx.get::<PatchedVirtualHosts>(host)?;
    let resource = envoy::virtual_host_resource(name.clone(), &row.body)?;
    Some(Patched { resource, left: row.left.clone() })
}

/// The patches that may change a route table with these facts, or its virtual hosts.
pub(crate) fn patches_of_table(cx: &Reads<'_>, filters: &Filters, facts: &TableFacts<'_>) -> Vec<Chosen> {
    let matches = |patch: &Chosen| patch.is_for(facts.context()) && facts.matches(patch);
    chosen(cx, filters).into_iter().filter(matches).collect()
}

/// A virtual host of a table: its run, and its index there.
pub(crate) type Place<'t> = (&'t HostRun, usize);

/// A virtual host of a table with patches.
pub(crate) enum Planned<'t> {
    /// A virtual host that no patch changes.
    Plain(Place<'t>),
    /// A virtual host that patches may change.
    Patched(Place<'t>, Arc<PatchedHost>),
    /// A virtual host that a patch adds, with its name.
    Added(String, Arc<PatchedHost>),
}

/// The virtual hosts of a table with patches, in order. Their domains are unique.
pub(crate) struct Plan<'t> {
    pub(crate) hosts: Vec<Planned<'t>>,
    /// The outcomes that do not follow from the rows of patched virtual hosts.
    pub(crate) outcomes: Outcomes,
}

/// Plans the virtual hosts of a table with these patches.
pub(crate) fn plan<'t>(cx: &Reads<'_>, table: &'t HostList, patches: &[Chosen]) -> Plan<'t> {
    let from =
        patches.iter().rposition(|patch| patch.operation == PatchOperation::MergeAndReplaceList && merges(patch));
    let runs = if from.is_some() { &[] } else { table.runs() };
    let hosts = Vec::with_capacity(table.len());
    let plan = Plan { hosts, outcomes: Outcomes::default() };
    let mut planner = Planner { cx, patches, runs, budget: Budget::of_many(), domains: None, plan };
    for (number, (place, host)) in each(runs).enumerate() {
        planner.put(number, place, host);
    }
    for patch in patches[from.unwrap_or(0)..].iter().filter(|patch| merges(patch)) {
        planner.add(patch);
    }
    for patch in patches.iter().filter(|patch| apply::adds_host(patch)) {
        planner.add(patch);
    }
    planner.plan
}

/// Whether a patch may change which virtual hosts a table has.
pub(crate) fn changes_list(patch: &Chosen) -> bool {
    let removes = patch.apply_to == ApplyTo::VirtualHost && patch.operation == PatchOperation::Remove;
    removes || apply::adds_host(patch) || merges(patch)
}

/// Whether a patch merges virtual hosts into a table.
fn merges(patch: &Chosen) -> bool {
    let lists = || patch.value.as_ref().is_some_and(|value| value.has_field_by_name("virtual_hosts"));
    patch.apply_to == ApplyTo::RouteConfiguration && patch.operation.merges() && lists()
}

/// The virtual hosts of runs, with their places.
fn each(runs: &[HostRun]) -> impl Iterator<Item = (Place<'_>, &Arc<VirtualHostSpec>)> {
    runs.iter().flat_map(|run| run.hosts().iter().enumerate().map(move |(at, host)| ((run, at), host)))
}

struct Planner<'a, 'r, 't> {
    cx: &'a Reads<'r>,
    patches: &'a [Chosen],
    runs: &'t [HostRun],
    budget: Budget,
    /// The domains of the table. Collected when a patch changes or adds domains.
    domains: Option<Domains>,
    plan: Plan<'t>,
}

impl<'a, 't> Planner<'a, '_, 't> {
    /// Adds a virtual host of the table.
    fn put(&mut self, number: usize, place: Place<'t>, host: &Arc<VirtualHostSpec>) {
        let matching = self.matching(&host.name, |domain| host.domains.iter().any(|one| **one == *domain));
        if matching.is_empty() {
            return self.plan.hosts.push(Planned::Plain(place));
        }
        let key = PatchedHost { host: HostSource::Table(host.clone()), filters: refer(matching.iter().copied()) };
        let key = Arc::new(key);
        if matching.iter().any(|patch| may_move(patch)) {
            let Some(row) = self.cx.get::<PatchedVirtualHosts>(&key) else {
                return self.remove(&matching);
            };
            let same = row.domains.iter().map(String::as_str).eq(host.domains.iter().map(|domain| &**domain));
            // Envoy rejects a table with duplicate domains.
            if !same && !self.domains().take(number, &row.domains) {
                let mut found = Outcomes::default();
                found.add_left(&key.filters, &row.left);
                found.discarded(&PatchError::DomainTaken);
                self.plan.outcomes.add(found);
                return self.plan.hosts.push(Planned::Plain(place));
            }
        }
        self.plan.hosts.push(Planned::Patched(place, key));
    }

    /// Adds the virtual hosts of a patch whose domains are not in the table. Other patches may match those that are merged.
    fn add(&mut self, patch: &Chosen) {
        if !self.admit(patch) {
            return;
        }
        let hosts = (0..).map_while(|index| Some((index, apply::added_host(patch, index)?)));
        for (index, host) in hosts {
            let (name, domains) = (text(&host, "name"), domains(&host));
            let matching = match apply::adds_host(patch) {
                true => Vec::new(),
                false => self.matching(&name, |domain| domains.iter().any(|one| one == domain)),
            };
            let (filter, number) = (patch.id.filter.clone(), patch.id.index);
            let host = HostSource::Patch { filter, patch: number, host: index };
            let key = Arc::new(PatchedHost { host, filters: refer(matching.iter().copied()) });
            let Some(row) = self.cx.get::<PatchedVirtualHosts>(&key) else {
                self.remove(&matching);
                continue;
            };
            let owner = usize::MAX - self.plan.hosts.len();
            if self.domains().take(owner, &row.domains) {
                self.plan.outcomes.applied(&patch.id);
                self.plan.hosts.push(Planned::Added(name, key));
            } else {
                self.plan.outcomes.skip(&patch.id, || PatchError::DomainTaken.to_string().into());
            }
        }
    }

    fn remove(&mut self, matching: &[&Chosen]) {
        let removes =
            |patch: &&&Chosen| patch.apply_to == ApplyTo::VirtualHost && patch.operation == PatchOperation::Remove;
        matching.iter().filter(removes).for_each(|patch| self.plan.outcomes.applied(&patch.id));
    }

    /// The patches that may change a virtual host or its routes, as far as the budget covers them.
    fn matching(&mut self, name: &str, has: impl Fn(&str) -> bool) -> Vec<&'a Chosen> {
        let changes = |patch: &Chosen| match patch.apply_to {
            ApplyTo::VirtualHost => patch.operation != PatchOperation::Add,
            ApplyTo::HttpRoute => true,
            _ => false,
        };
        let patches = self.patches.iter().filter(|patch| changes(patch) && matches_host(patch, name, &has));
        patches.filter(|patch| self.admit(patch)).collect()
    }

    fn admit(&mut self, patch: &Chosen) -> bool {
        let covered = self.budget.admit(patch);
        if !covered {
            self.plan.outcomes.skip(&patch.id, || PatchError::TooMuchForMany.to_string().into());
        }
        covered
    }

    fn domains(&mut self) -> &mut Domains {
        let runs = self.runs;
        self.domains.get_or_insert_with(|| {
            let mut all = Domains::default();
            for (number, (_, host)) in each(runs).enumerate() {
                all.reserve(number, host.domains.iter().map(|domain| domain.to_string()));
            }
            all
        })
    }
}

/// Whether a patch may remove a virtual host or change its domains.
fn may_move(patch: &Chosen) -> bool {
    let sets = || patch.value.as_ref().is_some_and(|value| value.has_field_by_name("domains"));
    patch.apply_to == ApplyTo::VirtualHost && (!patch.operation.merges() || sets())
}

/// The virtual host in an encoded field of a table.
fn decode_host(field: &Bytes) -> Option<DynamicMessage> {
    let mut table = DynamicMessage::decode(descriptor(ApplyTo::RouteConfiguration.message()?)?, field.clone()).ok()?;
    match table.take_field_by_name("virtual_hosts")? {
        Value::List(hosts) => hosts.into_iter().find_map(|host| match host {
            Value::Message(host) => Some(host),
            _ => None,
        }),
        _ => None,
    }
}

/// A virtual host as an encoded field of a table.
fn encode_host(host: DynamicMessage) -> Bytes {
    let Some(descriptor) = ApplyTo::RouteConfiguration.message().and_then(descriptor) else {
        return Bytes::new();
    };
    let mut table = DynamicMessage::new(descriptor);
    table.set_field_by_name("virtual_hosts", Value::List(vec![Value::Message(host)]));
    encode_dynamic(&table).into()
}
