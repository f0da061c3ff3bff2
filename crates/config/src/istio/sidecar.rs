//! Sidecar: what the proxies beside workloads see and accept.

use std::sync::Arc;

use names::Protocol;

use crate::istio::{ConnectionPoolSettings, Destination, ServerTlsSettings, WorkloadSelector};

message! {
    /// Narrows what the proxies of a namespace, or some of them, know.
    pub struct Sidecar {
        /// The workloads; absent: all of the namespace.
        pub workload_selector: Option<WorkloadSelector>,
        /// Listeners for traffic that arrives; empty: what services say.
        pub ingress: Vec<IngressListener>,
        /// Listeners for traffic that leaves; empty: as the wider default says.
        pub egress: Vec<EgressListener>,
        /// Limits on connections from the proxy to its application.
        pub inbound_connection_pool: Option<ConnectionPoolSettings>,
        /// What happens to traffic to unknown destinations; absent: as the mesh says.
        pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
    }
}

message! {
    /// A listener for traffic that arrives.
    pub struct IngressListener {
        /// The port; its number is unique among the listeners.
        pub port: Option<SidecarPort> where [required],
        /// The address to listen on; empty: the workload's.
        pub bind: Arc<str>,
        /// Whether traffic is captured.
        pub capture_mode: CaptureMode,
        /// Where the application listens: `127.0.0.1:PORT`, `[::1]:PORT`, `0.0.0.0:PORT`, `[::]:PORT`, `unix:///path`,
        /// or empty for the captured address.
        pub default_endpoint: Arc<str>,
        /// TLS towards clients, instead of the mesh's.
        pub tls: Option<ServerTlsSettings>,
        /// Limits on connections to the application, instead of `inbound_connection_pool`.
        pub connection_pool: Option<ConnectionPoolSettings>,
    }
}

message! {
    /// A listener for traffic that leaves.
    pub struct EgressListener {
        /// The port; absent: the listener stands for all ports without one of their own.
        pub port: Option<SidecarPort>,
        /// The address to listen on.
        pub bind: Arc<str>,
        /// Whether traffic is captured.
        pub capture_mode: CaptureMode,
        /// What is reachable, as `NAMESPACE/HOST`; the namespace may be `*`, `.` or `~`. At least one.
        pub hosts: Vec<Arc<str>> where [required],
    }
}

message! {
    /// A port of a listener.
    pub struct SidecarPort {
        /// The number; 0 only with a Unix socket as address.
        pub number: u32,
        /// What it speaks, by name ([`SidecarPort::kind`]).
        pub protocol: Arc<str>,
        /// A name.
        pub name: Arc<str>,
        /// Deprecated and without effect.
        pub target_port: u32,
    }
}

impl SidecarPort {
    /// The port's protocol.
    pub fn kind(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }
}

enumeration! {
    /// Whether a listener's traffic is captured.
    pub enum CaptureMode {
        /// As the proxy's interception mode says.
        #[default]
        Default = "DEFAULT" 0,
        /// By iptables.
        Iptables = "IPTABLES" 1,
        /// Not at all: the listener is bound to its port.
        None = "NONE" 2,
    }
}

message! {
    /// What happens to traffic to unknown destinations.
    pub struct OutboundTrafficPolicy {
        /// Whether it passes.
        pub mode: OutboundMode,
        /// A service that it is sent to; only with `ALLOW_ANY`.
        pub egress_proxy: Option<Destination>,
    }
}

enumeration! {
    /// Whether traffic to unknown destinations passes.
    pub enum OutboundMode {
        /// It is refused.
        #[default]
        RegistryOnly = "REGISTRY_ONLY" 0,
        /// It passes.
        AllowAny = "ALLOW_ANY" 1,
        /// It passes, and names are resolved per request; in MeshConfig only.
        AllowAnyDynamicDns = "ALLOW_ANY_DYNAMIC_DNS" 3,
    }
}
