//! Audiences and keys of endpoints.

use std::sync::Arc;

use super::Scope;
use crate::proxy::{Labels, Locality};
use crate::service::ServiceKey;

/// Decides the endpoints that a proxy gets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointsAudience {
    /// Which services and rules the client sees ([`Scope::without_assigned`]).
    pub scope: Arc<Scope>,
    /// The client's location.
    pub location: Arc<ClientLocation>,
    /// The endpoints of `local_cluster`; none for proxies that do not request it (`ENABLE_SELF_DISCOVERY`).
    pub own: Option<Arc<OwnWorkload>>,
}

/// The instances of a client's own workload in its region, which Envoy compares with the instances of called services
/// (zone-aware load balancing).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OwnWorkload {
    /// A service that selects the workload.
    pub service: ServiceKey,
    /// Its port.
    pub port: u16,
    /// Name of the Deployment (or other owner) of the instances.
    pub workload: Arc<str>,
    /// The instance's [`TEMPLATE_LABELS`]; empty where it has none.
    pub templates: [Arc<str>; 2],
    /// Its region.
    pub region: Arc<str>,
}

/// Labels that differ between the versions of a workload.
pub const TEMPLATE_LABELS: [&str; 2] = ["pod-template-hash", "rollouts-pod-template-hash"];

/// Location of a client, reduced to the facts that some service, rule or network of the mesh depends on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ClientLocation {
    /// Its network; empty if unknown, or while no network has a gateway.
    pub network: Arc<str>,
    /// The only networks whose endpoints it requests (`REQUESTED_NETWORK_VIEW`); empty for all.
    pub networks: Vec<Arc<str>>,
    /// Its node; empty while no service prefers or requires endpoints of the client's node.
    pub node: Arc<str>,
    /// Its locality; empty while locality load balancing is not used.
    pub locality: Locality,
    /// Its labels that a failover priority names.
    pub labels: Labels,
}

/// The part of a [`ClientLocation`] that the endpoints of one cluster depend on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ClientView {
    /// The cluster whose cluster-local endpoints the client can use.
    pub cluster: Option<Arc<str>>,
    /// Only endpoints of this node.
    pub node: Option<Arc<str>>,
    /// The client's network; endpoints of other networks are reached through gateways.
    pub network: Option<Arc<str>>,
    /// Only endpoints of these networks; empty for all.
    pub networks: Vec<Arc<str>>,
    /// The locality by which endpoints are prioritized.
    pub locality: Option<Arc<Locality>>,
    /// The client's labels by which endpoints are prioritized.
    pub labels: Labels,
}
