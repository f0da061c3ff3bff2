//! Sidecar: inbound and outbound configuration of sidecar proxies.

use std::sync::Arc;

use names::Protocol;

use crate::istio::{ConnectionPoolSettings, Destination, ServerTlsSettings, WorkloadSelector};

message! {
    /// Configures the inbound and outbound listeners of sidecar proxies and limits the services that they receive
    /// configuration for.
    pub struct Sidecar: Relations where [any(ingress, egress, inboundConnectionPool, outboundTrafficPolicy)] {
        /// Selects the workloads that the object applies to. If omitted, it applies to all workloads in the namespace.
        pub workload_selector: Option<WorkloadSelector>,
        /// Inbound listeners. If empty, they are derived from the services that select the workload.
        pub ingress: Vec<IngressListener> where [unique "port.number"],
        /// Outbound listeners. If empty, they are inherited from the namespace-wide or mesh-wide Sidecar.
        pub egress: Vec<EgressListener>,
        /// Limits for connections from the proxy to the application.
        pub inbound_connection_pool: Option<ConnectionPoolSettings>,
        /// Handling of traffic to unknown destinations. Defaults to the mesh configuration's setting.
        pub outbound_traffic_policy: Option<OutboundTrafficPolicy>,
    }
}

message! {
    /// Inbound listener.
    pub struct IngressListener: Relations {
        /// Port of the listener. Its number must be unique among the inbound listeners.
        pub port: Option<SidecarPort> where [required, needed],
        /// Address to bind to. Defaults to the address of the workload.
        pub bind: Arc<str> where [is ip],
        /// How traffic to the listener is captured.
        pub capture_mode: CaptureMode,
        /// Address of the application: `127.0.0.1:PORT`, `[::1]:PORT`, `0.0.0.0:PORT`, `[::]:PORT` or `unix:///path`.
        /// If empty, traffic is forwarded to its original destination address.
        pub default_endpoint: Arc<str> where [is local_endpoint],
        /// TLS settings for client connections. Override the mutual TLS settings of the mesh.
        pub tls: Option<ServerTlsSettings>,
        /// Limits for connections to the application. Override `inboundConnectionPool`.
        pub connection_pool: Option<ConnectionPoolSettings>,
    }
}

message! {
    /// Outbound listener.
    pub struct EgressListener: Relations {
        /// Port of the listener. If omitted, the listener applies to all ports that have no listener of their own.
        pub port: Option<SidecarPort>,
        /// Address to bind to.
        pub bind: Arc<str> where [is bind],
        /// How traffic to the listener is captured.
        pub capture_mode: CaptureMode,
        /// Reachable services, as `NAMESPACE/HOST`. The namespace can be `*`, `.` or `~`. At least one is required.
        pub hosts: Vec<Arc<str>> where [required, needed, is sidecar_host],
    }
}

message! {
    /// Port of a listener.
    pub struct SidecarPort {
        /// Port number. 0 is allowed only if the listener binds to a Unix domain socket.
        pub number: u32 where [to 65535],
        /// Protocol of the port, such as `HTTP`, `HTTPS`, `GRPC`, `TLS` or `TCP`.
        pub protocol: Arc<str> where [is protocol],
        /// Name of the port.
        pub name: Arc<str> where [is label],
        /// Deprecated. Has no effect.
        pub target_port: u32 where [refuse "no-effect" "targetPort has no effect on Sidecars"],
    }
}

impl SidecarPort {
    /// Parses the protocol of the port.
    pub fn kind(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }
}

enumeration! {
    /// How traffic to a listener is captured.
    pub enum CaptureMode {
        /// As set by the interception mode of the proxy.
        #[default]
        Default = "DEFAULT" 0,
        /// Captured by iptables.
        Iptables = "IPTABLES" 1,
        /// Not captured: the listener binds to its port.
        None = "NONE" 2,
    }
}

message! {
    /// Handling of traffic to unknown destinations.
    pub struct OutboundTrafficPolicy: Relations {
        /// Whether the traffic is allowed.
        pub mode: OutboundMode,
        /// Service that the traffic is forwarded to. Requires the mode `ALLOW_ANY`.
        pub egress_proxy: Option<Destination>,
    }
}

enumeration! {
    /// Whether traffic to unknown destinations is allowed.
    pub enum OutboundMode {
        /// Rejects the traffic.
        #[default]
        RegistryOnly = "REGISTRY_ONLY" 0,
        /// Forwards the traffic to its original destination.
        AllowAny = "ALLOW_ANY" 1,
        /// Forwards the traffic and resolves host names per request. Supported in MeshConfig only.
        AllowAnyDynamicDns = "ALLOW_ANY_DYNAMIC_DNS" 3,
    }
}
