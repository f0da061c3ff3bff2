//! Patches of route tables, virtual hosts and routes.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};

use config::istio::envoy_filter::{ApplyTo, PatchOperation, RouteAction, RouteMatch};
use protos::dynamic::{DynamicMessage, Value};

use super::places::place;
use super::{list, merge_value, of, text, texts};
use crate::compile::CompiledPatch;
use crate::error::PatchError;
use crate::matching::{TableFacts, host_match, matches_host};
use crate::outcome::Outcomes;

/// Changes a route table of an inbound listener and its parts.
pub fn route_configuration<P: Borrow<CompiledPatch>>(
    table: &mut DynamicMessage,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    let name = text(table, "name");
    let facts = TableFacts::sidecar(&name);
    let matching = patches.iter().map(Borrow::borrow);
    let matching: Vec<&CompiledPatch> = matching.filter(|patch: &&CompiledPatch| facts.matches(patch)).collect();
    table_settings(table, &matching, outcomes);
    let Some(hosts) = list(table, "virtual_hosts") else {
        return;
    };
    let before = std::mem::take(hosts);
    let mut taken = Domains::default();
    let count = before.len();
    for (number, host) in before.into_iter().enumerate() {
        let Value::Message(plain) = host else { continue };
        let mut found = outcomes.part();
        let changed = virtual_host(plain.clone(), &matching, &mut found);
        if let Some(changed) = changed {
            let fits = taken.take(number, &domains(&changed));
            if !fits {
                found.discarded(&PatchError::DomainTaken);
            }
            if fits || taken.take(number, &domains(&plain)) {
                hosts.push(Value::Message(if fits { changed } else { plain }));
            }
        }
        outcomes.add(found);
    }
    for (number, patch) in matching.iter().filter(|patch| adds_host(patch)).enumerate() {
        outcomes.attempt(patch, || {
            let Some(host) = added_host(patch, 0) else { return Ok(false) };
            if !taken.take(count + number, &domains(&host)) {
                return Err(PatchError::DomainTaken);
            }
            hosts.push(Value::Message(host));
            Ok(true)
        });
    }
}

/// Merges patches into the table itself.
pub(crate) fn table_settings<P: Borrow<CompiledPatch>>(
    table: &mut DynamicMessage,
    patches: &[P],
    outcomes: &mut Outcomes,
) {
    for patch in of(patches, ApplyTo::RouteConfiguration).filter(|patch| patch.operation.merges()) {
        outcomes.attempt(patch, || merge_value(table, patch, true));
    }
}

/// Whether a patch adds a virtual host.
pub(crate) fn adds_host(patch: &CompiledPatch) -> bool {
    patch.apply_to == ApplyTo::VirtualHost && patch.operation == PatchOperation::Add
}

/// The virtual host with this index that a patch adds to a table, or merges into it.
pub(crate) fn added_host(patch: &CompiledPatch, index: usize) -> Option<DynamicMessage> {
    let value = patch.value.as_ref()?;
    if patch.apply_to == ApplyTo::VirtualHost {
        return (index == 0).then(|| value.clone());
    }
    value.get_field_by_name("virtual_hosts")?.as_list()?.get(index)?.as_message().cloned()
}

/// The domains of a table, which must be unique, with the number of the virtual host that has each.
#[derive(Default)]
pub(crate) struct Domains(HashMap<String, usize>);

impl Domains {
    /// Adds domains that are known to be unique.
    pub(crate) fn reserve(&mut self, owner: usize, domains: impl Iterator<Item = String>) {
        self.0.extend(domains.map(|domain| (domain, owner)));
    }

    /// Adds the domains of a virtual host, unless one of them is another one's or occurs twice.
    pub(crate) fn take(&mut self, owner: usize, domains: &[String]) -> bool {
        let distinct: HashSet<&String> = domains.iter().collect();
        let is_free = |domain: &String| self.0.get(domain).is_none_or(|taken| *taken == owner);
        let free = distinct.len() == domains.len() && domains.iter().all(is_free);
        if free {
            self.reserve(owner, domains.iter().cloned());
        }
        free
    }
}

/// Applies patches to a virtual host and its routes; `None` if one removes it.
pub fn virtual_host<P: Borrow<CompiledPatch>>(
    mut host: DynamicMessage,
    patches: &[P],
    outcomes: &mut Outcomes,
) -> Option<DynamicMessage> {
    for patch in of(patches, ApplyTo::VirtualHost) {
        if !is_for(patch, &host) {
            continue;
        }
        if patch.operation == PatchOperation::Remove {
            outcomes.applied(&patch.id);
            return None;
        }
        outcomes.attempt(patch, || match (patch.operation, &patch.value) {
            (PatchOperation::Replace, Some(value)) => {
                host = value.clone();
                Ok(true)
            }
            (operation, _) if operation.merges() => merge_value(&mut host, patch, false),
            _ => Ok(false),
        });
    }
    routes(&mut host, patches, outcomes);
    Some(host)
}

fn routes<P: Borrow<CompiledPatch>>(host: &mut DynamicMessage, patches: &[P], outcomes: &mut Outcomes) {
    let matching: Vec<&CompiledPatch> = of(patches, ApplyTo::HttpRoute).filter(|patch| is_for(patch, host)).collect();
    let Some(routes) = list(host, "routes").filter(|_| !matching.is_empty()) else {
        return;
    };
    routes.retain_mut(|route| {
        let Some(route) = route.as_message_mut() else {
            return false;
        };
        for patch in &matching {
            let meant = route_match(patch).is_none_or(|wanted| matches_route(wanted, route));
            if meant && patch.operation == PatchOperation::Remove {
                outcomes.applied(&patch.id);
                return false;
            }
            if meant && patch.operation.merges() {
                outcomes.attempt(patch, || merge_value(route, patch, false));
            }
        }
        true
    });
    for patch in &matching {
        let wanted = route_match(patch);
        let meant = |route: &DynamicMessage| wanted.is_some_and(|wanted| matches_route(wanted, route));
        if !matches!(patch.operation, PatchOperation::Remove | PatchOperation::Replace) {
            outcomes.attempt(patch, || Ok(place(routes, patch, wanted.is_some().then_some(&meant))));
        }
    }
}

fn is_for(patch: &CompiledPatch, host: &DynamicMessage) -> bool {
    let domains = domains(host);
    matches_host(patch, &text(host, "name"), |domain| domains.iter().any(|one| one == domain))
}

/// The domains of a virtual host.
pub(crate) fn domains(host: &DynamicMessage) -> Vec<String> {
    texts(host, "domains")
}

fn route_match(patch: &CompiledPatch) -> Option<&RouteMatch> {
    host_match(patch)?.route.as_ref()
}

fn matches_route(wanted: &RouteMatch, route: &DynamicMessage) -> bool {
    let does = |field: &str| route.has_field_by_name(field);
    let action = match wanted.action {
        RouteAction::Any => true,
        RouteAction::Route => does("route"),
        RouteAction::Redirect => does("redirect"),
        RouteAction::DirectResponse => does("direct_response"),
    };
    action && (wanted.name.is_empty() || text(route, "name") == *wanted.name)
}
