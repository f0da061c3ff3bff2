//! ServiceEntry.

use std::collections::BTreeSet;

use names::Protocol;

use crate::decode::Report;
use crate::form::host;
use crate::istio::{Location, Resolution, ServiceEntry};
use crate::object::Meta;
use crate::problem::FieldPath;
use crate::validate::workload::{self, Addresses};

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &ServiceEntry) {
    let path = FieldPath::spec();
    entry_hosts(r, &path.field("hosts"), spec);
    let ranges_allowed = matches!(spec.resolution, Resolution::None | Resolution::Static);
    for (index, _) in spec.addresses.iter().enumerate().filter(|(_, a)| a.contains('/') && !ranges_allowed) {
        let message = "CIDR ranges require resolution NONE or STATIC";
        r.error(&path.field("addresses").index(index), "exclusive-fields", message);
    }
    for (index, port) in spec.ports.iter().enumerate() {
        let plain = matches!(&*port.protocol, "" | "TCP");
        if plain && spec.addresses.is_empty() && !gets_address(meta, spec) {
            let message = "without addresses, a TCP port matches all traffic to its port number";
            r.warning(&path.field("ports").index(index), "ambiguous", message);
        }
    }
    match spec.resolution {
        Resolution::None => unresolved(r, &path, spec),
        Resolution::Static => endpoints(r, &path, spec, Addresses::IpOrSocket),
        Resolution::Dns | Resolution::DnsRoundRobin => by_dns(r, &path, spec),
        Resolution::DynamicDns => by_dynamic_dns(r, &path, meta, spec),
    }
    several_hosts(r, &path, spec);
}

fn entry_hosts(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    for (index, host) in spec.hosts.iter().enumerate() {
        let at = path.index(index);
        if &**host == "*" {
            r.error(&at, "bad-host", "the host of a ServiceEntry must not be *");
        } else if spec.resolution != Resolution::DynamicDns && host::is_partial_wildcard(host) {
            let message = format!("{host:?} has a wildcard for only a part of a label");
            r.warning(&at, "bad-host", message);
        }
    }
}

/// Whether addresses are allocated automatically for the entry's services.
fn gets_address(meta: &Meta, spec: &ServiceEntry) -> bool {
    let wanted = meta.label("networking.istio.io/enable-autoallocate-ip") != Some("false");
    let resolved = !matches!(spec.resolution, Resolution::None);
    let plain = spec.hosts.iter().all(|host| !host.starts_with('*')) || spec.resolution == Resolution::DynamicDns;
    wanted && resolved && plain
}

fn endpoints(r: &mut Report, path: &FieldPath, spec: &ServiceEntry, addresses: Addresses) {
    let ports: BTreeSet<&str> = spec.ports.iter().map(|port| &*port.name).collect();
    for (index, endpoint) in spec.endpoints.iter().enumerate() {
        workload::endpoint(r, &path.field("endpoints").index(index), endpoint, &ports, addresses);
    }
}

fn unresolved(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    if !spec.endpoints.is_empty() {
        let message = "endpoints must be empty with resolution NONE";
        r.error(&path.field("endpoints"), "exclusive-fields", message);
    }
    if spec.workload_selector.is_some() {
        let message = "workloadSelector has no effect with resolution NONE";
        r.warning(&path.field("workloadSelector"), "no-effect", message);
    }
}

fn by_dns(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    let mode = spec.resolution.name();
    if spec.endpoints.is_empty() {
        for (index, host) in spec.hosts.iter().enumerate() {
            if let Some(problem) = host::fqdn_problem(host) {
                let message = format!("{host:?} cannot be resolved with resolution {mode}: {problem}");
                r.error(&path.field("hosts").index(index), "bad-host", message);
            }
        }
    }
    if spec.resolution == Resolution::DnsRoundRobin && spec.endpoints.len() > 1 {
        let message = format!("resolution {mode} allows at most one endpoint");
        r.error(&path.field("endpoints"), "exclusive-fields", message);
    }
    endpoints(r, path, spec, Addresses::IpOrName);
    let tcp = spec.ports.iter().any(|port| port.kind().is_tcp());
    if !spec.addresses.is_empty() && spec.hosts.len() > 1 && tcp {
        let message = "multiple hosts share the addresses; TCP traffic cannot be attributed to one of them";
        r.warning(&path.field("hosts"), "ambiguous", message);
    }
}

fn by_dynamic_dns(r: &mut Report, path: &FieldPath, meta: &Meta, spec: &ServiceEntry) {
    for (index, host) in spec.hosts.iter().enumerate().filter(|(_, host)| !host.starts_with('*')) {
        let message = format!("resolution DYNAMIC_DNS requires wildcard hosts, and {host:?} is not one");
        r.error(&path.field("hosts").index(index), "bad-host", message);
    }
    let set = [("addresses", !spec.addresses.is_empty()), ("endpoints", !spec.endpoints.is_empty())];
    r.none_of(path, &set, "exclusive-fields", |field| format!("{field} must be empty with resolution DYNAMIC_DNS"));
    for (index, port) in spec.ports.iter().enumerate() {
        use Protocol::*;
        if !matches!(port.kind(), Http | Http2 | Grpc | Tls) {
            let message = "resolution DYNAMIC_DNS requires protocol HTTP, HTTP2, GRPC or TLS";
            let at = path.field("ports").index(index).field("protocol");
            r.error(&at, "bad-value", message);
        }
    }
    let waypoint =
        meta.label("istio.io/use-waypoint").is_some_and(|w| !w.is_empty() && !w.eq_ignore_ascii_case("none"));
    if spec.location == Location::MeshInternal && waypoint {
        let message = "MESH_INTERNAL with resolution DYNAMIC_DNS cannot be combined with a waypoint";
        r.error(&path.field("location"), "exclusive-fields", message);
    }
}

/// Checks that ports whose traffic does not identify the host are used with one host only.
fn several_hosts(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    if spec.resolution == Resolution::None || spec.hosts.len() < 2 {
        return;
    }
    let opaque = |protocol: Protocol| !protocol.is_http() && !protocol.is_tls();
    if let Some(index) = spec.ports.iter().position(|port| opaque(port.kind())) {
        let message = "all ports must be HTTP or TLS if there is more than one host";
        let at = path.field("ports").index(index).field("protocol");
        r.error(&at, "exclusive-fields", message);
    }
}
