//! The multi-cluster services API: services that clusters export, and what each cluster knows them by.

use std::sync::Arc;

use names::Protocol;

message! {
    /// Says that the service of the same name and namespace is there for other clusters, with its endpoints of this one.
    pub struct ServiceExport {}
}

message! {
    /// A service of the whole set of clusters, as one of them knows it: `NAME.NAMESPACE.svc.clusterset.local`.
    pub struct ServiceImport {
        /// Its ports.
        pub ports: Vec<ServiceImportPort>,
        /// Its addresses in this cluster; none for headless ones.
        pub ips: Vec<Arc<str>>,
        /// Whether it has addresses.
        pub kind: ServiceImportType as "type",
    }
}

message! {
    /// A port of an imported service.
    pub struct ServiceImportPort {
        /// The name; may be empty where there is one port only.
        pub name: Arc<str>,
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        pub protocol: Arc<str>,
        /// What it speaks, instead of what its name says.
        pub app_protocol: Option<Arc<str>>,
        /// The number.
        pub port: u16 where [required],
    }
}

impl ServiceImportPort {
    /// What it speaks.
    pub fn kind(&self) -> Protocol {
        Protocol::select(self.port, &self.name, &self.protocol, self.app_protocol.as_deref())
    }
}

enumeration! {
    /// Whether an imported service has addresses.
    pub enum ServiceImportType {
        /// It has.
        #[default]
        ClusterSetIp = "ClusterSetIP" 0,
        /// It has not: clients dial its endpoints.
        Headless = "Headless" 1,
    }
}
