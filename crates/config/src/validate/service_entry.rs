//! Validation of ServiceEntry.

use std::collections::BTreeSet;

use names::Protocol;

use crate::diagnostic::FieldPath;
use crate::istio::{Location, Resolution, ServiceEntry};
use crate::object::Meta;
use crate::validate::common::{self, ExportScope};
use crate::validate::{Report, hosts, workload};

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &ServiceEntry) {
    let path = FieldPath::spec();
    common::workload_selector(r, &path.field("workloadSelector"), spec.workload_selector.as_ref());
    if spec.workload_selector.is_some() && !spec.endpoints.is_empty() {
        let message = "only one of workloadSelector and endpoints may be set";
        r.error(&path.field("endpoints"), "exclusive-fields", message);
    }
    entry_hosts(r, &path.field("hosts"), spec);
    addresses(r, &path.field("addresses"), spec);
    ports(r, &path.field("ports"), meta, spec);
    match spec.resolution {
        Resolution::None => unresolved(r, &path, spec),
        Resolution::Static => {
            let ports = port_names(spec);
            for (index, endpoint) in spec.endpoints.iter().enumerate() {
                let at = path.field("endpoints").index(index);
                workload::endpoint(r, &at, endpoint, &ports, workload::Addresses::IpOrSocket);
            }
        }
        Resolution::Dns | Resolution::DnsRoundRobin => by_dns(r, &path, spec),
        Resolution::DynamicDns => by_dynamic_dns(r, &path, meta, spec),
    }
    several_hosts(r, &path, spec);
    common::export_to(
        r,
        &path.field("exportTo"),
        &meta.namespace,
        &spec.export_to,
        ExportScope::Services,
    );
}

fn entry_hosts(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    if spec.hosts.is_empty() {
        r.error(path, "missing-field", "a ServiceEntry requires at least one host");
    }
    for (index, host) in spec.hosts.iter().enumerate() {
        let at = path.index(index);
        if &**host == "*" {
            r.error(&at, "bad-host", "the host of a ServiceEntry must not be *");
            continue;
        }
        hosts::wildcard_host(r, &at, host);
        if spec.resolution != Resolution::DynamicDns && hosts::is_partial_wildcard(host) {
            r.warning(
                &at,
                "bad-host",
                format!("{host:?} has a wildcard for only a part of a label"),
            );
        }
    }
}

fn addresses(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    let ranges_allowed = matches!(spec.resolution, Resolution::None | Resolution::Static);
    for (index, address) in spec.addresses.iter().enumerate() {
        let at = path.index(index);
        common::subnet(r, &at, address);
        if address.contains('/') && !ranges_allowed {
            r.error(&at, "exclusive-fields", "CIDR ranges require resolution NONE or STATIC");
        }
    }
}

fn ports(r: &mut Report, path: &FieldPath, meta: &Meta, spec: &ServiceEntry) {
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in spec.ports.iter().enumerate() {
        let at = path.index(index);
        common::port(r, &at.field("number"), port.number);
        common::port_name(r, &at.field("name"), &port.name);
        common::protocol(r, &at.field("protocol"), &port.protocol);
        if port.target_port != 0 {
            common::port(r, &at.field("targetPort"), port.target_port);
        }
        if !names.insert(&port.name) {
            r.error(
                &at.field("name"),
                "duplicate",
                format!("duplicate port {:?}", &*port.name),
            );
        }
        if !numbers.insert(port.number) {
            r.error(
                &at.field("number"),
                "duplicate",
                format!("duplicate port {}", port.number),
            );
        }
        let plain = matches!(&*port.protocol, "" | "TCP");
        if plain && spec.addresses.is_empty() && !gets_address(meta, spec) {
            let message = "without addresses, a TCP port matches all traffic to its port number";
            r.warning(&at, "ambiguous", message);
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

fn unresolved(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    if !spec.endpoints.is_empty() {
        r.error(
            &path.field("endpoints"),
            "exclusive-fields",
            "endpoints must be empty with resolution NONE",
        );
    }
    if spec.workload_selector.is_some() {
        r.warning(
            &path.field("workloadSelector"),
            "no-effect",
            "workloadSelector has no effect with resolution NONE",
        );
    }
}

fn by_dns(r: &mut Report, path: &FieldPath, spec: &ServiceEntry) {
    let mode = spec.resolution.name();
    if spec.endpoints.is_empty() {
        for (index, host) in spec.hosts.iter().enumerate() {
            if let Some(problem) = hosts::fqdn_problem(host) {
                let message = format!("{host:?} cannot be resolved with resolution {mode}: {problem}");
                r.error(&path.field("hosts").index(index), "bad-host", message);
            }
        }
    }
    if spec.resolution == Resolution::DnsRoundRobin && spec.endpoints.len() > 1 {
        let message = format!("resolution {mode} allows at most one endpoint");
        r.error(&path.field("endpoints"), "exclusive-fields", message);
    }
    let ports = port_names(spec);
    for (index, endpoint) in spec.endpoints.iter().enumerate() {
        let at = path.field("endpoints").index(index);
        workload::endpoint(r, &at, endpoint, &ports, workload::Addresses::IpOrName);
    }
    let tcp = spec.ports.iter().any(|port| Protocol::parse(&port.protocol).is_tcp());
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
    for (field, set) in [
        ("addresses", !spec.addresses.is_empty()),
        ("endpoints", !spec.endpoints.is_empty()),
    ] {
        if set {
            let message = format!("{field} must be empty with resolution DYNAMIC_DNS");
            r.error(&path.field(field), "exclusive-fields", message);
        }
    }
    for (index, port) in spec.ports.iter().enumerate() {
        use Protocol::*;
        if !matches!(Protocol::parse(&port.protocol), Http | Http2 | Grpc | Tls) {
            let message = "resolution DYNAMIC_DNS requires protocol HTTP, HTTP2, GRPC or TLS";
            r.error(
                &path.field("ports").index(index).field("protocol"),
                "bad-value",
                message,
            );
        }
    }
    let waypoint = meta
        .label("istio.io/use-waypoint")
        .is_some_and(|w| !w.is_empty() && !w.eq_ignore_ascii_case("none"));
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
    let port = spec
        .ports
        .iter()
        .position(|port| opaque(Protocol::parse(&port.protocol)));
    if let Some(index) = port {
        let message = "all ports must be HTTP or TLS if there is more than one host";
        r.error(
            &path.field("ports").index(index).field("protocol"),
            "exclusive-fields",
            message,
        );
    }
}

fn port_names(spec: &ServiceEntry) -> BTreeSet<&str> {
    spec.ports.iter().map(|port| &*port.name).collect()
}
