//! Addresses of the instances of services that have no address of their own.

use std::net::IpAddr;
use std::sync::Arc;

use flow::{Reads, Relation, Rule};
use model::service::{EndpointAddress, ServiceKey};
use registry::{ServiceEndpoints, Services};

/// The addresses at which a service port has endpoints, ready or not, ascending. Apart from the endpoints, so that
/// listeners change with the addresses and with nothing else.
pub struct InstanceAddresses;

impl Relation for InstanceAddresses {
    const NAME: &'static str = "instance addresses";
    type Key = (ServiceKey, u16);
    type Row = Arc<[IpAddr]>;
}

impl Rule for InstanceAddresses {
    fn derive(cx: &Reads<'_>, (key, port): &(ServiceKey, u16)) -> Option<Arc<[IpAddr]>> {
        let service = cx.get::<Services>(key)?;
        let port = service.port(*port)?;
        let endpoints = cx.get::<ServiceEndpoints>(key)?;
        let with_port = endpoints.iter().filter(|e| e.ports.contains_key(&port.name));
        let mut addresses: Vec<IpAddr> = with_port
            .filter_map(|e| match e.address {
                EndpointAddress::Ip(ip) => Some(ip),
                _ => None,
            })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        Some(addresses.into())
    }
}
