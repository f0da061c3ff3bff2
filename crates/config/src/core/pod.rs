//! Pod.

use std::sync::Arc;

use crate::time::Timestamp;

message! {
    /// A Kubernetes Pod: the fields of `spec` that matter, and the status.
    pub struct Pod {
        /// Its service account; empty means `default` ([`Pod::service_account`]).
        pub service_account_name: Arc<str>,
        /// Its node; empty where it has not been given one.
        pub node_name: Arc<str>,
        /// Its host name, where it differs from the Pod's name.
        pub hostname: Arc<str>,
        /// The DNS domain of its host name.
        pub subdomain: Arc<str>,
        /// Whether it shares the node's network, and so the node's addresses.
        pub host_network: bool,
        /// Its containers.
        pub containers: Vec<Container>,
        /// Its containers that run first; those that always restart stay beside the others.
        pub init_containers: Vec<Container>,
        /// The status.
        pub status: PodStatus,
    }
}

impl Pod {
    /// Its service account.
    pub fn service_account(&self) -> Arc<str> {
        if self.service_account_name.is_empty() {
            "default".into()
        } else {
            self.service_account_name.clone()
        }
    }

    /// Its addresses, the primary one first.
    pub fn addresses(&self) -> impl Iterator<Item = &Arc<str>> {
        let others = self.status.pod_ips.iter().map(|p| &p.ip);
        let primary = &self.status.pod_ip;
        std::iter::once(primary)
            .chain(others.filter(move |ip| *ip != primary))
            .filter(|ip| !ip.is_empty())
    }

    /// Whether it is over: it failed, or did its work.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Whether Kubernetes counts it as ready.
    pub fn is_ready(&self) -> bool {
        self.status
            .conditions
            .iter()
            .any(|c| &*c.kind == "Ready" && &*c.status == "True")
    }

    /// The number of a container's port of this name, over TCP.
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
        /// `Always` for an init container that stays.
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
        /// The port on the node; 0 where there is none.
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
    pub struct PodStatus {
        /// How far it is.
        pub phase: PodPhase,
        /// Its primary address.
        pub pod_ip: Arc<str> as "podIP",
        /// All of its addresses.
        pub pod_ips: Vec<PodIp> as "podIPs",
        /// The address of its node.
        pub host_ip: Arc<str> as "hostIP",
        /// What holds of it.
        pub conditions: Vec<PodCondition>,
        /// How its containers are.
        pub container_statuses: Vec<ContainerStatus>,
        /// When it was started.
        pub start_time: Option<Timestamp>,
        /// Why it is in its phase.
        pub reason: Arc<str>,
    }
}

enumeration! {
    /// How far a Pod is.
    pub enum PodPhase {
        /// Not running yet, or not known.
        #[default]
        Pending = "Pending" 0,
        /// At least one container runs.
        Running = "Running" 1,
        /// All containers did their work.
        Succeeded = "Succeeded" 2,
        /// A container failed.
        Failed = "Failed" 3,
        /// The node does not answer.
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
    /// Something that holds of a Pod, or not.
    pub struct PodCondition {
        /// What.
        pub kind: Arc<str> as "type",
        /// `True`, `False` or `Unknown`.
        pub status: Arc<str>,
    }
}

message! {
    /// How a container is.
    pub struct ContainerStatus {
        /// Its name.
        pub name: Arc<str>,
        /// Whether it passes its readiness probe.
        pub ready: bool,
    }
}
