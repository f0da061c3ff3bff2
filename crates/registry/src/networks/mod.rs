//! Networks: which one an address is in, and where each is entered from the others.

mod found;
mod gateways;

use std::sync::Arc;

use config::mesh::{MeshNetworks, NetworkMembers};
use flow::{Reads, Relation, Rule};
use ipnet::IpNet;
use model::proxy::Labels;
use model::service::EndpointAddress;

use crate::inputs::{Mesh, Namespaces, Networks};

pub(crate) use gateways::register as register_gateways;
pub use gateways::{GatewayNames, NetworkGateways};

/// Label that names a network: of the system namespace for a whole cluster, of a workload for itself, and of a service
/// for the network that it leads into.
pub(crate) const NETWORK_LABEL: &str = "topology.istio.io/network";

/// What workloads have of the cluster that they are in.
pub struct ClusterNetworks;

impl Relation for ClusterNetworks {
    const NAME: &'static str = "networks of clusters";
    /// A cluster as in [`model::service::SourceId::cluster`].
    type Key = Arc<str>;
    type Row = Arc<ClusterNetwork>;
}

/// What workloads have of the cluster that they are in: its id, and their network where they do not say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterNetwork {
    /// The cluster's id.
    pub id: Arc<str>,
    /// All of them are in this one.
    whole: Option<Arc<str>>,
    /// Else it goes by address; longer prefixes first.
    blocks: Vec<(IpNet, Arc<str>)>,
}

impl ClusterNetwork {
    /// The network of an address; empty where nothing says.
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

impl Rule for ClusterNetworks {
    fn derive(cx: &Reads<'_>, cluster: &Arc<str>) -> Option<Arc<ClusterNetwork>> {
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
        Some(Arc::new(ClusterNetwork {
            id,
            whole,
            blocks: blocks(&networks.spec),
        }))
    }
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

/// The cluster's id, and the network of a workload in it: what it says itself, else what holds for the cluster.
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

/// Adds what workloads need to know their network.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ClusterNetworks>();
}
