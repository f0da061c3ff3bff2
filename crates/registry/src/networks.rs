//! Networks: which one an address is in, and where each is entered from the others.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use flow::{Index, Members, Reads, Relation, Rule};
use ipnet::IpNet;
use model::network::{NetworkEntries, NetworkEntry};
use model::proxy::Labels;
use model::service::{EndpointAddress, Registry, ServiceKey};
use names::Hostname;
use resources::core::{self, ServiceType};
use resources::mesh::{MeshNetworks, NetworkGatewayPlace, NetworkMembers};

use crate::inputs::{Mesh, MeshSettings, Namespaces, Networks, Nodes, ServiceObject, ServiceObjectKey, ServiceObjects};
use crate::services::DefinitionsByService;

/// Label that names a network: of the system namespace for a whole cluster, of a workload for itself, and of a service
/// for the network that it leads into.
pub(crate) const NETWORK_LABEL: &str = "topology.istio.io/network";
/// Label of a gateway's service with its port for traffic between networks.
const PORT_LABEL: &str = "networking.istio.io/gatewayPort";
/// That port where nothing says.
const PORT: u16 = 15443;
/// Annotation of a gateway's service with the labels, as JSON, of the nodes at which it is reached by its node port.
const NODES_ANNOTATION: &str = "traffic.istio.io/nodeSelector";

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

/// Services that say that they lead into a network.
pub struct GatewayServices;

impl Relation for GatewayServices {
    const NAME: &'static str = "services of network gateways";
    type Key = ();
    type Row = Members<ServiceObjectKey>;
}

impl Index for GatewayServices {
    type Of = ServiceObjects;
    fn keys(_: &ServiceObjectKey, row: &ServiceObject) -> Vec<()> {
        match row {
            ServiceObject::Kubernetes(o) if o.meta.label(NETWORK_LABEL).is_some_and(|n| !n.is_empty()) => vec![()],
            _ => Vec::new(),
        }
    }
}

/// Where the networks of the mesh are entered from others.
pub struct NetworkGateways;

impl Relation for NetworkGateways {
    const NAME: &'static str = "network gateways";
    type Key = ();
    type Row = Arc<NetworkEntries>;
}

impl Rule for NetworkGateways {
    fn derive(cx: &Reads<'_>, (): &()) -> Option<Arc<NetworkEntries>> {
        let mesh = cx.get::<Mesh>(&())?;
        let mut entries = Vec::new();
        let labelled = cx.get::<GatewayServices>(&());
        for key in labelled.iter().flat_map(|keys| keys.iter()) {
            if let Some(object) = cx.get::<ServiceObjects>(key)
                && let ServiceObject::Kubernetes(o) = &*object
            {
                let network = o.meta.labels.get(NETWORK_LABEL).cloned().unwrap_or_default();
                let port = o.meta.label(PORT_LABEL).and_then(|text| text.parse().ok());
                of_service(cx, &mesh, key, network, port.unwrap_or(PORT), &mut entries);
            }
        }
        if let Some(networks) = cx.get::<Networks>(&()) {
            of_networks(cx, &mesh, &networks.spec, &mut entries);
        }
        Some(Arc::new(NetworkEntries::new(entries)))
    }
}

/// The gateways that MeshNetworks lists. Those of a service count where the service's cluster is of the network.
fn of_networks(cx: &Reads<'_>, mesh: &MeshSettings, networks: &MeshNetworks, entries: &mut Vec<NetworkEntry>) {
    for (name, network) in &networks.networks {
        for gateway in &network.gateways {
            let Some(port) = u16::try_from(gateway.port).ok().filter(|port| *port != 0) else {
                continue;
            };
            match &gateway.place {
                Some(NetworkGatewayPlace::Address(address)) => {
                    entries.extend(address.parse().ok().map(|address| NetworkEntry {
                        network: name.clone(),
                        cluster: Arc::default(),
                        address,
                        port,
                    }))
                }
                Some(NetworkGatewayPlace::RegistryServiceName(host)) => {
                    let of_network = |cluster: &Arc<str>| {
                        let id = mesh.cluster_id_of(cluster);
                        let members = network.endpoints.iter().filter_map(|e| e.members.as_ref());
                        let mut members = members;
                        members.any(|m| matches!(m, NetworkMembers::FromRegistry(name) if name == id))
                    };
                    for object in of_host(cx, mesh, host) {
                        if of_network(&object.cluster) {
                            of_service(cx, mesh, &object, name.clone(), port, entries);
                        }
                    }
                }
                None => {}
            }
        }
    }
}

/// The Kubernetes services of a hostname, one in each cluster.
fn of_host(cx: &Reads<'_>, mesh: &MeshSettings, host: &str) -> Vec<ServiceObjectKey> {
    let short = host
        .strip_suffix(&*mesh.domain)
        .and_then(|rest| rest.strip_suffix(".svc."));
    let namespace = short
        .and_then(|short| short.split_once('.'))
        .map(|(_, namespace)| namespace);
    let (Some(namespace), Ok(hostname)) = (namespace, Hostname::parse(host)) else {
        return Vec::new();
    };
    let key = ServiceKey {
        hostname,
        namespace: namespace.into(),
    };
    let objects = cx.get::<DefinitionsByService>(&key);
    let objects = objects.iter().flat_map(|objects| objects.iter());
    objects
        .filter(|o| o.registry == Registry::Kubernetes)
        .cloned()
        .collect()
}

/// The addresses at which a service is reached from outside its cluster, with this port. Names are not looked up.
fn of_service(
    cx: &Reads<'_>,
    mesh: &MeshSettings,
    key: &ServiceObjectKey,
    network: Arc<str>,
    port: u16,
    entries: &mut Vec<NetworkEntry>,
) {
    let Some(object) = cx.get::<ServiceObjects>(key) else {
        return;
    };
    let ServiceObject::Kubernetes(object) = &*object else {
        return;
    };
    let cluster = mesh.cluster_id_of(&key.cluster).clone();
    let selector = object
        .meta
        .annotation(NODES_ANNOTATION)
        .filter(|_| object.spec.kind == ServiceType::NodePort);
    let (addresses, port) = match selector {
        Some(selector) => {
            let node_port = object.spec.ports.iter().find(|p| p.port == port).map(|p| p.node_port);
            let node_port = node_port.filter(|p| *p != 0).unwrap_or(port);
            (of_nodes(cx, &key.cluster, selector), node_port)
        }
        None => (external(&object.spec), port),
    };
    entries.extend(addresses.into_iter().map(|address| NetworkEntry {
        network: network.clone(),
        cluster: cluster.clone(),
        address,
        port,
    }));
}

/// What a load balancer gave the service, and the external addresses that it was given by hand.
fn external(spec: &core::Service) -> Vec<IpAddr> {
    let given = spec.status.load_balancer.ingress.iter().map(|i| &i.ip);
    let given = given.filter(|_| spec.kind == ServiceType::LoadBalancer);
    given
        .chain(&spec.external_ips)
        .filter_map(|ip| ip.parse().ok())
        .collect()
}

/// The external addresses of a cluster's nodes that have all labels of a selector, written as JSON; all nodes where it is
/// empty or cannot be read.
fn of_nodes(cx: &Reads<'_>, cluster: &Arc<str>, selector: &str) -> Vec<IpAddr> {
    let Ok(wanted) = serde_json::from_str::<BTreeMap<String, String>>(selector) else {
        return Vec::new();
    };
    let keys = cx.keys::<Nodes>();
    let nodes = keys
        .iter()
        .filter(|(of, _)| of == cluster)
        .filter_map(|key| cx.get::<Nodes>(key));
    let has = |node: &resources::Object<core::Node>, name: &str, value: &str| node.meta.label(name) == Some(value);
    let nodes = nodes.filter(|node| wanted.iter().all(|(name, value)| has(node, name, value)));
    let address = |node: &resources::Object<core::Node>| {
        node.spec
            .addresses_of("ExternalIP")
            .find_map(|ip| ip.parse::<IpAddr>().ok())
    };
    nodes.filter_map(|node| address(&node)).collect()
}

/// Adds what workloads need to know their network.
pub(crate) fn register(b: &mut flow::Builder) {
    b.view::<ClusterNetworks>();
}

/// Adds the gateways; the rules of services must be there.
pub(crate) fn register_gateways(b: &mut flow::Builder) {
    b.index::<GatewayServices>();
    b.view::<NetworkGateways>();
}
