//! The role of the proxy: its type, addresses and name.

use std::net::IpAddr;

use names::NodeType;

use crate::options::{Variables, text};

/// The role of a proxy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// The type.
    pub kind: NodeType,
    /// All addresses, the primary one first.
    pub addresses: Vec<IpAddr>,
    /// The name of the pod.
    pub pod: String,
    /// The namespace of the pod.
    pub namespace: String,
    /// The DNS domain.
    pub domain: String,
}

impl Role {
    /// Determines the role. `interfaces` are the addresses of the network interfaces except loopback and link-local ones, and
    /// `excluded` those of interfaces that the annotation `traffic.sidecar.istio.io/excludeInterfaces` names. `domain` is the
    /// argument `--domain`; it may be empty.
    #[must_use]
    pub fn new(
        kind: NodeType,
        variables: &Variables,
        interfaces: &[IpAddr],
        excluded: &[IpAddr],
        domain: &str,
    ) -> Role {
        let of = |name: &str| text(variables, name).unwrap_or_default().to_owned();
        let primary: Option<IpAddr> = text(variables, "INSTANCE_IP").and_then(|text| text.parse().ok());
        let loopback: [IpAddr; 2] = [[127, 0, 0, 1].into(), std::net::Ipv6Addr::LOCALHOST.into()];
        let found = if interfaces.is_empty() { &loopback[..] } else { interfaces };
        let others = found.iter().filter(|ip| !excluded.contains(ip) && Some(**ip) != primary);
        let namespace = of("POD_NAMESPACE");
        Role {
            kind,
            addresses: primary.iter().chain(others).copied().collect(),
            pod: of("POD_NAME"),
            domain: if domain.is_empty() { format!("{namespace}.svc.cluster.local") } else { domain.to_owned() },
            namespace,
        }
    }

    /// The ID of the node.
    #[must_use]
    pub fn id(&self) -> String {
        let ip = self.addresses.first().map(ToString::to_string).unwrap_or_default();
        format!("{}~{ip}~{}.{}~{}", self.kind.name(), self.pod, self.namespace, self.domain)
    }

    /// Whether all addresses are of IPv6.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        self.addresses.iter().all(IpAddr::is_ipv6)
    }

    /// Whether all addresses are of IPv4.
    #[must_use]
    pub fn is_ipv4(&self) -> bool {
        self.addresses.iter().all(IpAddr::is_ipv4)
    }
}
