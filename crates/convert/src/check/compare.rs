//! Compares two views.

use std::collections::BTreeSet;

use names::Hostname;
use serde_json::Value as Json;

use super::canonical::Atom;
use super::path::Text;
use super::view::{Place, Service, View};
use super::{ClusterReport, HostReport};

/// The most differences that are listed of a host.
const MAX_LISTED: usize = 20;
/// The longest value in a message.
const MAX_SHOWN: usize = 120;

/// Compares what is done at each place.
pub(super) fn views(before: &View, after: &View) -> Vec<HostReport> {
    let all: BTreeSet<&Place> = before.places.keys().chain(after.places.keys()).collect();
    all.into_iter().flat_map(|place| at_place(place, before.at(place), after.at(place))).collect()
}

/// Compares the clusters that both use. Returns those that differ.
pub(super) fn clusters(before: &View, after: &View) -> Vec<ClusterReport> {
    let used = before.used_clusters();
    let both = after.used_clusters().into_iter().filter(|name| used.contains(name));
    let report = both.map(|name| {
        let cluster = |view: &View| view.clusters.get(&name).cloned().unwrap_or_default();
        let differences = changes(&cluster(before), &cluster(after));
        ClusterReport { name, differences }
    });
    report.filter(|report| !report.differences.is_empty()).collect()
}

fn at_place(place: &Place, before: Option<&Service>, after: Option<&Service>) -> Vec<HostReport> {
    let http = before.into_iter().chain(after).any(|service| !service.hosts.is_empty());
    let report = |host: &str, differences: Vec<String>| HostReport {
        port: place.port,
        secure: place.secure,
        http,
        host: host.to_owned(),
        differences,
    };
    let (before, after) = match (before, after) {
        (Some(before), Some(after)) => (before, after),
        (Some(before), None) if serves(before) => {
            return vec![report(&place.sni, vec!["is not served any more".to_owned()])];
        }
        (None, Some(after)) if serves(after) => {
            return vec![report(&place.sni, vec!["was not served before".to_owned()])];
        }
        _ => return Vec::new(),
    };
    let mut out = Vec::new();
    let connection = changes(&before.connection, &after.connection);
    let connection: Vec<String> = connection.into_iter().map(|change| format!("connection: {change}")).collect();
    if before.hosts.is_empty() && after.hosts.is_empty() {
        return vec![report(&place.sni, connection)];
    }
    let hosts: BTreeSet<&String> = before.hosts.keys().chain(after.hosts.keys()).collect();
    for host in hosts.into_iter().filter(|host| overlap(host, &place.sni)) {
        let (old, new) = (before.host(host), after.host(host));
        if old.routes.is_empty() && new.routes.is_empty() {
            continue;
        }
        let mut differences = connection.clone();
        differences.extend(atoms(&old.routes, &new.routes));
        if !old.routes.is_empty() && !new.routes.is_empty() {
            let settings = changes(&old.settings, &new.settings);
            differences.extend(settings.into_iter().map(|change| format!("virtual host: {change}")));
        }
        differences.truncate(MAX_LISTED);
        out.push(report(host, differences));
    }
    out
}

/// Whether anything is served, beside 404.
fn serves(service: &Service) -> bool {
    service.hosts.is_empty() || service.hosts.values().any(|host| !host.routes.is_empty())
}

/// Whether a host can have this server name.
fn overlap(host: &str, sni: &str) -> bool {
    match (Hostname::parse(host), Hostname::parse(sni)) {
        (Ok(host), Ok(sni)) => host.matches(&sni),
        _ => true,
    }
}

/// Compares lists of which the first atom that matches is used. The lists do the same if, for each atom of one list and each of
/// the other, no request is decided by both, or their actions are equal.
///
/// A request is decided by two atoms if both match it and no earlier one of either list does. That is not known exactly: atoms
/// that together, but none of them alone, match all requests count as if they did not. So there may be a difference that no request
/// shows, but never the other way round.
pub(super) fn atoms(before: &[Atom], after: &[Atom]) -> Vec<String> {
    let nothing = Atom::not_found();
    let before: Vec<&Atom> = before.iter().chain([&nothing]).collect();
    let after: Vec<&Atom> = after.iter().chain([&nothing]).collect();
    let mut out = Vec::new();
    for (i, old) in before.iter().enumerate() {
        for (j, new) in after.iter().enumerate() {
            if old.action == new.action {
                continue;
            }
            let region = Region::of(old, new);
            let earlier = || before[..i].iter().chain(&after[..j]);
            if region.is_empty() || earlier().any(|atom| region.is_within(atom)) {
                continue;
            }
            out.extend(difference(old, new));
        }
    }
    out.dedup();
    out
}

/// The differences for requests that these atoms decide.
fn difference(old: &Atom, new: &Atom) -> Vec<String> {
    if new.is_not_found() {
        return vec![format!("no longer: {}", old.shown_with_action())];
    }
    if old.is_not_found() {
        return vec![format!("new: {}", new.shown_with_action())];
    }
    let listed = match old.does() == new.does() {
        true => changes(&old.action, &new.action),
        false => vec![format!("{} → {}", old.shown_action(), new.shown_action())],
    };
    if (&old.path, &old.conditions) == (&new.path, &new.conditions) {
        return listed.into_iter().map(|change| format!("{}: {change}", old.shown())).collect();
    }
    let (one, other) = (old.shown(), new.shown());
    vec![format!("{one} and {other}: decided by the latter instead of the former: {}", listed.join("; "))]
}

/// The requests that two atoms match.
struct Region<'a> {
    atoms: [&'a Atom; 2],
}

impl<'a> Region<'a> {
    fn of(one: &'a Atom, other: &'a Atom) -> Region<'a> {
        Region { atoms: [one, other] }
    }

    fn is_empty(&self) -> bool {
        self.atoms[0].is_disjoint(self.atoms[1])
    }

    /// Whether an atom matches all of these requests.
    fn is_within(&self, atom: &Atom) -> bool {
        let path = self.atoms.iter().any(|one| atom.path.covers(&one.path));
        let implied = |(name, text): &(String, Text)| {
            let mut all = self.atoms.iter().flat_map(|one| &one.conditions);
            all.any(|(other, narrow)| name == other && text.covers(narrow))
        };
        path && atom.conditions.iter().all(implied)
    }
}

/// The fields that differ, with their values.
pub(super) fn changes(before: &Json, after: &Json) -> Vec<String> {
    let mut out = Vec::new();
    collect(before, after, "", &mut out);
    out
}

fn collect(before: &Json, after: &Json, path: &str, out: &mut Vec<String>) {
    if before == after || out.len() >= MAX_LISTED {
        return;
    }
    match (before, after) {
        (Json::Object(a), Json::Object(b)) => {
            let names: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for name in names {
                let dot = if path.is_empty() { "" } else { "." };
                let (a, b) = (a.get(name).unwrap_or(&Json::Null), b.get(name).unwrap_or(&Json::Null));
                collect(a, b, &format!("{path}{dot}{name}"), out);
            }
        }
        (Json::Array(a), Json::Array(b)) if a.len() == b.len() => {
            for (index, (a, b)) in a.iter().zip(b).enumerate() {
                collect(a, b, &format!("{path}[{index}]"), out);
            }
        }
        _ => out.push(format!("{path}: {} → {}", shown(before), shown(after))),
    }
}

fn shown(value: &Json) -> String {
    match value {
        Json::Null => "none".to_owned(),
        Json::String(text) => text.clone(),
        other => {
            let text = other.to_string();
            let short: String = text.chars().take(MAX_SHOWN).collect();
            if short.len() < text.len() { format!("{short}…") } else { short }
        }
    }
}
