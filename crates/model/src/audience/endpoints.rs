//! Audiences and keys of endpoints.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{ResourceKey, Scope};
use crate::proxy::{Labels, Locality};
use crate::service::ServiceKey;

/// The bootstrap cluster that represents the client's own workload.
pub const LOCAL_CLUSTER: &str = "local_cluster";

/// Decides the endpoints that a proxy gets.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct EndpointsAudience {
    /// Which services and rules the client sees ([`Scope::without_assigned`]).
    pub scope: Arc<Scope>,
    /// The client's location.
    pub location: Arc<ClientLocation>,
}

/// Decides the endpoints of a few clusters that depend on more facts of the client than those of the others do, so that
/// the others are shared with clients for which these facts differ.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct OwnEndpoints {
    /// Decides the endpoints of the clusters of these hosts.
    pub audience: Arc<EndpointsAudience>,
    /// The hosts.
    pub hosts: Arc<BTreeSet<Arc<str>>>,
    /// The endpoints of [`LOCAL_CLUSTER`]; none for proxies that do not request it (`ENABLE_SELF_DISCOVERY`).
    pub workload: Option<Arc<OwnWorkload>>,
}

/// The audiences of endpoints: a proxy has a shared one, and may have its own for some clusters.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum EndpointsSection {
    /// All clusters but those of the proxy's own audience.
    Shared(Arc<EndpointsAudience>),
    /// A few clusters.
    Own(Arc<OwnEndpoints>),
}

impl EndpointsSection {
    /// The key of the endpoints of a cluster; `None` for a cluster that an own audience does not have.
    pub fn resolve(&self, name: &Arc<str>) -> Option<ResourceKey> {
        match self {
            EndpointsSection::Shared(audience) => Some(ResourceKey::Endpoints(audience.clone(), name.clone())),
            EndpointsSection::Own(own) if **name == *LOCAL_CLUSTER => {
                own.workload.clone().map(ResourceKey::OwnInstances)
            }
            EndpointsSection::Own(own) => {
                let of_host = host_of(name).is_some_and(|host| own.hosts.contains(host));
                of_host.then(|| ResourceKey::Endpoints(own.audience.clone(), name.clone()))
            }
        }
    }
}

/// The host of an outbound cluster's name: its last part, in both forms (`|` and `_.`).
fn host_of(cluster: &str) -> Option<&str> {
    let rest = cluster.strip_prefix("outbound")?;
    let parts = if rest.starts_with('|') { rest.rsplit_once('|') } else { rest.rsplit_once("_.") };
    parts.map(|(_, host)| host)
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

/// Location of a client, reduced to the facts that the endpoints of the audience's clusters depend on.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ClientLocation {
    /// Its network; empty if unknown, or while no network has a gateway.
    pub network: Arc<str>,
    /// The only networks whose endpoints it requests (`REQUESTED_NETWORK_VIEW`); empty for all.
    pub networks: Vec<Arc<str>>,
    /// Its node; empty while none of the services prefers or requires endpoints of the client's node.
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
