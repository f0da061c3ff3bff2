//! Validation of Ingress. In a cluster, the API server has validated it already; in files, it is not validated
//! otherwise.

use crate::core::{Ingress, IngressBackend, PathType};
use crate::diagnostic::FieldPath;
use crate::validate::{Report, common, hosts};

pub(super) fn check(r: &mut Report, spec: &Ingress) {
    let path = FieldPath::spec();
    if let Some(backend) = &spec.default_backend {
        let at = path.field("defaultBackend");
        check_backend(r, &at, backend);
        let message = "defaultBackend has no effect: it would receive the requests for all hosts";
        r.warning(&at, "no-effect", message);
    } else if spec.rules.is_empty() {
        r.error(&path, "missing-field", "an Ingress requires rules or a defaultBackend");
    }
    for (index, rule) in spec.rules.iter().enumerate() {
        let at = path.field("rules").index(index);
        if !rule.host.is_empty() {
            check_host(r, &at.field("host"), &rule.host);
        }
        for (index, one) in rule.http.iter().flat_map(|http| &http.paths).enumerate() {
            let at = at.field("http").field("paths").index(index);
            let may_be_empty = one.path_type == PathType::ImplementationSpecific;
            if !(one.path.starts_with('/') || may_be_empty && one.path.is_empty()) {
                r.error(&at.field("path"), "bad-value", "a path must start with a slash");
            }
            check_backend(r, &at.field("backend"), &one.backend);
        }
    }
    for (index, tls) in spec.tls.iter().enumerate() {
        let at = path.field("tls").index(index);
        for (index, host) in tls.hosts.iter().enumerate() {
            check_host(r, &at.field("hosts").index(index), host);
        }
    }
}

fn check_host(r: &mut Report, at: &FieldPath, host: &str) {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_name = !name.is_empty() && name.split('.').all(hosts::is_label);
    if !is_name || name.parse::<std::net::IpAddr>().is_ok() {
        r.error(
            at,
            "bad-value",
            format!("{host:?} is not a valid host; use a DNS name, optionally with `*` as its first label"),
        );
    }
}

fn check_backend(r: &mut Report, at: &FieldPath, backend: &IngressBackend) {
    let Some(service) = &backend.service else {
        return r.error(
            &at.field("service"),
            "missing-field",
            "only Services are supported as backends",
        );
    };
    let at = at.field("service");
    if !hosts::is_label(&service.name) {
        r.error(
            &at.field("name"),
            "bad-value",
            format!("{:?} is not a valid service name", &*service.name),
        );
    }
    match (service.port.name.is_empty(), service.port.number) {
        (true, 0) => r.error(&at.field("port"), "missing-field", "a port requires a name or a number"),
        (true, number) => common::port(r, &at.field("port").field("number"), number),
        (false, 0) => {}
        (false, _) => r.error(&at.field("port"), "bad-value", "only one of name and number may be set"),
    }
}
