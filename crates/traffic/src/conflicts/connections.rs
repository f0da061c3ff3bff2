//! TCP and TLS routes that never match because a VirtualService with higher precedence covers them.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{Diagnostic, FieldPath, Kind};
use flow::Reads;
use model::proxy::selects;
use model::service::ObjectId;
use names::Hostname;

use super::{conflict, overruled_in};
use crate::listeners::l4::{L4Match, L4Rules, Rules, tcp_rule, tls_rule};
use crate::virtual_service::{Binding, EffectiveVirtualServices, Guard, Summary, precedence};

/// A rule: its field and its conditions; none matches always.
struct Own {
    path: FieldPath,
    sort: Sort,
    matches: Vec<L4Match>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Tls,
    Tcp,
}

/// Adds a conflict for each TCP and TLS route of a VirtualService that another one of the host covers.
pub(super) fn never_taken(
    cx: &Reads<'_>,
    own: &Summary,
    rivals: &[Arc<Summary>],
    host: &Hostname,
    conflicts: &mut Vec<Diagnostic>,
) {
    let has_any = |summary: &Summary| summary.has_tcp || summary.has_tls;
    let rivals: Vec<&Arc<Summary>> = rivals.iter().filter(|rival| rival.id != own.id).collect();
    if !has_any(own) || rivals.is_empty() {
        return;
    }
    for rule in rules(cx, &own.id) {
        // A route may be for several common hosts.
        if conflicts.iter().any(|said| said.path == rule.path) {
            continue;
        }
        let found = rivals.iter().find_map(|rival| {
            let theirs = cx.get::<L4Rules>(&rival.id)?;
            let where_to = places(own, rival).into_iter();
            let mut lost = where_to.filter(|(place, _)| taken(&rule, &theirs, place.as_ref()));
            lost.next().map(|(_, words)| (rival, words))
        });
        let Some((rival, words)) = found else { continue };
        let sort = match rule.sort {
            Sort::Tls => "TLS",
            Sort::Tcp => "TCP",
        };
        let message = format!(
            "VirtualService {}/{} has the host {host}, too, and takes precedence: {words} never take this route, for a \
             {sort} route of that one takes all its connections",
            rival.id.namespace, rival.id.name
        );
        let hint = "put all routes for a host into one VirtualService, or give the routes different conditions";
        conflicts.push(conflict(Kind::VirtualService, &own.id, rule.path, message, hint));
    }
}

/// The rules of a VirtualService that can match.
fn rules(cx: &Reads<'_>, id: &ObjectId) -> Vec<Own> {
    let Some(object) = cx.get::<EffectiveVirtualServices>(id) else {
        return Vec::new();
    };
    let own =
        |field: &str, index, sort, matches| Own { path: FieldPath::spec().field(field).index(index), sort, matches };
    let tls = object.spec.tls.iter().enumerate();
    let tls = tls.map(|(index, rule)| own("tls", index, Sort::Tls, tls_rule(rule).matches));
    let tcp = object.spec.tcp.iter().enumerate();
    let tcp = tcp.filter_map(|(index, rule)| Some(own("tcp", index, Sort::Tcp, tcp_rule(rule)?.matches)));
    // TLS without a condition never matches.
    tls.filter(|rule| !rule.matches.is_empty()).chain(tcp).collect()
}

/// Where both apply and the rival has precedence: sidecars and gateways, with a description of the clients.
fn places(own: &Summary, rival: &Summary) -> Vec<(Option<ObjectId>, String)> {
    let mut places = Vec::new();
    if own.applies_to_mesh()
        && rival.applies_to_mesh()
        && let Some(whom) = overruled_in(own, rival)
    {
        places.push((None, format!("sidecars of {whom}")));
    }
    let theirs: BTreeSet<&Binding> = rival.gateways.iter().collect();
    for binding in own.gateways.iter().filter(|binding| theirs.contains(binding)) {
        let Binding::Gateway(id) = binding else { continue };
        let seen = own.export_to.includes(&id.namespace) && rival.export_to.includes(&id.namespace);
        if seen && precedence(rival, own, &id.namespace).is_lt() {
            let words = format!("proxies of the gateway {}/{}", id.namespace, id.name);
            places.push((Some(id.clone()), words));
        }
    }
    places
}

/// Whether the rival's rules cover a rule there.
fn taken(rule: &Own, theirs: &Rules, place: Option<&ObjectId>) -> bool {
    let always = [L4Match { guard: Guard::default(), sni: Vec::new(), subnets: Vec::new() }];
    let (rivals, own): (Vec<&[L4Match]>, &[L4Match]) = match rule.sort {
        Sort::Tls => (theirs.tls.iter().map(|rule| &rule.matches[..]).collect(), &rule.matches),
        Sort::Tcp => (
            (theirs.tcp.iter()).map(|rule| if rule.matches.is_empty() { &always } else { &rule.matches[..] }).collect(),
            if rule.matches.is_empty() { &always } else { &rule.matches },
        ),
    };
    let here = |one: &&L4Match| one.guard.gateways.is_empty() || one.guard.gateways.iter().any(|g| g.is(place));
    let mut own = own.iter().filter(here).peekable();
    own.peek().is_some()
        && own.all(|own| {
            let mut theirs = rivals.iter().copied().flatten().filter(here);
            theirs.any(|theirs| covers(theirs, own, place))
        })
}

/// Whether a condition matches all connections that another one matches. At gateways labels and addresses are ignored.
fn covers(one: &L4Match, other: &L4Match, place: Option<&ObjectId>) -> bool {
    let names = other.sni.iter().all(|name| one.sni.contains(name));
    let port = one.guard.port.is_none() || one.guard.port == other.guard.port;
    let (theirs, own) = (&one.guard, &other.guard);
    let client = || {
        let namespace = theirs.source_namespace.is_none() || theirs.source_namespace == own.source_namespace;
        namespace && selects(&theirs.source_labels, &own.source_labels)
    };
    let addresses = || {
        let within = |net: &ipnet::IpNet| one.subnets.iter().any(|wider| wider.contains(net));
        one.subnets.is_empty() || (!other.subnets.is_empty() && other.subnets.iter().all(within))
    };
    names && port && (place.is_some() || (client() && addresses()))
}
