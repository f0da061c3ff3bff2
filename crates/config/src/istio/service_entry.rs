//! ServiceEntry: services that no platform registry knows.

use std::sync::Arc;

use names::Protocol;

use crate::istio::{WorkloadEntry, WorkloadSelector};

message! {
    /// Adds services to the mesh's registry: one for each host.
    pub struct ServiceEntry where [
        rule "!(has(self.workloadSelector) && has(self.endpoints))" "endpoints and workloadSelector exclude each other",
        rule "!has(self.addresses) || !has(self.resolution) || self.resolution in ['NONE', 'STATIC'] || self.addresses.all(a, !a.contains('/'))" "ranges of addresses need the resolution NONE or STATIC",
        rule "!has(self.endpoints) || (has(self.resolution) && self.resolution != 'NONE')" "the resolution NONE takes no endpoints",
        rule "!has(self.resolution) || self.resolution != 'DNS_ROUND_ROBIN' || !has(self.endpoints) || size(self.endpoints) <= 1" "the resolution DNS_ROUND_ROBIN takes one endpoint at most",
    ] {
        /// The hostnames; a wildcard only with resolution `NONE` or `DYNAMIC_DNS`. At least one.
        pub hosts: Vec<Arc<str>> where [required, min 1, max 256, items(rule "self != '*'" "a host cannot be the wildcard alone")],
        /// Virtual addresses of the services: IP addresses or CIDR ranges.
        pub addresses: Vec<Arc<str>> where [max 256, items(max 64)],
        /// The ports; numbers and names are unique.
        pub ports: Vec<ServicePort> where [max 256, key name, rule "self.all(a, self.exists_one(b, a.number == b.number))" "the numbers of ports must differ"],
        /// Whether the service is part of the mesh.
        pub location: Location,
        /// How endpoints are found.
        pub resolution: Resolution,
        /// The endpoints; excludes `workload_selector`.
        pub endpoints: Vec<WorkloadEntry> where [max 4096],
        /// Selects WorkloadEntries and Pods of the same namespace as endpoints.
        pub workload_selector: Option<WorkloadSelector>,
        /// Namespaces that see the services: `.`, `*`, `~` or names. Empty: the mesh's default, else everybody.
        pub export_to: Vec<Arc<str>>,
        /// Names that the server's certificate may have.
        pub subject_alt_names: Vec<Arc<str>>,
    }
}

message! {
    /// A port of a ServiceEntry.
    pub struct ServicePort {
        /// The port number, 1 to 65535.
        pub number: u32 where [required, min 1, max 65535],
        /// What it speaks, by name ([`ServicePort::kind`]).
        pub protocol: Arc<str> where [max 256],
        /// The name, unique in the entry.
        pub name: Arc<str> where [required, max 256],
        /// The port of the endpoints; 0 means the same number.
        pub target_port: u32 where [min 1, max 65535],
    }
}

impl ServicePort {
    /// The port's protocol. Without one it is detected: the port's name says nothing, unlike for Kubernetes services.
    pub fn kind(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }

    /// The port of the endpoints.
    pub fn target(&self) -> u32 {
        if self.target_port == 0 {
            self.number
        } else {
            self.target_port
        }
    }
}

enumeration! {
    /// Whether a service is part of the mesh.
    pub enum Location {
        /// Outside: no mutual TLS by itself, and counted as external.
        #[default]
        MeshExternal = "MESH_EXTERNAL" 0,
        /// Inside.
        MeshInternal = "MESH_INTERNAL" 1,
    }
}

enumeration! {
    /// How the endpoints of a service are found.
    pub enum Resolution {
        /// Connections go where the client meant them to go.
        #[default]
        None = "NONE" 0,
        /// The addresses of the endpoints.
        Static = "STATIC" 1,
        /// The proxy asks DNS and balances over all answers.
        Dns = "DNS" 2,
        /// The proxy asks DNS and uses the first answer for new connections.
        DnsRoundRobin = "DNS_ROUND_ROBIN" 3,
        /// The proxy asks DNS for the host of each request; for wildcard hosts.
        DynamicDns = "DYNAMIC_DNS" 4,
    }
}
