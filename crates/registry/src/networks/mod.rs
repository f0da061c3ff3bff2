//! Networks: the network of each address, and the gateways of each network.

mod found;
mod gateways;

use std::sync::Arc;

use config::mesh::{MeshNetworks, NetworkMembers};
use flow::Reads;
use ipnet::IpNet;
use model::proxy::Labels;
use model::service::EndpointAddress;

use crate::inputs::{Mesh, Namespaces, Networks};

pub(crate) use gateways::register as register_gateways;
pub use gateways::{GatewayNames, NetworkGateways};

/// Label with the name of a network: of the system namespace for a whole cluster, of a workload, and of a gateway's
/// service.
pub(crate) const NETWORK_LABEL: &str = "topology.istio.io/network";

flow::rule! {
    /// Cluster facts of workloads.
    ///
    /// Key: a cluster as in [`model::service::SourceId::cluster`].
    pub ClusterNetworks: Arc<str> => Arc<ClusterNetwork> = "networks of clusters", derive_cluster_networks;
}

/// The id of a workload's cluster, and the network of workloads without a network label.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterNetwork {
    /// The cluster's id.
    pub id: Arc<str>,
    /// All workloads are in this network.
    whole: Option<Arc<str>>,
    /// Otherwise the address decides; longer prefixes first.
    blocks: Vec<(IpNet, Arc<str>)>,
}

impl ClusterNetwork {
    /// The network of an address; empty if unknown.
    pub fn of(&self, address: &EndpointAddress) -> Arc<str> {
        if let Some(whole) = &self.whole {
            return whole.clone();
        }
        let EndpointAddress::Ip(ip) = address else {
            return Arc::default();
        };
        let block = self.blocks.iter().find(|(block, _)| block.contains(ip));
        block.map(|(_, name)| name.clone()).unwrap_or_default()
    }
}

fn derive_cluster_networks(cx: &Reads<'_>, cluster: &Arc<str>) -> Option<Arc<ClusterNetwork>> {
    let mesh = cx.get::<Mesh>(&())?;
    let id = mesh.cluster_id_of(cluster).clone();
    let system = (cluster.clone(), mesh.config.root_namespace.clone());
    let label = cx.with::<Namespaces, _>(&system, |n| n?.meta.labels.get(NETWORK_LABEL).cloned());
    let whole = label.filter(|name| !name.is_empty());
    let Some(networks) = cx.get::<Networks>(&()).filter(|_| whole.is_none()) else {
        let blocks = Vec::new();
        return Some(Arc::new(ClusterNetwork { id, whole, blocks }));
    };
    let members = |members: &NetworkMembers| matches!(members, NetworkMembers::FromRegistry(name) if *name == id);
    let mut whole = networks.spec.networks.iter();
    let whole = whole.find(|(_, n)| n.endpoints.iter().filter_map(|e| e.members.as_ref()).any(members));
    let whole = whole.map(|(name, _)| name.clone());
    Some(Arc::new(ClusterNetwork { id, whole, blocks: blocks(&networks.spec) }))
}

fn blocks(networks: &MeshNetworks) -> Vec<(IpNet, Arc<str>)> {
    let all = networks.networks.iter().flat_map(|(name, network)| {
        let members = network.endpoints.iter().filter_map(|e| e.members.as_ref());
        members.filter_map(move |members| match members {
            NetworkMembers::FromCidr(block) => Some((block.parse::<IpNet>().ok()?.trunc(), name.clone())),
            NetworkMembers::FromRegistry(_) => None,
        })
    });
    let mut blocks: Vec<(IpNet, Arc<str>)> = all.collect();
    blocks.sort_by(|(a, x), (b, y)| (b.prefix_len(), a, x).cmp(&(a.prefix_len(), b, y)));
    blocks
}

/// The cluster's id, and the network of a workload: from its label, else from its cluster.
pub(crate) fn place_of(
    cx: &Reads<'_>,
    cluster: &Arc<str>,
    labels: &Labels,
    address: &EndpointAddress,
) -> (Arc<str>, Arc<str>) {
    cx.with::<ClusterNetworks, _>(cluster, |row| {
        let id = row.map(|of| of.id.clone()).unwrap_or_default();
        let network = match labels.get(NETWORK_LABEL) {
            Some(name) if !name.is_empty() => name.clone(),
            _ => row.map(|of| of.of(address)).unwrap_or_default(),
        };
        (id, network)
    })
}

/// Adds the rules for networks of workloads.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ClusterNetworks>();
}
