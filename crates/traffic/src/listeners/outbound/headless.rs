//! Addresses of the instances of services that have no address of their own.

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::ServiceKey;
use registry::{ServiceEndpoints, Services};

/// Instances of a service port, as clients in one place may dial them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Instances {
    /// The service.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// The clients' network; empty where networks have no meaning.
    pub network: Arc<str>,
    /// The clients' cluster; empty while there is one.
    pub cluster: Arc<str>,
}

/// The addresses at which a service port has endpoints, ready or not, ascending. Apart from the endpoints, so that
/// listeners change with the addresses and with nothing else.
pub struct InstanceAddresses;

impl Relation for InstanceAddresses {
    const NAME: &'static str = "instance addresses";
    type Key = Instances;
    type Row = Arc<[IpAddr]>;
}

impl Rule for InstanceAddresses {
    fn derive(cx: &Reads<'_>, key: &Instances) -> Option<Arc<[IpAddr]>> {
        let service = cx.get::<Services>(&key.service)?;
        let port = service.port(key.port)?;
        let endpoints = cx.get::<ServiceEndpoints>(&key.service)?;
        let network = &key.network;
        let local = service.cluster_local && !key.cluster.is_empty();
        let with_port = endpoints.iter().filter(|e| e.ports.contains_key(&port.name));
        // What is in another network is not reached at its own address.
        let near = with_port
            .filter(|e| network.is_empty() || e.network.is_empty() || e.network == *network)
            .filter(|e| !local || e.cluster == key.cluster);
        let mut addresses: Vec<IpAddr> = near.flat_map(|e| e.ips()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        Some(addresses.into())
    }
}
