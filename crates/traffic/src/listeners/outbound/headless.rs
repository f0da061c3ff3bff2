//! Addresses of instances of services without a virtual address.

use std::net::IpAddr;
use std::sync::Arc;

use flow::Reads;
use model::service::ServiceKey;
use registry::{ServiceEndpoints, Services};

/// Instances of a service port that clients of a network and cluster can reach.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Instances {
    /// The service.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// The clients' network; empty while no network has a gateway.
    pub network: Arc<str>,
    /// The clients' cluster; empty while there is one.
    pub cluster: Arc<str>,
}

flow::rule! {
    /// The addresses of a service port's endpoints, ready or not, ascending. A relation of its own, so that listeners
    /// depend on addresses only.
    pub InstanceAddresses: Instances => Arc<[IpAddr]> = "instance addresses", derive_instance_addresses;
}

fn derive_instance_addresses(cx: &Reads<'_>, key: &Instances) -> Option<Arc<[IpAddr]>> {
    let service = cx.get::<Services>(&key.service)?;
    let port = service.port(key.port)?;
    let endpoints = cx.get::<ServiceEndpoints>(&key.service)?;
    let network = &key.network;
    let local = service.cluster_local && !key.cluster.is_empty();
    let with_port = endpoints.iter().filter(|e| e.ports.contains_key(&port.name));
    // Instances of other networks are not reachable at their own address.
    let near = with_port
        .filter(|e| network.is_empty() || e.network.is_empty() || e.network == *network)
        .filter(|e| !local || e.cluster == key.cluster);
    let mut addresses: Vec<IpAddr> = near.flat_map(|e| e.ips()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    Some(addresses.into())
}
