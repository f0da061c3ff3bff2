//! Validation of WorkloadEntry, WorkloadGroup and endpoints of ServiceEntries.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::diagnostic::FieldPath;
use crate::istio::{HealthCheck, ReadinessProbe, WorkloadEntry, WorkloadGroup};
use crate::validate::{Report, common, hosts};

/// Allowed types of workload addresses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Addresses {
    /// Any type, because the resolution of the service is unknown.
    Any,
    /// IP addresses and Unix domain sockets, for resolution `STATIC`.
    IpOrSocket,
    /// IP addresses and DNS names, for DNS resolution.
    IpOrName,
}

pub(super) fn check_entry(r: &mut Report, spec: &WorkloadEntry) {
    workload(r, &FieldPath::spec(), spec, None, Addresses::Any);
}

/// Checks an endpoint of a service with the given port names.
pub(super) fn endpoint(
    r: &mut Report,
    path: &FieldPath,
    entry: &WorkloadEntry,
    ports: &BTreeSet<&str>,
    addresses: Addresses,
) {
    workload(r, path, entry, Some(ports), addresses);
}

fn workload(
    r: &mut Report,
    path: &FieldPath,
    entry: &WorkloadEntry,
    ports: Option<&BTreeSet<&str>>,
    addresses: Addresses,
) {
    address(r, path, entry, ports, addresses);
    for name in entry.ports.keys() {
        if ports.is_some_and(|ports| !ports.contains(&**name)) {
            let at = path.field("ports").key(name.clone());
            r.error(&at, "bad-value", format!("the service has no port {name:?}"));
        }
    }
    self::ports(r, &path.field("ports"), entry);
    common::labels(r, &path.field("labels"), &entry.labels);
}

fn address(
    r: &mut Report,
    path: &FieldPath,
    entry: &WorkloadEntry,
    ports: Option<&BTreeSet<&str>>,
    addresses: Addresses,
) {
    let at = path.field("address");
    let address = &*entry.address;
    if address.is_empty() {
        match (&*entry.network, addresses) {
            ("", _) | (_, Addresses::IpOrName) => r.error(&at, "missing-field", "a workload requires an address"),
            (network, _) => {
                let message = format!(
                    "the workload has no address; it can only be reached through a gateway of the network {network:?}"
                );
                r.warning(&at, "ambiguous", message);
            }
        }
    } else if let Some(socket) = address
        .strip_prefix(common::UNIX)
        .filter(|_| addresses != Addresses::IpOrName)
    {
        unix_socket(r, path, entry, socket);
        if ports.is_some_and(|ports| ports.len() != 1) {
            r.error(
                &at,
                "exclusive-fields",
                "a Unix domain socket requires a service with exactly one port",
            );
        }
    } else if address.parse::<IpAddr>().is_err() {
        if addresses == Addresses::IpOrSocket {
            let message = format!("{address:?} is not an IP address, as required by resolution STATIC");
            r.error(&at, "bad-value", message);
        } else if let Some(problem) = hosts::fqdn_problem(address) {
            let message = format!("{address:?} is neither an IP address nor a DNS name: {problem}");
            r.error(&at, "bad-value", message);
        }
    }
}

/// Checks an entry whose address is a Unix domain socket.
fn unix_socket(r: &mut Report, path: &FieldPath, entry: &WorkloadEntry, socket: &str) {
    common::unix_path(r, &path.field("address"), socket);
    if !entry.ports.is_empty() {
        r.error(
            &path.field("ports"),
            "exclusive-fields",
            "ports must be empty for a Unix domain socket",
        );
    }
}

/// Checks port numbers by name.
fn ports(r: &mut Report, path: &FieldPath, entry: &WorkloadEntry) {
    for (name, number) in &entry.ports {
        let at = path.key(name.clone());
        common::port_name(r, &at, name);
        common::port(r, &at, *number);
    }
}

pub(super) fn check_group(r: &mut Report, spec: &WorkloadGroup) {
    let path = FieldPath::spec();
    match &spec.template {
        None => r.error(&path, "missing-field", "a WorkloadGroup requires a template"),
        Some(template) => {
            let at = path.field("template");
            // The address of the template is usually set by each workload.
            if let Some(socket) = template.address.strip_prefix(common::UNIX) {
                unix_socket(r, &at, template, socket);
            }
            ports(r, &at.field("ports"), template);
            common::labels(r, &at.field("labels"), &template.labels);
        }
    }
    if let Some(metadata) = &spec.metadata {
        common::labels(r, &path.field("metadata").field("labels"), &metadata.labels);
    }
    if let Some(probe) = &spec.probe {
        readiness_probe(r, &path.field("probe"), probe);
    }
}

/// Checks a readiness probe of a WorkloadGroup or of a proxy configuration.
pub(super) fn readiness_probe(r: &mut Report, path: &FieldPath, probe: &ReadinessProbe) {
    for (field, value) in [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ] {
        common::not_negative(r, &path.field(field), value);
    }
    match &probe.method {
        None => r.error(
            path,
            "missing-field",
            "a probe requires httpGet, tcpSocket, exec or grpc",
        ),
        Some(HealthCheck::HttpGet(http)) => {
            let at = path.field("httpGet");
            common::port(r, &at.field("port"), http.port);
            if !matches!(&*http.scheme, "" | "HTTP" | "HTTPS") {
                r.error(&at.field("scheme"), "bad-value", "the scheme must be HTTP or HTTPS");
            }
            for (index, header) in http.http_headers.iter().enumerate() {
                let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
                if header.name.is_empty() || !header.name.bytes().all(plain) {
                    let at = at.field("httpHeaders").index(index).field("name");
                    r.error(
                        &at,
                        "bad-header",
                        format!("{:?} is not a valid header name", &*header.name),
                    );
                }
            }
        }
        Some(HealthCheck::TcpSocket(tcp)) => common::port(r, &path.field("tcpSocket").field("port"), tcp.port),
        Some(HealthCheck::Exec(exec)) if exec.command.is_empty() => {
            r.error(
                &path.field("exec").field("command"),
                "missing-field",
                "command is required",
            );
        }
        Some(HealthCheck::Exec(_)) => {}
        Some(HealthCheck::Grpc(grpc)) => common::port(r, &path.field("grpc").field("port"), grpc.port),
    }
}
