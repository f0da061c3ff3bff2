//! Validation of Sidecar.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diagnostic::FieldPath;
use crate::istio::*;
use crate::object::Meta;
use crate::validate::hosts::Owner;
use crate::validate::{Report, common, gateway, hosts, traffic_policy};

pub(super) fn check(r: &mut Report, meta: &Meta, spec: &Sidecar) {
    let path = FieldPath::spec();
    common::workload_selector(r, &path.field("workloadSelector"), spec.workload_selector.as_ref());
    let empty = Sidecar {
        workload_selector: spec.workload_selector.clone(),
        ..Sidecar::default()
    };
    if *spec == empty {
        r.error(
            &path,
            "missing-field",
            "a Sidecar requires egress, ingress or another setting",
        );
    }
    let mut ports = BTreeSet::new();
    for (index, listener) in spec.ingress.iter().enumerate() {
        ingress(r, &path.field("ingress").index(index), listener, &mut ports);
    }
    let pool = path.field("inboundConnectionPool");
    traffic_policy::connection_pool(r, &pool, spec.inbound_connection_pool.as_ref());
    all_egress(r, &path.field("egress"), meta, &spec.egress);
    if let Some(policy) = &spec.outbound_traffic_policy {
        outbound(r, &path.field("outboundTrafficPolicy"), policy);
    }
}

fn ingress(r: &mut Report, path: &FieldPath, listener: &IngressListener, ports: &mut BTreeSet<u32>) {
    let Some(port) = &listener.port else {
        return r.error(path, "missing-field", "an ingress listener requires a port");
    };
    let at = path.field("port");
    port_texts(r, &at, port);
    common::port(r, &at.field("number"), port.number);
    if !ports.insert(port.number) {
        r.error(
            &at.field("number"),
            "duplicate",
            format!("duplicate ingress listener for port {}", port.number),
        );
    }
    if !listener.bind.is_empty() {
        common::ip_address(r, &path.field("bind"), &listener.bind);
    }
    default_endpoint(r, &path.field("defaultEndpoint"), &listener.default_endpoint);
    if let Some(tls) = &listener.tls {
        ingress_tls(r, &path.field("tls"), tls, port);
    }
    let pool = path.field("connectionPool");
    traffic_policy::connection_pool(r, &pool, listener.connection_pool.as_ref());
    let http = listener
        .connection_pool
        .as_ref()
        .is_some_and(|pool| pool.http.is_some());
    if http && !port.kind().is_http() {
        r.warning(
            &pool.field("http"),
            "no-effect",
            "http settings have no effect: the port is not HTTP",
        );
    }
}

fn port_texts(r: &mut Report, path: &FieldPath, port: &SidecarPort) {
    if !port.name.is_empty() {
        common::port_name(r, &path.field("name"), &port.name);
    }
    common::protocol(r, &path.field("protocol"), &port.protocol);
    if port.target_port != 0 {
        r.error(
            &path.field("targetPort"),
            "no-effect",
            "targetPort has no effect on Sidecars",
        );
    }
}

/// Checks the address of the application.
fn default_endpoint(r: &mut Report, path: &FieldPath, endpoint: &str) {
    if endpoint.is_empty() {
        return;
    }
    if let Some(socket) = endpoint.strip_prefix(common::UNIX) {
        return common::unix_path(r, path, socket);
    }
    let (host, port) = endpoint.rsplit_once(':').unwrap_or(("-", ""));
    if !matches!(host, "" | "127.0.0.1" | "0.0.0.0" | "[::1]" | "[::]") {
        let message =
            "the address must have the form 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix:///path";
        return r.error(path, "bad-value", message);
    }
    match port.parse() {
        Ok(number) => common::port(r, path, number),
        Err(_) => r.error(path, "bad-value", format!("{port:?} is not a valid port number")),
    }
}

fn ingress_tls(r: &mut Report, path: &FieldPath, tls: &ServerTlsSettings, port: &SidecarPort) {
    let unsupported = [
        ("subjectAltNames", !tls.subject_alt_names.is_empty()),
        ("httpsRedirect", tls.https_redirect),
        ("credentialName", !tls.credential_name.is_empty()),
        ("credentialNames", !tls.credential_names.is_empty()),
        ("tlsCertificates", !tls.tls_certificates.is_empty()),
    ];
    for (field, _) in unsupported.into_iter().filter(|(_, set)| *set) {
        r.error(
            &path.field(field),
            "unsupported",
            format!("{field} is not supported in ingress listeners"),
        );
    }
    if matches!(tls.mode, ServerTlsMode::IstioMutual | ServerTlsMode::AutoPassthrough) {
        let message = format!("{} is not supported in ingress listeners", tls.mode.name());
        r.error(&path.field("mode"), "unsupported", message);
    }
    if !port.kind().is_tls() {
        r.error(path, "exclusive-fields", "tls requires protocol HTTPS or TLS");
    }
    gateway::server_tls(r, path, tls);
}

fn all_egress(r: &mut Report, path: &FieldPath, meta: &Meta, egress: &[EgressListener]) {
    let (mut ports, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    for (index, listener) in egress.iter().enumerate() {
        let at = path.index(index);
        match &listener.port {
            None if index + 1 < egress.len() => {
                let message = "a listener without a port applies to all remaining ports; it must be the last listener";
                r.error(&at, "exclusive-fields", message);
            }
            None => {}
            Some(port) => {
                egress_port(r, &at, listener, port);
                let fresh = match port.number {
                    0 => sockets.insert(&listener.bind),
                    number => ports.insert(number),
                };
                if !fresh {
                    r.error(
                        &at.field("port"),
                        "duplicate",
                        "duplicate egress listener for this port or socket",
                    );
                }
            }
        }
        egress_hosts(r, &at.field("hosts"), meta, &listener.hosts);
    }
}

fn egress_port(r: &mut Report, path: &FieldPath, listener: &EgressListener, port: &SidecarPort) {
    port_texts(r, &path.field("port"), port);
    let bind = path.field("bind");
    if port.number != 0 {
        common::port(r, &path.field("port").field("number"), port.number);
        if !listener.bind.is_empty() {
            common::ip_address(r, &bind, &listener.bind);
        }
        return;
    }
    match listener.bind.strip_prefix(common::UNIX) {
        Some(socket) => common::unix_path(r, &bind, socket),
        None => r.error(
            &bind,
            "missing-field",
            "a port without a number requires a Unix domain socket in bind",
        ),
    }
    if listener.capture_mode == CaptureMode::Iptables {
        r.error(
            &path.field("captureMode"),
            "exclusive-fields",
            "IPTABLES is not supported for a Unix domain socket",
        );
    }
}

fn egress_hosts(r: &mut Report, path: &FieldPath, meta: &Meta, hosts: &[Arc<str>]) {
    if hosts.is_empty() {
        r.error(path, "missing-field", "an egress listener requires at least one host");
    }
    let mut seen: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (index, text) in hosts.iter().enumerate() {
        let at = path.index(index);
        hosts::namespaced_host(r, &at, text, Owner::Sidecar);
        let Some((namespace, host)) = text
            .split_once('/')
            .filter(|(namespace, _)| !namespace.starts_with('~'))
        else {
            continue;
        };
        let namespace = if namespace == "." { &meta.namespace } else { namespace };
        let known = seen.entry(namespace).or_default();
        let covered = known.contains(host) || known.contains("*") || (host == "*" && !known.is_empty());
        if covered {
            r.warning(&at, "duplicate", format!("{text:?} overlaps with another entry"));
        }
        known.insert(host);
    }
    let everything = seen.get("*").is_some_and(|hosts| hosts.contains("*"));
    if everything && seen.len() > 1 {
        r.warning(
            path,
            "duplicate",
            "*/* includes all hosts; the other entries have no effect",
        );
    }
}

fn outbound(r: &mut Report, path: &FieldPath, policy: &OutboundTrafficPolicy) {
    if policy.mode == OutboundMode::AllowAnyDynamicDns {
        let message = "ALLOW_ANY_DYNAMIC_DNS is supported in MeshConfig only";
        r.error(&path.field("mode"), "unsupported", message);
    }
    let Some(proxy) = &policy.egress_proxy else {
        return;
    };
    let at = path.field("egressProxy");
    if policy.mode != OutboundMode::AllowAny {
        r.error(&at, "exclusive-fields", "egressProxy requires the mode ALLOW_ANY");
    }
    if proxy.port.is_none() {
        r.error(&at, "missing-field", "egressProxy requires a port");
    }
    if proxy.host.contains('*') {
        hosts::fqdn(r, &at.field("host"), &proxy.host);
    }
    common::destination(r, &at, proxy);
}
