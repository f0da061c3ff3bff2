//! ServiceEntry: services that are not in a platform's service registry.

use std::sync::Arc;

use names::Protocol;

use crate::istio::{WorkloadEntry, WorkloadSelector};

message! {
    /// Adds services to the service registry of the mesh, one for each host.
    pub struct ServiceEntry where [
        exclusive(workloadSelector, endpoints),
        rule "!(has(self.workloadSelector) && has(self.endpoints))" "endpoints and workloadSelector are mutually exclusive",
        rule "!has(self.addresses) || !has(self.resolution) || self.resolution in ['NONE', 'STATIC'] || self.addresses.all(a, !a.contains('/'))" "CIDR addresses require the resolution NONE or STATIC",
        rule "!has(self.endpoints) || (has(self.resolution) && self.resolution != 'NONE')" "endpoints must be empty with the resolution NONE",
        rule "!has(self.resolution) || self.resolution != 'DNS_ROUND_ROBIN' || !has(self.endpoints) || size(self.endpoints) <= 1" "the resolution DNS_ROUND_ROBIN allows at most one endpoint",
    ] {
        /// Host names of the services. Wildcards require resolution `NONE` or `DYNAMIC_DNS`. At least one is required.
        pub hosts: Vec<Arc<str>> where [
            required, min 1, max 256, items(rule "self != '*'" "a host must not be the wildcard *"), is host,
        ],
        /// Virtual IP addresses of the services, as addresses or CIDR ranges.
        pub addresses: Vec<Arc<str>> where [max 256, items(max 64), is subnet],
        /// Ports of the services. Numbers and names must be unique.
        pub ports: Vec<ServicePort> where [
            max 256, key name,
            rule "self.all(a, self.exists_one(b, a.number == b.number))" "port numbers must be unique",
            unique "number",
        ],
        /// Whether the services are inside or outside the mesh.
        pub location: Location,
        /// How endpoints are discovered.
        pub resolution: Resolution,
        /// Static endpoints. Mutually exclusive with `workloadSelector`.
        pub endpoints: Vec<WorkloadEntry> where [max 4096],
        /// Selects WorkloadEntries and Pods in the same namespace as endpoints.
        pub workload_selector: Option<WorkloadSelector>,
        /// Namespaces that the services are visible in: `.` (their own), `*` (all), `~` (none) or names. If empty, the
        /// mesh configuration's default applies; without one, they are visible in all namespaces.
        pub export_to: Vec<Arc<str>>,
        /// Subject alternative names that are accepted in the server certificate.
        pub subject_alt_names: Vec<Arc<str>>,
    }
}

message! {
    /// Port of a ServiceEntry.
    pub struct ServicePort {
        /// Port number, 1 to 65535.
        pub number: u32 where [required, min 1, max 65535],
        /// Protocol of the port, such as `HTTP`, `HTTPS`, `GRPC`, `TLS` or `TCP`. If empty, it is detected.
        pub protocol: Arc<str> where [max 256, is protocol],
        /// Name of the port, unique within the ServiceEntry.
        pub name: Arc<str> where [required, max 256, needed, is label],
        /// Port number of the endpoints. 0 means the same number as `number`.
        pub target_port: u32 where [min 1, max 65535],
    }
}

impl ServicePort {
    /// Parses the protocol of the port. If it is empty, the protocol is detected from traffic. Unlike for Kubernetes
    /// Services, the port name is not considered.
    pub fn kind(&self) -> Protocol {
        Protocol::parse(&self.protocol)
    }

    /// Port number of the endpoints.
    pub fn target(&self) -> u32 {
        if self.target_port == 0 { self.number } else { self.target_port }
    }
}

enumeration! {
    /// Whether a service is inside or outside the mesh.
    pub enum Location {
        /// Outside the mesh: mutual TLS is not enabled automatically, and metrics report the service as external.
        #[default]
        MeshExternal = "MESH_EXTERNAL" 0,
        /// Inside the mesh.
        MeshInternal = "MESH_INTERNAL" 1,
    }
}

enumeration! {
    /// Endpoint discovery of a service.
    pub enum Resolution {
        /// Forwards connections to their original destination address.
        #[default]
        None = "NONE" 0,
        /// Uses the addresses of `endpoints`.
        Static = "STATIC" 1,
        /// The proxy resolves the host with DNS and balances over all returned addresses.
        Dns = "DNS" 2,
        /// The proxy resolves the host with DNS and uses the first returned address for new connections.
        DnsRoundRobin = "DNS_ROUND_ROBIN" 3,
        /// The proxy resolves the host of each request with DNS. Intended for wildcard hosts.
        DynamicDns = "DYNAMIC_DNS" 4,
    }
}
