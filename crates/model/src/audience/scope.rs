//! Facts that several audiences share: visibility, names, address families, match conditions on the client.

use std::net::IpAddr;
use std::sync::Arc;

use crate::proxy::Labels;
use crate::service::ObjectId;

/// Decides which services and rules a client sees.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Scope {
    /// The client's namespace; empty in audiences that namespaces share because their clients see the same.
    pub namespace: Arc<str>,
    /// The `Sidecar` that applies; none for gateways and for the default (everything is visible).
    pub sidecar: Option<ObjectId>,
    /// DestinationRules of the client's namespace whose `workloadSelector` selects the client, sorted.
    pub selected_rules: Vec<ObjectId>,
    /// Id of the client's cluster, whose service addresses it calls; empty while all services are in one cluster.
    pub cluster: Arc<str>,
    /// The client calls automatically assigned addresses of services. False while no service has one, and for resources
    /// that do not depend on service addresses.
    pub assigned: bool,
}

impl Scope {
    /// The scope for resources that do not depend on automatically assigned addresses.
    pub fn without_assigned(self: &Arc<Self>) -> Arc<Scope> {
        match self.assigned {
            false => self.clone(),
            true => Arc::new(Scope { assigned: false, ..(**self).clone() }),
        }
    }

    /// The scope for resources that do not depend on addresses of services.
    pub fn without_addresses(self: &Arc<Self>) -> Arc<Scope> {
        match self.cluster.is_empty() && !self.assigned {
            true => self.clone(),
            false => Arc::new(Scope { cluster: Arc::default(), assigned: false, ..(**self).clone() }),
        }
    }

    /// The scope for what is visible, whatever its addresses and policies.
    pub fn visibility(self: &Arc<Self>) -> Arc<Scope> {
        match self.selected_rules.is_empty() {
            true => self.without_addresses(),
            false => Arc::new(Scope {
                namespace: self.namespace.clone(),
                sidecar: self.sidecar.clone(),
                selected_rules: Vec::new(),
                cluster: Arc::default(),
                assigned: false,
            }),
        }
    }
}

/// Decides the name table of a proxy's agent.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameAudience {
    /// Which services the client sees ([`Scope::visibility`]).
    pub scope: Arc<Scope>,
    /// Which addresses it gets.
    pub view: Arc<NameView>,
}

/// Client facts that decide the addresses of a name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NameView {
    /// Id of its cluster; empty while all services are in one cluster.
    pub cluster: Arc<str>,
    /// Its network, whose instances it can reach directly; empty while no network has a gateway.
    pub network: Arc<str>,
    /// Its address families.
    pub ip: IpFamilies,
    /// It gets automatically assigned addresses of services.
    pub assigned: bool,
}

/// Client facts that a VirtualService's match can test (`sourceLabels`, `sourceNamespace`).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Source {
    /// The client's namespace.
    pub namespace: Arc<str>,
    /// Its labels, reduced to those that some VirtualService names.
    pub labels: Labels,
    /// The size of the largest regular expression that it accepts; for HTTP routes only.
    pub regex_limit: Option<u32>,
}

/// Address families of a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum IpFamilies {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both.
    Dual,
}

impl IpFamilies {
    /// The unspecified address, which listens on all addresses of the proxy: `0.0.0.0`, or `::` without IPv4.
    pub fn wildcard(self) -> IpAddr {
        match self {
            IpFamilies::V6 => IpAddr::from([0u16; 8]),
            IpFamilies::V4 | IpFamilies::Dual => IpAddr::from([0u8; 4]),
        }
    }

    /// The loopback address.
    pub fn loopback(self) -> IpAddr {
        match self {
            IpFamilies::V6 => IpAddr::from(std::net::Ipv6Addr::LOCALHOST.segments()),
            IpFamilies::V4 | IpFamilies::Dual => IpAddr::from([127, 0, 0, 1]),
        }
    }
}
