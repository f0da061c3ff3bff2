//! Sources of network gateways: services, Gateways and MeshNetworks.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::core::{self, ServiceType};
use config::gateway_api::{Gateway, Listener};
use config::mesh::{MeshNetworks, NetworkGatewayAddress, NetworkMembers};
use config::{Meta, Object};
use flow::Reads;
use model::network::NetworkEntry;
use model::service::{Registry, ServiceKey};
use names::Hostname;

use super::NETWORK_LABEL;
use crate::inputs::{MeshSettings, Nodes, ServiceObject, ServiceObjectKey, ServiceObjects};
use crate::services::DefinitionsByService;

/// Label of a gateway's service with its port for cross-network traffic.
const PORT_LABEL: &str = "networking.istio.io/gatewayPort";
/// The default of that port.
const PORT: u16 = 15443;
/// Annotation of a gateway's service that selects nodes by labels (JSON), for access through the node port.
const NODES_ANNOTATION: &str = "traffic.istio.io/nodeSelector";
/// Class of Gateways that represent remote gateways.
const REMOTE_CLASS: &str = "istio-remote";
/// TLS option of a listener, and its value for SNI passthrough.
const LISTENER_MODE: (&str, &str) = ("gateway.istio.io/listener-protocol", "auto-passthrough");

/// A configured gateway.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    network: Arc<str>,
    /// Id of its cluster; empty if unknown.
    cluster: Arc<str>,
    /// An IP address, or a name.
    host: Arc<str>,
    port: u16,
}

impl Place {
    /// The address or name as text.
    pub(super) fn host(&self) -> &Arc<str> {
        &self.host
    }

    /// The address, unless it is a name.
    pub(super) fn address(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The gateway with a resolved address.
    pub(super) fn at(&self, address: IpAddr) -> NetworkEntry {
        NetworkEntry { network: self.network.clone(), cluster: self.cluster.clone(), address, port: self.port }
    }
}

/// The network in an object's label.
pub(super) fn network_of(meta: &Meta) -> Option<Arc<str>> {
    meta.labels.get(NETWORK_LABEL).filter(|name| !name.is_empty()).cloned()
}

/// The port of a gateway for cross-network traffic.
fn port_of(meta: &Meta) -> u16 {
    let labelled = meta.label(PORT_LABEL).and_then(|text| text.parse().ok());
    labelled.unwrap_or(PORT)
}

/// Collects gateways.
pub(super) struct Found<'a> {
    cx: &'a Reads<'a>,
    mesh: &'a MeshSettings,
    places: BTreeSet<Place>,
}

impl<'a> Found<'a> {
    /// An empty collection.
    pub(super) fn new(cx: &'a Reads<'a>, mesh: &'a MeshSettings) -> Found<'a> {
        Found { cx, mesh, places: BTreeSet::new() }
    }

    /// All gateways that were added.
    pub(super) fn into_places(self) -> BTreeSet<Place> {
        self.places
    }

    /// Adds a service with a network label. A service without the port is ignored: it may exist for other protocols.
    pub(super) fn labelled(&mut self, key: &ServiceObjectKey) {
        let Some(object) = self.cx.get::<ServiceObjects>(key) else {
            return;
        };
        let ServiceObject::Kubernetes(o) = &*object else {
            return;
        };
        let (network, port) = (network_of(&o.meta), port_of(&o.meta));
        if let Some(network) = network.filter(|_| o.spec.ports.iter().any(|p| p.port == port)) {
            self.of_service(key, &network, port);
        }
    }

    /// Adds a Gateway with a network label: each of its addresses at each SNI passthrough listener.
    pub(super) fn of_resource(&mut self, cluster: &Arc<str>, gateway: &Object<Gateway>) {
        let spec = &gateway.spec;
        // Gateways that represent remote ones count in the configuration cluster only.
        let Some(network) =
            network_of(&gateway.meta).filter(|_| cluster.is_empty() || &*spec.gateway_class_name != REMOTE_CLASS)
        else {
            return;
        };
        let expected = port_of(&gateway.meta);
        let passes = |listener: &&Listener| {
            let (option, mode) = LISTENER_MODE;
            let asked = |tls: &config::gateway_api::ListenerTls| tls.options.get(option).is_some_and(|m| &**m == mode);
            listener.tls.as_ref().is_some_and(|tls| asked(tls) || listener.port == expected)
        };
        let hosts = spec.addresses.iter().filter(|a| matches!(&*a.kind, "IPAddress" | "Hostname"));
        for host in hosts.filter_map(|a| a.value.as_ref()) {
            let ports = spec.listeners.iter().filter(passes).map(|listener| listener.port);
            let place = |port| self.place(&network, self.mesh.cluster_id_of(cluster), host, port);
            let places: Vec<Place> = ports.map(place).collect();
            self.places.extend(places);
        }
    }

    /// Adds the gateways in MeshNetworks. Those of a service count only if the service's cluster is in the network.
    pub(super) fn of_networks(&mut self, networks: &MeshNetworks) {
        for (name, network) in &networks.networks {
            for gateway in &network.gateways {
                let Some(port) = u16::try_from(gateway.port).ok().filter(|port| *port != 0) else {
                    continue;
                };
                match &gateway.address {
                    Some(NetworkGatewayAddress::Address(host)) => {
                        let place = self.place(name, &Arc::default(), host, port);
                        self.places.insert(place);
                    }
                    Some(NetworkGatewayAddress::RegistryServiceName(host)) => {
                        let of_network = |cluster: &Arc<str>| {
                            let id = self.mesh.cluster_id_of(cluster);
                            let mut members = network.endpoints.iter().filter_map(|e| e.members.as_ref());
                            members.any(|m| matches!(m, NetworkMembers::FromRegistry(name) if name == id))
                        };
                        let objects = of_host(self.cx, self.mesh, host);
                        for object in objects.iter().filter(|object| of_network(&object.cluster)) {
                            self.of_service(object, name, port);
                        }
                    }
                    None => {}
                }
            }
        }
    }

    /// The addresses at which a service is reachable from outside its cluster, with this port.
    fn of_service(&mut self, key: &ServiceObjectKey, network: &Arc<str>, port: u16) {
        let Some(object) = self.cx.get::<ServiceObjects>(key) else {
            return;
        };
        let ServiceObject::Kubernetes(object) = &*object else {
            return;
        };
        let selector = object.meta.annotation(NODES_ANNOTATION).filter(|_| object.spec.kind == ServiceType::NodePort);
        let (hosts, port) = match selector {
            Some(selector) => {
                let node_port = object.spec.ports.iter().find(|p| p.port == port).map(|p| p.node_port);
                let node_port = node_port.filter(|p| *p != 0).unwrap_or(port);
                (of_nodes(self.cx, &key.cluster, selector), node_port)
            }
            None => (object.spec.external_addresses().cloned().collect(), port),
        };
        let cluster = self.mesh.cluster_id_of(&key.cluster);
        let places: Vec<Place> = hosts.iter().map(|host| self.place(network, cluster, host, port)).collect();
        self.places.extend(places);
    }

    fn place(&self, network: &Arc<str>, cluster: &Arc<str>, host: &Arc<str>, port: u16) -> Place {
        Place { network: network.clone(), cluster: cluster.clone(), host: host.clone(), port }
    }
}

/// The Kubernetes services of a hostname, one per cluster.
fn of_host(cx: &Reads<'_>, mesh: &MeshSettings, host: &str) -> Vec<ServiceObjectKey> {
    let short = host.strip_suffix(&*mesh.domain).and_then(|rest| rest.strip_suffix(".svc."));
    let namespace = short.and_then(|short| short.split_once('.')).map(|(_, namespace)| namespace);
    let (Some(namespace), Ok(hostname)) = (namespace, Hostname::parse(host)) else {
        return Vec::new();
    };
    let key = ServiceKey { hostname, namespace: namespace.into() };
    let objects = cx.get::<DefinitionsByService>(&key);
    let objects = objects.iter().flat_map(|objects| objects.iter());
    objects.filter(|o| o.registry == Registry::Kubernetes).cloned().collect()
}

/// The external addresses of a cluster's nodes that match a label selector in JSON; all nodes if it is empty, none if
/// it is invalid.
fn of_nodes(cx: &Reads<'_>, cluster: &Arc<str>, selector: &str) -> Vec<Arc<str>> {
    let Ok(wanted) = serde_json::from_str::<BTreeMap<String, String>>(selector) else {
        return Vec::new();
    };
    let keys = cx.keys::<Nodes>();
    let nodes = keys.iter().filter(|(of, _)| of == cluster).filter_map(|key| cx.get::<Nodes>(key));
    let has = |node: &Object<core::Node>, name: &str, value: &str| node.meta.label(name) == Some(value);
    let nodes = nodes.filter(|node| wanted.iter().all(|(name, value)| has(node, name, value)));
    let address = |node: &Object<core::Node>| {
        let mut external = node.spec.addresses_of("ExternalIP");
        external.find(|ip| ip.parse::<IpAddr>().is_ok()).cloned()
    };
    nodes.filter_map(|node| address(&node)).collect()
}
