//! Pod.

use std::sync::Arc;

use crate::time::Timestamp;

message! {
    /// A Kubernetes Pod: fields of `spec`, and the status.
    pub struct Pod {
        /// Its service account; empty means `default` ([`Pod::service_account`]).
        pub service_account_name: Arc<str>,
        /// Its node; empty if not scheduled.
        pub node_name: Arc<str>,
        /// Its host name, if it differs from the name of the Pod.
        pub hostname: Arc<str>,
        /// The DNS domain of its host name.
        pub subdomain: Arc<str>,
        /// Whether it uses the network of the node.
        pub host_network: bool,
        /// Its containers.
        pub containers: Vec<Container>,
        /// Its init containers. Those that always restart are sidecars.
        pub init_containers: Vec<Container>,
        /// The status.
        pub status: PodStatus,
    }
}

impl Pod {
    /// Its service account.
    pub fn service_account(&self) -> Arc<str> {
        if self.service_account_name.is_empty() { "default".into() } else { self.service_account_name.clone() }
    }

    /// Its addresses, the primary one first.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        let others = self.status.pod_ips.iter().map(|p| &p.ip);
        let primary = &self.status.pod_ip;
        std::iter::once(primary).chain(others.filter(move |ip| *ip != primary)).filter(|ip| !ip.is_empty())
    }

    /// Whether it failed or succeeded.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether its `Ready` condition is true.
    pub fn is_ready(&self) -> bool {
        self.status.conditions.iter().any(|c| &*c.kind == "Ready" && &*c.status == "True")
    }

    /// The number of the TCP container port with this name.
    pub fn named_port(&self, name: &str) -> Option<u16> {
        let containers = self.containers.iter().chain(&self.init_containers);
        let mut ports = containers.flat_map(|c| &c.ports);
        ports.find(|p| &*p.name == name && p.is_tcp()).map(|p| p.container_port)
    }
}

message! {
    /// A container of a Pod.
    pub struct Container {
        /// Its name.
        pub name: Arc<str>,
        /// Its image.
        pub image: Arc<str>,
        /// Its ports.
        pub ports: Vec<ContainerPort>,
        /// `Always` for sidecar containers among the init containers.
        pub restart_policy: Arc<str>,
    }
}

message! {
    /// A port of a container.
    pub struct ContainerPort {
        /// The name, or empty.
        pub name: Arc<str>,
        /// The number.
        pub container_port: u16,
        /// The port on the node; 0 if there is none.
        pub host_port: u16,
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        pub protocol: Arc<str>,
    }
}

impl ContainerPort {
    /// Whether it carries TCP.
    pub fn is_tcp(&self) -> bool {
        self.protocol.is_empty() || &*self.protocol == "TCP"
    }
}

message! {
    /// The status of a Pod.
    pub struct PodStatus: Relations {
        /// The phase.
        pub phase: PodPhase,
        /// Its primary address.
        pub pod_ip: Arc<str> as "podIP",
        /// All of its addresses.
        pub pod_ips: Vec<PodIp> as "podIPs",
        /// The address of its node.
        pub host_ip: Arc<str> as "hostIP",
        /// The conditions.
        pub conditions: Vec<PodCondition>,
        /// The status of its containers.
        pub container_statuses: Vec<ContainerStatus>,
        /// The start time.
        pub start_time: Option<Timestamp>,
        /// The reason for the phase.
        pub reason: Arc<str>,
    }
}

enumeration! {
    /// The phase of a Pod.
    pub enum PodPhase {
        /// Not running yet, or unknown.
        #[default]
        Pending = "Pending" 0,
        /// At least one container is running.
        Running = "Running" 1,
        /// All containers succeeded.
        Succeeded = "Succeeded" 2,
        /// A container failed.
        Failed = "Failed" 3,
        /// The node does not respond.
        Unknown = "Unknown" 4,
    }
}

message! {
    /// An address of a Pod.
    pub struct PodIp {
        /// The address.
        pub ip: Arc<str>,
    }
}

message! {
    /// A condition of a Pod.
    pub struct PodCondition {
        /// The type.
        pub kind: Arc<str> as "type",
        /// `True`, `False` or `Unknown`.
        pub status: Arc<str>,
    }
}

message! {
    /// The status of a container.
    pub struct ContainerStatus {
        /// Its name.
        pub name: Arc<str>,
        /// Whether it passes its readiness probe.
        pub ready: bool,
    }
}
