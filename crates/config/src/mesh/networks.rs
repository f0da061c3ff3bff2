//! MeshNetworks: the networks of the mesh, what is in them, and where others reach them.

use std::collections::BTreeMap;
use std::sync::Arc;

message! {
    /// The networks of the mesh. Workloads of one network reach each other directly; those of two need a gateway.
    pub struct MeshNetworks {
        /// The networks, by name.
        pub networks: BTreeMap<Arc<str>, Network>,
    }
}

message! {
    /// A network.
    pub struct Network {
        /// Which workloads are in it.
        pub endpoints: Vec<NetworkEndpoints>,
        /// Where it is reached from other networks.
        pub gateways: Vec<NetworkGateway>,
    }
}

message! {
    /// Some of the workloads of a network.
    pub struct NetworkEndpoints {
        /// Which.
        pub members: Option<NetworkMembers>,
    }
}

oneof! {
    /// Which workloads are in a network.
    pub enum NetworkMembers {
        /// Those with addresses of this block.
        FromCidr(Arc<str>) = "fromCidr",
        /// Those of this cluster.
        FromRegistry(Arc<str>) = "fromRegistry",
    }
}

message! {
    /// A gateway into a network.
    pub struct NetworkGateway {
        /// Where it is.
        pub place: Option<NetworkGatewayPlace>,
        /// Its port for traffic between networks.
        pub port: u32,
        /// Where it runs, `region/zone/subzone`.
        pub locality: Arc<str>,
    }
}

oneof! {
    /// Where a gateway is.
    pub enum NetworkGatewayPlace {
        /// At the external addresses of the service of this host.
        RegistryServiceName(Arc<str>) = "registryServiceName",
        /// At this address or name.
        Address(Arc<str>) = "address",
    }
}
