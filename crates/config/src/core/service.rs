//! Service.

use std::sync::Arc;

use names::Protocol;
use serde_json::Value as Json;

use crate::decode::{Decode, Decoder};
use crate::object::StringMap;
use crate::schema::{Schema, Shape};
use crate::yaml::{Node, Scalar};

message! {
    /// A Kubernetes service: the fields of `spec`, and the status.
    pub struct Service: Relations {
        /// The type.
        pub kind: ServiceType as "type",
        /// The label selector for its Pods. If empty, endpoints come from other sources.
        pub selector: StringMap,
        /// The ports.
        pub ports: Vec<ServicePort>,
        /// The virtual address. `None` for headless services, empty if not assigned.
        pub cluster_ip: Arc<str> as "clusterIP",
        /// All virtual addresses, one per IP family.
        pub cluster_ips: Vec<Arc<str>> as "clusterIPs",
        /// The DNS name for services of type `ExternalName`.
        pub external_name: Arc<str>,
        /// Additional external addresses.
        pub external_ips: Vec<Arc<str>> as "externalIPs",
        /// The requested address of the load balancer.
        pub load_balancer_ip: Arc<str> as "loadBalancerIP",
        /// Whether clients inside the cluster reach only endpoints on the same node.
        pub internal_traffic_policy: InternalTrafficPolicy,
        /// `Cluster` or `Local`, for external traffic.
        pub external_traffic_policy: Arc<str>,
        /// `PreferClose`, `PreferSameZone`, `PreferSameNode`, or empty.
        pub traffic_distribution: Arc<str>,
        /// Whether endpoints are published before they are ready.
        pub publish_not_ready_addresses: bool,
        /// `ClientIP` or `None`.
        pub session_affinity: Arc<str>,
        /// `IPv4` and `IPv6`.
        pub ip_families: Vec<Arc<str>>,
        /// `SingleStack`, `PreferDualStack` or `RequireDualStack`.
        pub ip_family_policy: Arc<str>,
        /// The status.
        pub status: ServiceStatus,
    }
}

impl Service {
    /// Whether it is headless (`clusterIP: None`).
    pub fn is_headless(&self) -> bool {
        &*self.cluster_ip == "None"
    }

    /// Its virtual addresses; none for headless services.
    pub fn virtual_addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        let single = std::slice::from_ref(&self.cluster_ip);
        let all = if self.cluster_ips.is_empty() { single } else { &self.cluster_ips };
        all.iter().filter(|ip| !ip.is_empty() && &***ip != "None")
    }

    /// The addresses or names of its load balancer, and its external IPs.
    pub fn external_addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        let given = self.status.load_balancer.ingress.iter();
        let given = given.map(|one| if one.ip.is_empty() { &one.hostname } else { &one.ip });
        let given = given.filter(|_| self.kind == ServiceType::LoadBalancer);
        given.chain(&self.external_ips).filter(|host| !host.is_empty())
    }
}

message! {
    /// A port of a service.
    pub struct ServicePort: Relations {
        /// The name. May be empty if there is only one port.
        pub name: Arc<str>,
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        pub protocol: Arc<str>,
        /// The application protocol. It overrides the protocol in the name.
        pub app_protocol: Option<Arc<str>>,
        /// The number.
        pub port: u16,
        /// The port of the Pods; the same number if absent.
        pub target_port: Option<TargetPort>,
        /// The port on every node; 0 if there is none.
        pub node_port: u16,
    }
}

impl ServicePort {
    /// The application protocol.
    pub fn kind(&self) -> Protocol {
        Protocol::select(self.port, &self.name, &self.protocol, self.app_protocol.as_deref())
    }
}

/// A port of a Pod, by number or by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TargetPort {
    /// The number.
    Number(u16),
    /// The name of a container's port.
    Name(Arc<str>),
}

impl Decode for TargetPort {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<TargetPort> {
        match node.scalar() {
            Some(Scalar::Int(_)) => u16::decode(node, cx).map(TargetPort::Number),
            _ => Arc::decode(node, cx).map(TargetPort::Name),
        }
    }

    fn encode(&self) -> Json {
        match self {
            TargetPort::Number(number) => Json::from(*number),
            TargetPort::Name(name) => Json::from(&**name),
        }
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(Shape::IntOrText))
    }
}

enumeration! {
    /// The type of a service.
    pub enum ServiceType {
        /// A virtual address inside the cluster.
        #[default]
        ClusterIp = "ClusterIP" 0,
        /// Also a port on every node.
        NodePort = "NodePort" 1,
        /// Also a load balancer.
        LoadBalancer = "LoadBalancer" 2,
        /// An alias of a DNS name.
        ExternalName = "ExternalName" 3,
    }
}

enumeration! {
    /// The endpoints that clients inside the cluster reach.
    pub enum InternalTrafficPolicy {
        /// All.
        #[default]
        Cluster = "Cluster" 0,
        /// Those on the same node.
        Local = "Local" 1,
    }
}

message! {
    /// The status of a service.
    pub struct ServiceStatus {
        /// The status of the load balancer.
        pub load_balancer: LoadBalancerStatus,
    }
}

message! {
    /// The status of a load balancer.
    pub struct LoadBalancerStatus {
        /// Its addresses.
        pub ingress: Vec<LoadBalancerIngress>,
    }
}

message! {
    /// An address of a load balancer.
    pub struct LoadBalancerIngress {
        /// An IP address, or empty.
        pub ip: Arc<str>,
        /// A DNS name, or empty.
        pub hostname: Arc<str>,
    }
}
