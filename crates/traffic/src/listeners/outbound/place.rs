//! Bind addresses of outbound listeners.

use std::net::IpAddr;
use std::sync::Arc;

use config::MeshConfig;
use ipnet::IpNet;
use model::audience::{IpFamilies, ListenerAudience};
use model::service::{Registry, Service};
use names::Protocol;

use crate::listeners::entry::{Bound, Primary};

/// Facts that decide the bind addresses.
pub(super) struct Places<'a> {
    pub(super) audience: &'a ListenerAudience,
    pub(super) mesh: &'a MeshConfig,
}

/// The address of a service for a client's listener.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Address {
    /// None: the service is selected by name or by addresses of its endpoints.
    Unspecified,
    /// Virtual addresses. The first names the listener.
    Hosts(Vec<IpAddr>),
    /// A network, which a filter chain of a shared listener matches.
    Net(IpNet),
}

impl Places<'_> {
    /// All addresses of the proxy.
    pub(super) fn wildcard(&self) -> Bound {
        let v6 = IpAddr::from([0u16; 8]);
        let additional = if self.audience.ip == IpFamilies::Dual { vec![v6] } else { Vec::new() };
        Bound { primary: Primary::Ip(self.audience.ip.wildcard()), additional }
    }

    /// Whether the listener is shared by all services of its port.
    pub(super) fn is_wildcard(&self, bound: &Bound) -> bool {
        bound.primary == Primary::Ip(self.audience.ip.wildcard())
    }

    /// The loopback addresses.
    pub(super) fn loopback(&self) -> Option<Bound> {
        let v6 = IpAddr::from(std::net::Ipv6Addr::LOCALHOST);
        let more = (self.audience.ip == IpFamilies::Dual).then_some(v6);
        Bound::to([self.audience.ip.loopback()].into_iter().chain(more))
    }

    /// Whether the proxy can bind the listener.
    pub(super) fn usable(&self, bind_to_port: bool, bound: Option<&Bound>, port: u16, protocol: Protocol) -> bool {
        let privileged = bind_to_port && self.audience.unprivileged && (1..1024).contains(&port);
        let wildcard = bound.map_or(protocol.is_http(), |b| self.is_wildcard(b));
        !(privileged || wildcard && self.is_reserved(port))
    }

    /// Whether the port belongs to the proxy: captured traffic, readiness, metrics.
    pub(super) fn is_reserved(&self, port: u16) -> bool {
        let own = [self.mesh.proxy_listen_port, self.mesh.proxy_inbound_listen_port];
        self.audience.options.static_ports.contains(&port) || own.contains(&i32::from(port))
    }

    /// The addresses of a service, each with listeners of its own. A Kubernetes service has one, in one or two
    /// families, as has a service with automatically assigned addresses; a ServiceEntry may have several.
    pub(super) fn addresses(&self, service: &Service) -> Vec<Address> {
        let hosts = |nets: &[IpNet]| Address::Hosts(nets.iter().map(IpNet::addr).collect());
        let scope = &self.audience.scope;
        let usable = |all: &[IpNet]| -> Vec<IpNet> {
            let usable = all.iter().copied().filter(|net| self.has_family(net.addr()));
            usable.collect()
        };
        match (service.addresses_in(&scope.cluster, scope.assigned), service.registry) {
            ([], _) => vec![Address::Unspecified],
            (assigned, _) if service.addresses.is_empty() && service.cluster_addresses.is_empty() => {
                // Assigned addresses of other families cannot be resolved.
                match usable(assigned) {
                    none if none.is_empty() => vec![Address::Unspecified],
                    some => vec![hosts(&some)],
                }
            }
            (all @ [first, ..], Registry::Kubernetes | Registry::Import | Registry::Pool) => {
                let usable = usable(all);
                vec![hosts(if usable.is_empty() { std::slice::from_ref(first) } else { &usable })]
            }
            (all, Registry::ServiceEntry) => all
                .iter()
                .map(|net| match net.prefix_len() == net.max_prefix_len() {
                    true if net.addr().is_unspecified() => Address::Unspecified,
                    true => hosts(std::slice::from_ref(net)),
                    false => Address::Net(*net),
                })
                .collect(),
        }
    }

    /// Whether the proxy has an address of this family.
    pub(super) fn has_family(&self, address: IpAddr) -> bool {
        match self.audience.ip {
            IpFamilies::V4 => address.is_ipv4(),
            IpFamilies::V6 => address.is_ipv6(),
            IpFamilies::Dual => true,
        }
    }
}

impl Bound {
    /// Parses the `bind` of a `Sidecar`'s listener: an address or `unix://PATH`.
    pub(super) fn parse(text: &Arc<str>) -> Option<Bound> {
        let primary = match text.parse() {
            Ok(ip) => Primary::Ip(ip),
            Err(_) if text.starts_with("unix://") => Primary::Unix(text.clone()),
            Err(_) => return None,
        };
        Some(Bound { primary, additional: Vec::new() })
    }
}
