//! Kubernetes' core kinds. In a cluster, the API server has validated them already; in files, they are not validated
//! otherwise.

use std::net::IpAddr;
use std::sync::Arc;

use crate::core::{
    AddressType, EndpointSlice, Flaw, Ingress, IngressBackend, IngressPath, IngressRule, IngressTls, PathType,
    PodStatus, Service, ServicePort, ServiceType, TargetPort,
};
use crate::decode::{Relations, Report};
use crate::form::{self, Form, host};
use crate::multicluster::{ServiceImport, ServiceImportPort};
use crate::problem::FieldPath;

/// Reports certificates and keys that cannot be used. Their contents are never included.
pub(super) fn credential(r: &mut Report, flaws: impl IntoIterator<Item = Flaw>) {
    for Flaw { key, message } in flaws {
        let message = format!("{key}: {message}; it is not sent to proxies");
        r.warning(&FieldPath::root().field("data"), "bad-credential", message);
    }
}

/// Checks each text of a list.
fn each<'t>(r: &mut Report, path: &FieldPath, form: Form, texts: impl IntoIterator<Item = &'t Arc<str>>) {
    for (index, text) in texts.into_iter().enumerate() {
        r.form(&path.index(index), form, text);
    }
}

/// Checks a text that may be empty.
fn optional(r: &mut Report, path: &FieldPath, form: Form, text: &str) {
    if !text.is_empty() {
        r.form(path, form, text);
    }
}

fn port(r: &mut Report, path: &FieldPath, number: u16) {
    r.form(path, form::port_number, &number.to_string());
}

impl Relations for Service {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let ports = || self.ports.iter().enumerate().map(|(index, port)| (path.field("ports").index(index), port));
        for (at, _) in ports().filter(|(_, port)| self.ports.len() > 1 && port.name.is_empty()) {
            let message = "a port name is required if there is more than one port";
            r.error(&at, "missing-field", message);
        }
        let named = ports().filter(|(_, port)| !port.name.is_empty());
        r.unique(named.map(|(at, port)| (at.field("name"), &port.name, format!("port {:?}", &*port.name))));
        r.unique(ports().map(|(at, port)| {
            let transport = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
            let key = (port.port, transport);
            (at.field("port"), key, format!("{transport} port {}", port.port))
        }));
        each(r, &path.field("clusterIPs"), form::ip_or_none, &self.cluster_ips);
        optional(r, &path.field("clusterIP"), form::ip_or_none, &self.cluster_ip);
        each(r, &path.field("externalIPs"), form::ip, &self.external_ips);
        if self.kind == ServiceType::ExternalName {
            r.form(&path.field("externalName"), form::name_or_address, &self.external_name);
        }
    }
}

impl Relations for ServicePort {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        port(r, &path.field("port"), self.port);
        optional(r, &path.field("name"), form::label, &self.name);
        match &self.target_port {
            Some(TargetPort::Number(number)) => port(r, &path.field("targetPort"), *number),
            Some(TargetPort::Name(name)) if !host::is_label(name) || !name.contains(char::is_alphabetic) => {
                let message = format!("{name:?} is not a valid port name; write a port number without quotes");
                r.error(&path.field("targetPort"), "bad-value", message);
            }
            _ => {}
        }
        if !matches!(&*self.protocol, "" | "TCP" | "UDP" | "SCTP") {
            let message = "the protocol must be TCP, UDP or SCTP";
            r.error(&path.field("protocol"), "bad-value", message);
        }
    }
}

impl Relations for ServiceImport {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        each(r, &path.field("ips"), form::ip, &self.ips);
    }
}

impl Relations for ServiceImportPort {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        port(r, &path.field("port"), self.port);
    }
}

impl Relations for EndpointSlice {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let at = path.field("endpoints").index(index).field("addresses");
            if endpoint.addresses.is_empty() {
                r.error(&at, "missing-field", "an endpoint requires an address");
            }
            for (number, address) in endpoint.addresses.iter().enumerate() {
                let fits = match (self.address_type, address.parse::<IpAddr>()) {
                    (AddressType::Ipv4, Ok(ip)) => ip.is_ipv4(),
                    (AddressType::Ipv6, Ok(ip)) => ip.is_ipv6(),
                    (AddressType::Fqdn, _) => host::fqdn_problem(address).is_none(),
                    (_, Err(_)) => false,
                };
                if !fits {
                    let kind = self.address_type.name();
                    let message = format!("{address:?} is not a valid address of type {kind}");
                    r.error(&at.index(number), "bad-value", message);
                }
            }
        }
        let ports = || self.ports.iter().enumerate().map(|(index, port)| (path.field("ports").index(index), port));
        r.unique(ports().map(|(at, port)| (at.field("name"), &port.name, format!("port {:?}", &*port.name))));
        for (at, port) in ports() {
            port.port.into_iter().for_each(|number| self::port(r, &at.field("port"), number));
        }
    }
}

impl Relations for PodStatus {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        optional(r, &path.field("podIP"), form::ip, &self.pod_ip);
        for (index, address) in self.pod_ips.iter().enumerate() {
            r.form(&path.field("podIPs").index(index).field("ip"), form::ip, &address.ip);
        }
    }
}

impl Relations for Ingress {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        if self.default_backend.is_some() {
            let message = "defaultBackend has no effect: it would receive the requests for all hosts";
            r.warning(&path.field("defaultBackend"), "no-effect", message);
        } else if self.rules.is_empty() {
            r.error(path, "missing-field", "an Ingress requires rules or a defaultBackend");
        }
    }
}

impl Relations for IngressRule {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        optional(r, &path.field("host"), form::ingress_host, &self.host);
    }
}

impl Relations for IngressTls {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        each(r, &path.field("hosts"), form::ingress_host, &self.hosts);
    }
}

impl Relations for IngressPath {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let may_be_empty = self.path_type == PathType::ImplementationSpecific;
        if !(self.path.starts_with('/') || may_be_empty && self.path.is_empty()) {
            r.error(&path.field("path"), "bad-value", "a path must start with a slash");
        }
    }
}

impl Relations for IngressBackend {
    fn check(&self, r: &mut Report, path: &FieldPath) {
        let at = path.field("service");
        let Some(service) = &self.service else {
            return r.error(&at, "missing-field", "only Services are supported as backends");
        };
        r.form(&at.field("name"), form::label, &service.name);
        let (at, number) = (at.field("port"), service.port.number);
        match (service.port.name.is_empty(), number) {
            (true, 0) => r.error(&at, "missing-field", "a port requires a name or a number"),
            (true, _) => r.form(&at.field("number"), form::port_number, &number.to_string()),
            (false, 0) => {}
            (false, _) => r.error(&at, "bad-value", "only one of name and number may be set"),
        }
    }
}
