//! Multi-Cluster Services (MCS) API: ServiceExport and ServiceImport.

use std::sync::Arc;

use names::Protocol;

message! {
    /// Exports the Service of the same name and namespace to other clusters of the cluster set, with its endpoints in
    /// this cluster.
    pub struct ServiceExport {}
}

message! {
    /// Service of the cluster set as seen by one cluster, reachable as `NAME.NAMESPACE.svc.clusterset.local`.
    pub struct ServiceImport: Relations {
        /// Ports of the service.
        pub ports: Vec<ServiceImportPort>,
        /// IP addresses of the service in this cluster. Empty for headless services.
        pub ips: Vec<Arc<str>>,
        /// Whether the service has IP addresses.
        pub kind: ServiceImportType as "type",
    }
}

message! {
    /// Port of an imported service.
    pub struct ServiceImportPort: Relations {
        /// Name of the port. Can be empty if there is only one port.
        pub name: Arc<str>,
        /// Transport protocol: `TCP`, `UDP` or `SCTP`. Defaults to `TCP`.
        pub protocol: Arc<str>,
        /// Application protocol. Overrides the protocol derived from the port name.
        pub app_protocol: Option<Arc<str>>,
        /// Port number.
        pub port: u16 where [required],
    }
}

impl ServiceImportPort {
    /// Application protocol of the port.
    pub fn kind(&self) -> Protocol {
        Protocol::select(self.port, &self.name, &self.protocol, self.app_protocol.as_deref())
    }
}

enumeration! {
    /// Type of an imported service.
    pub enum ServiceImportType {
        /// The service has IP addresses.
        #[default]
        ClusterSetIp = "ClusterSetIP" 0,
        /// The service is headless: clients connect to its endpoints directly.
        Headless = "Headless" 1,
    }
}
