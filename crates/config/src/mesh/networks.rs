//! MeshNetworks: the networks of the mesh, their members and gateways.

use std::collections::BTreeMap;
use std::sync::Arc;

message! {
    /// Networks of the mesh. Workloads in the same network reach each other directly; traffic between networks passes
    /// through a gateway.
    pub struct MeshNetworks {
        /// Networks, by name.
        pub networks: BTreeMap<Arc<str>, Network>,
    }
}

message! {
    /// Network: a set of workloads that reach each other directly.
    pub struct Network {
        /// Endpoints in the network.
        pub endpoints: Vec<NetworkEndpoints>,
        /// Gateways for traffic from other networks.
        pub gateways: Vec<NetworkGateway>,
    }
}

message! {
    /// Set of endpoints in a network.
    pub struct NetworkEndpoints: Relations where [any(fromCidr, fromRegistry)] {
        /// Criterion for membership.
        pub members: Option<NetworkMembers>,
    }
}

oneof! {
    /// Criterion for membership in a network.
    pub enum NetworkMembers {
        /// Endpoints with an address in this CIDR range.
        FromCidr(Arc<str>) = "fromCidr" where [is cidr],
        /// Endpoints of this cluster.
        FromRegistry(Arc<str>) = "fromRegistry",
    }
}

message! {
    /// Gateway of a network.
    pub struct NetworkGateway where [any(registryServiceName, address)] {
        /// Address of the gateway.
        pub address: Option<NetworkGatewayAddress>,
        /// Port for traffic between networks.
        pub port: u32 where [needed, to 65535],
        /// Locality of the gateway, as `region/zone/subzone`.
        pub locality: Arc<str>,
    }
}

oneof! {
    /// Address of a network gateway.
    pub enum NetworkGatewayAddress {
        /// Host name of the Service whose external addresses are used.
        RegistryServiceName(Arc<str>) = "registryServiceName" where [is name],
        /// IP address or host name.
        Address(Arc<str>) = "address" where [is name_or_address],
    }
}
