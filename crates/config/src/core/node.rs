//! Node.

use std::sync::Arc;

message! {
    /// A Kubernetes node. Its labels have the locality.
    pub struct Node {
        /// `spec.providerID`.
        pub provider_id: Arc<str> as "providerID",
        /// `status.addresses`.
        pub addresses: Vec<NodeAddress>,
    }
}

impl Node {
    /// Its addresses of a type, such as `InternalIP` or `ExternalIP`.
    pub fn addresses_of(&self, kind: &str) -> impl Iterator<Item = &Arc<str>> {
        self.addresses.iter().filter(move |a| &*a.kind == kind).map(|a| &a.address)
    }
}

message! {
    /// An address of a node.
    pub struct NodeAddress {
        /// `InternalIP`, `ExternalIP`, `Hostname`, `InternalDNS` or `ExternalDNS`.
        pub kind: Arc<str> as "type",
        /// The address.
        pub address: Arc<str>,
    }
}
