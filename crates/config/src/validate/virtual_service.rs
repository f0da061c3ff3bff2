//! Validation of VirtualService.

use std::collections::BTreeSet;
use std::sync::Arc;

use names::Hostname;

use crate::diagnostic::FieldPath;
use crate::istio::{RouteDestination, TcpRoute, TlsMatchAttributes, TlsRoute, VirtualService};
use crate::object::{Meta, StringMap};
use crate::validate::common::{self, ExportScope};
use crate::validate::{Report, headers, hosts, http_route, unreachable};

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &VirtualService) {
    let path = FieldPath::spec();
    let for_gateways = !spec.applies_to_mesh();
    hosts::gateway_names(r, &path.field("gateways"), &spec.gateways);
    if spec.is_delegate() {
        delegate(r, &path, spec);
    }
    virtual_hosts(r, &path.field("hosts"), spec, for_gateways);
    if spec.http.is_empty() && spec.tcp.is_empty() && spec.tls.is_empty() {
        r.error(&path, "missing-field", "at least one of http, tls and tcp is required");
    }
    for (index, route) in spec.http.iter().enumerate() {
        let at = path.field("http").index(index);
        http_route::check(r, &at, route, spec.is_delegate());
        if !for_gateways {
            claims(r, &at, route);
        }
    }
    for (index, route) in spec.tls.iter().enumerate() {
        tls_route(r, &path.field("tls").index(index), route, spec);
    }
    for (index, route) in spec.tcp.iter().enumerate() {
        tcp_route(r, &path.field("tcp").index(index), route);
    }
    common::export_to(
        r,
        &path.field("exportTo"),
        &meta.namespace,
        &spec.export_to,
        ExportScope::Routes,
    );
    unreachable::check(r, &path, spec);
}

/// Checks that a VirtualService without hosts has HTTP routes only.
fn delegate(r: &mut Report, path: &FieldPath, spec: &VirtualService) {
    let others = [
        ("gateways", spec.gateways.is_empty()),
        ("tls", spec.tls.is_empty()),
        ("tcp", spec.tcp.is_empty()),
    ];
    for (field, _) in others.into_iter().filter(|(_, empty)| !empty) {
        let message = "a VirtualService without hosts is a delegate, which can only have http routes";
        r.error(&path.field(field), "exclusive-fields", message);
    }
}

fn virtual_hosts(r: &mut Report, path: &FieldPath, spec: &VirtualService, for_gateways: bool) {
    let sni = for_gateways
        && spec
            .tls
            .iter()
            .flat_map(|t| &t.matches)
            .any(|m| !m.sni_hosts.is_empty());
    let mut known = KnownHosts::default();
    for (index, host) in spec.hosts.iter().enumerate() {
        let at = path.index(index);
        hosts::host_or_address(r, &at, host, sni);
        if !for_gateways && &**host == "*" {
            r.error(
                &at,
                "bad-host",
                "the host * is supported for gateways only, not for the mesh",
            );
        }
        if let Ok(name) = Hostname::parse(host)
            && let Some(other) = known.insert(name)
        {
            r.error(&at, "duplicate", format!("{host:?} overlaps with {:?}", other.as_str()));
        }
    }
}

/// Hosts that are already checked, none of which overlaps with another.
#[derive(Default)]
struct KnownHosts {
    plain: BTreeSet<Hostname>,
    wildcards: Vec<Hostname>,
}

impl KnownHosts {
    /// Maximum number of wildcards that are compared with other hosts.
    const MAX_WILDCARDS: usize = 1000;

    /// Adds a host and returns another host that overlaps with it.
    fn insert(&mut self, name: Hostname) -> Option<Hostname> {
        let overlaps = |other: &&Hostname| other.matches(&name);
        let by_wildcard = self.wildcards.iter().find(overlaps).cloned();
        if !name.is_wildcard() {
            let twice = (!self.plain.insert(name.clone())).then_some(name);
            return by_wildcard.or(twice);
        }
        if self.wildcards.len() >= KnownHosts::MAX_WILDCARDS {
            return by_wildcard;
        }
        let plain = self.plain.iter().find(overlaps).cloned();
        self.wildcards.push(name);
        by_wildcard.or(plain)
    }
}

/// Reports matches of JWT claims, which are supported at gateways only.
fn claims(r: &mut Report, path: &FieldPath, route: &crate::istio::HttpRoute) {
    for (index, condition) in route.matches.iter().enumerate() {
        let at = path.field("match").index(index);
        for (field, names) in [
            ("headers", &condition.headers),
            ("withoutHeaders", &condition.without_headers),
        ] {
            for name in names.keys().filter(|name| headers::is_claim(name)) {
                let message = "JWT claims can be matched at gateways only";
                r.error(&at.field(field).key(name.clone()), "bad-header", message);
            }
        }
    }
}

fn tls_route(r: &mut Report, path: &FieldPath, route: &TlsRoute, spec: &VirtualService) {
    if route.matches.is_empty() {
        r.error(path, "missing-field", "a tls route requires a match with sniHosts");
    }
    for (index, condition) in route.matches.iter().enumerate() {
        tls_match(r, &path.field("match").index(index), condition, spec);
    }
    destinations(r, path, &route.route);
}

fn tls_match(r: &mut Report, path: &FieldPath, condition: &TlsMatchAttributes, spec: &VirtualService) {
    if condition.sni_hosts.is_empty() {
        r.error(path, "missing-field", "a tls match requires sniHosts");
    }
    for (index, sni) in condition.sni_hosts.iter().enumerate() {
        sni_host(r, &path.field("sniHosts").index(index), sni, spec);
    }
    l4(
        r,
        path,
        &condition.destination_subnets,
        condition.port,
        &condition.source_labels,
        &condition.gateways,
    );
}

fn sni_host(r: &mut Report, path: &FieldPath, sni: &str, spec: &VirtualService) {
    if sni.parse::<std::net::IpAddr>().is_ok() {
        return r.warning(path, "no-effect", "clients do not send IP addresses as server names");
    }
    hosts::host_or_address(r, path, sni, !spec.applies_to_mesh());
    let Ok(name) = Hostname::parse(sni) else {
        return;
    };
    let within = |host: &Arc<str>| Hostname::parse(host).is_ok_and(|host| name.subset_of(&host));
    if !spec.hosts.iter().any(within) {
        r.error(
            path,
            "bad-host",
            format!("{sni:?} is not covered by the hosts of the VirtualService"),
        );
    }
}

fn tcp_route(r: &mut Report, path: &FieldPath, route: &TcpRoute) {
    for (index, m) in route.matches.iter().enumerate() {
        let at = path.field("match").index(index);
        l4(r, &at, &m.destination_subnets, m.port, &m.source_labels, &m.gateways);
        if !m.source_subnet.is_empty() {
            r.warning(&at.field("sourceSubnet"), "no-effect", "sourceSubnet has no effect");
        }
    }
    destinations(r, path, &route.route);
}

/// Checks the fields that TLS and TCP matches share.
fn l4(r: &mut Report, path: &FieldPath, subnets: &[Arc<str>], port: u32, labels: &StringMap, gateways: &[Arc<str>]) {
    for (index, subnet) in subnets.iter().enumerate() {
        common::subnet(r, &path.field("destinationSubnets").index(index), subnet);
    }
    if port != 0 {
        common::port(r, &path.field("port"), port);
    }
    common::labels(r, &path.field("sourceLabels"), labels);
    hosts::gateway_names(r, &path.field("gateways"), gateways);
}

fn destinations(r: &mut Report, path: &FieldPath, routes: &[RouteDestination]) {
    let path = path.field("route");
    if routes.is_empty() {
        return r.error(&path, "missing-field", "a route requires a destination");
    }
    for (index, route) in routes.iter().enumerate() {
        common::destination(r, &path.index(index).field("destination"), &route.destination);
    }
    weights(r, &path, routes.iter().map(|route| route.weight));
}

/// Checks weights: none may be negative, and not all may be 0.
pub(super) fn weights(r: &mut Report, path: &FieldPath, weights: impl Iterator<Item = i32>) {
    let weights: Vec<i32> = weights.collect();
    for (index, weight) in weights.iter().enumerate() {
        common::not_negative(r, &path.index(index).field("weight"), *weight);
    }
    if weights.len() > 1 && weights.iter().all(|weight| *weight == 0) {
        r.error(
            path,
            "out-of-range",
            "at least one destination must have a weight greater than 0",
        );
    }
}
