//! Validation of MeshNetworks.

use std::net::IpAddr;

use crate::diagnostic::FieldPath;
use crate::mesh::{MeshNetworks, Network, NetworkGateway, NetworkGatewayAddress, NetworkMembers};
use crate::validate::{Report, common, hosts};

pub(super) fn check(r: &mut Report, mesh: &MeshNetworks) {
    let path = FieldPath::spec().field("networks");
    for (name, network) in &mesh.networks {
        check_network(r, &path.key(name.clone()), network);
    }
}

fn check_network(r: &mut Report, path: &FieldPath, network: &Network) {
    for (index, endpoints) in network.endpoints.iter().enumerate() {
        let at = path.field("endpoints").index(index);
        match &endpoints.members {
            Some(NetworkMembers::FromCidr(block)) if !block.contains('/') => {
                let message = format!("{block:?} is not a CIDR range such as 10.0.0.0/8");
                r.error(&at.field("fromCidr"), "bad-value", message);
            }
            Some(NetworkMembers::FromCidr(block)) => common::subnet(r, &at.field("fromCidr"), block),
            Some(NetworkMembers::FromRegistry(cluster)) if cluster.is_empty() => {
                r.error(
                    &at.field("fromRegistry"),
                    "bad-value",
                    "the name of the cluster must not be empty",
                );
            }
            Some(NetworkMembers::FromRegistry(_)) => {}
            None => r.error(&at, "missing-field", "one of fromCidr and fromRegistry is required"),
        }
    }
    for (index, gateway) in network.gateways.iter().enumerate() {
        check_gateway(r, &path.field("gateways").index(index), gateway);
    }
}

fn check_gateway(r: &mut Report, path: &FieldPath, gateway: &NetworkGateway) {
    common::port(r, &path.field("port"), gateway.port);
    match &gateway.address {
        Some(NetworkGatewayAddress::RegistryServiceName(host)) => {
            hosts::fqdn(r, &path.field("registryServiceName"), host);
        }
        Some(NetworkGatewayAddress::Address(address)) if address.parse::<IpAddr>().is_err() => {
            hosts::fqdn(r, &path.field("address"), address);
        }
        Some(NetworkGatewayAddress::Address(_)) => {}
        None => r.error(
            path,
            "missing-field",
            "one of registryServiceName and address is required",
        ),
    }
}
