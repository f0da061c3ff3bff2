//! Validation of Kubernetes' core kinds. In a cluster, the API server has validated them already; in files, they are
//! not validated otherwise.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::core::{AddressType, EndpointSlice, Flaw, Pod, Service, ServiceType, TargetPort};
use crate::diagnostic::FieldPath;
use crate::multicluster::ServiceImport;
use crate::validate::{Report, common, hosts};

/// Reports certificates and keys that cannot be used. Their contents are never included.
pub(super) fn check_credential(r: &mut Report, flaws: impl IntoIterator<Item = Flaw>) {
    for Flaw { key, message } in flaws {
        let message = format!("{key}: {message}; it is not sent to proxies");
        r.warning(&FieldPath::root().field("data"), "bad-credential", message);
    }
}

pub(super) fn check_service(r: &mut Report, spec: &Service) {
    let path = FieldPath::spec();
    let (mut names, mut numbers) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in spec.ports.iter().enumerate() {
        let at = path.field("ports").index(index);
        common::port(r, &at.field("port"), u32::from(port.port));
        match &port.target_port {
            Some(TargetPort::Number(number)) => common::port(r, &at.field("targetPort"), u32::from(*number)),
            Some(TargetPort::Name(name)) if !hosts::is_label(name) || !name.contains(|c: char| c.is_alphabetic()) => {
                let message = format!("{name:?} is not a valid port name; write a port number without quotes");
                r.error(&at.field("targetPort"), "bad-value", message);
            }
            _ => {}
        }
        if spec.ports.len() > 1 && port.name.is_empty() {
            r.error(
                &at,
                "missing-field",
                "a port name is required if there is more than one port",
            );
        } else if !port.name.is_empty() && !hosts::is_label(&port.name) {
            r.error(
                &at.field("name"),
                "bad-value",
                format!("{:?} is not a valid port name", &*port.name),
            );
        } else if !names.insert(&port.name) {
            r.error(
                &at.field("name"),
                "duplicate",
                format!("duplicate port {:?}", &*port.name),
            );
        }
        if !matches!(&*port.protocol, "" | "TCP" | "UDP" | "SCTP") {
            r.error(
                &at.field("protocol"),
                "bad-value",
                "the protocol must be TCP, UDP or SCTP",
            );
        }
        let transport = if port.protocol.is_empty() {
            "TCP"
        } else {
            &port.protocol
        };
        if !numbers.insert((port.port, transport)) {
            r.error(
                &at.field("port"),
                "duplicate",
                format!("duplicate {transport} port {}", port.port),
            );
        }
    }
    for (index, address) in spec.cluster_ips.iter().enumerate().filter(|(_, ip)| &***ip != "None") {
        common::ip_address(r, &path.field("clusterIPs").index(index), address);
    }
    if !matches!(&*spec.cluster_ip, "" | "None") {
        common::ip_address(r, &path.field("clusterIP"), &spec.cluster_ip);
    }
    for (index, address) in spec.external_ips.iter().enumerate() {
        common::ip_address(r, &path.field("externalIPs").index(index), address);
    }
    if spec.kind == ServiceType::ExternalName && spec.external_name.parse::<IpAddr>().is_err() {
        hosts::fqdn(r, &path.field("externalName"), &spec.external_name);
    }
}

pub(super) fn check_service_import(r: &mut Report, spec: &ServiceImport) {
    let path = FieldPath::spec();
    for (index, port) in spec.ports.iter().enumerate() {
        common::port(r, &path.field("ports").index(index).field("port"), u32::from(port.port));
    }
    for (index, address) in spec.ips.iter().enumerate() {
        common::ip_address(r, &path.field("ips").index(index), address);
    }
}

pub(super) fn check_endpoint_slice(r: &mut Report, spec: &EndpointSlice) {
    let path = FieldPath::root();
    for (index, endpoint) in spec.endpoints.iter().enumerate() {
        let at = path.field("endpoints").index(index).field("addresses");
        if endpoint.addresses.is_empty() {
            r.error(&at, "missing-field", "an endpoint requires an address");
        }
        for (number, address) in endpoint.addresses.iter().enumerate() {
            let fits = match (spec.address_type, address.parse::<IpAddr>()) {
                (AddressType::Ipv4, Ok(ip)) => ip.is_ipv4(),
                (AddressType::Ipv6, Ok(ip)) => ip.is_ipv6(),
                (AddressType::Fqdn, _) => hosts::fqdn_problem(address).is_none(),
                (_, Err(_)) => false,
            };
            if !fits {
                let message = format!(
                    "{address:?} is not a valid address of type {}",
                    spec.address_type.name()
                );
                r.error(&at.index(number), "bad-value", message);
            }
        }
    }
    let mut names = BTreeSet::new();
    for (index, port) in spec.ports.iter().enumerate() {
        let at = path.field("ports").index(index);
        if !names.insert(&port.name) {
            r.error(
                &at.field("name"),
                "duplicate",
                format!("duplicate port {:?}", &*port.name),
            );
        }
        if let Some(number) = port.port {
            common::port(r, &at.field("port"), u32::from(number));
        }
    }
}

pub(super) fn check_pod(r: &mut Report, spec: &Pod) {
    let status = FieldPath::root().field("status");
    if !spec.status.pod_ip.is_empty() {
        common::ip_address(r, &status.field("podIP"), &spec.status.pod_ip);
    }
    for (index, address) in spec.status.pod_ips.iter().enumerate() {
        common::ip_address(r, &status.field("podIPs").index(index).field("ip"), &address.ip);
    }
}
