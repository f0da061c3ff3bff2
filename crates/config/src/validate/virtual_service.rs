//! VirtualService.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use names::Hostname;

use crate::decode::{Relations, Report};
use crate::form::{self, header};
use crate::istio::{HttpRoute, TcpRoute, TlsRoute, VirtualService};
use crate::problem::FieldPath;
use crate::validate::http_route::weights;
use crate::validate::unreachable;

impl Relations for VirtualService {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.is_delegate() {
            delegate(r, path, self);
        }
        virtual_hosts(r, &path.field("hosts"), self);
        if self.applies_to_mesh() {
            for (index, route) in self.http.iter().enumerate() {
                claims(r, &path.field("http").index(index), route);
            }
        }
        for (index, route) in self.tls.iter().enumerate() {
            for (number, condition) in route.matches.iter().enumerate() {
                let at = path.field("tls").index(index).field("match").index(number);
                for (index, sni) in condition.sni_hosts.iter().enumerate() {
                    sni_host(r, &at.field("sniHosts").index(index), sni, self);
                }
            }
        }
        unreachable::check(r, path, self);
    }
}

/// Checks that a VirtualService without hosts has HTTP routes only, which do not delegate.
fn delegate(r: &mut Report, path: &FieldPath, spec: &VirtualService) {
    let others =
        [("gateways", !spec.gateways.is_empty()), ("tls", !spec.tls.is_empty()), ("tcp", !spec.tcp.is_empty())];
    r.none_of(path, &others, "exclusive-fields", |_| {
        "a VirtualService without hosts is a delegate, which can only have http routes".to_owned()
    });
    for (index, _) in spec.http.iter().enumerate().filter(|(_, route)| route.delegate.is_some()) {
        let message = "a delegate must not delegate to another VirtualService";
        let at = path.field("http").index(index).field("delegate");
        r.error(&at, "exclusive-fields", message);
    }
}

/// Checks a host or IP address; wildcards are allowed. With `sni`, cluster names in SNI format (`outbound_.80_._.host`)
/// are also allowed.
fn host_or_address(r: &mut Report, path: &FieldPath, host: &str, sni: bool) {
    let cluster = sni && host.starts_with("outbound_") && names::ClusterName::parse(host).is_ok();
    if !cluster && host.parse::<IpAddr>().is_err() {
        r.form(path, form::host, host);
    }
}

fn virtual_hosts(r: &mut Report, path: &FieldPath, spec: &VirtualService) {
    let for_gateways = !spec.applies_to_mesh();
    let mut conditions = spec.tls.iter().flat_map(|t| &t.matches);
    let sni = for_gateways && conditions.any(|m| !m.sni_hosts.is_empty());
    let mut known = KnownHosts::default();
    for (index, host) in spec.hosts.iter().enumerate() {
        let at = path.index(index);
        host_or_address(r, &at, host, sni);
        if !for_gateways && &**host == "*" {
            let message = "the host * is supported for gateways only, not for the mesh";
            r.error(&at, "bad-host", message);
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
fn claims(r: &mut Report, path: &FieldPath, route: &HttpRoute) {
    for (index, condition) in route.matches.iter().enumerate() {
        let at = path.field("match").index(index);
        for (field, names) in [("headers", &condition.headers), ("withoutHeaders", &condition.without_headers)] {
            for name in names.keys().filter(|name| header::is_claim(name)) {
                let message = "JWT claims can be matched at gateways only";
                r.error(&at.field(field).key(name.clone()), "bad-header", message);
            }
        }
    }
}

fn sni_host(r: &mut Report, path: &FieldPath, sni: &str, spec: &VirtualService) {
    if sni.parse::<IpAddr>().is_ok() {
        return r.warning(path, "no-effect", "clients do not send IP addresses as server names");
    }
    host_or_address(r, path, sni, !spec.applies_to_mesh());
    let Ok(name) = Hostname::parse(sni) else {
        return;
    };
    let within = |host: &Arc<str>| Hostname::parse(host).is_ok_and(|host| name.subset_of(&host));
    if !spec.hosts.iter().any(within) {
        r.error(path, "bad-host", format!("{sni:?} is not covered by the hosts of the VirtualService"));
    }
}

impl Relations for TlsRoute {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        weights(r, &path.field("route"), self.route.iter().map(|route| route.weight));
    }
}

impl Relations for TcpRoute {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        weights(r, &path.field("route"), self.route.iter().map(|route| route.weight));
    }
}
