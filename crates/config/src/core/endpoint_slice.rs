//! EndpointSlice.

use std::sync::Arc;

message! {
    /// Some of the endpoints of a service, which the label [`EndpointSlice::SERVICE_LABEL`] names.
    pub struct EndpointSlice {
        /// What the addresses are.
        pub address_type: AddressType,
        /// The endpoints.
        pub endpoints: Vec<Endpoint>,
        /// The ports, for all of the endpoints.
        pub ports: Vec<EndpointPort>,
    }
}

impl EndpointSlice {
    /// The label with the service's name.
    pub const SERVICE_LABEL: &'static str = "kubernetes.io/service-name";
}

enumeration! {
    /// What the addresses of a slice are.
    pub enum AddressType {
        /// IPv4.
        #[default]
        Ipv4 = "IPv4" 0,
        /// IPv6.
        Ipv6 = "IPv6" 1,
        /// DNS names; the mesh ignores them.
        Fqdn = "FQDN" 2,
    }
}

message! {
    /// An endpoint.
    pub struct Endpoint {
        /// Its addresses; they are interchangeable, and only the first counts.
        pub addresses: Vec<Arc<str>>,
        /// Whether it is ready.
        pub conditions: EndpointConditions,
        /// Its host name, for DNS.
        pub hostname: Arc<str>,
        /// Its node.
        pub node_name: Arc<str>,
        /// Its zone.
        pub zone: Arc<str>,
        /// What it is: mostly a Pod.
        pub target_ref: Option<ObjectReference>,
        /// For which zones it is meant.
        pub hints: EndpointHints,
    }
}

message! {
    /// Whether an endpoint is ready. Use the methods: an absent condition has a meaning.
    pub struct EndpointConditions {
        /// It takes traffic; absent means yes.
        pub ready: Option<bool>,
        /// It could take traffic, even while it terminates; absent means as `ready`.
        pub serving: Option<bool>,
        /// It is on its way out; absent means no.
        pub terminating: Option<bool>,
    }
}

impl EndpointConditions {
    /// Whether it takes traffic.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Whether it could take traffic, even while it terminates.
    pub fn is_serving(&self) -> bool {
        self.serving.unwrap_or(self.is_ready())
    }

    /// Whether it is on its way out.
    pub fn is_terminating(&self) -> bool {
        self.terminating.unwrap_or(false)
    }
}

message! {
    /// A reference to an object.
    pub struct ObjectReference {
        /// Its kind.
        pub kind: Arc<str>,
        /// Its namespace.
        pub namespace: Arc<str>,
        /// Its name.
        pub name: Arc<str>,
        /// Its uid.
        pub uid: Arc<str>,
    }
}

message! {
    /// For whom an endpoint is meant.
    pub struct EndpointHints {
        /// Zones; empty means all.
        pub for_zones: Vec<ForZone>,
    }
}

message! {
    /// A zone that an endpoint is meant for.
    pub struct ForZone {
        /// Its name.
        pub name: Arc<str>,
    }
}

message! {
    /// A port of all endpoints of a slice.
    pub struct EndpointPort {
        /// The name of the service's port.
        pub name: Arc<str>,
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        pub protocol: Arc<str>,
        /// The number; absent means all ports.
        pub port: Option<u16>,
        /// What it speaks, where the service says so.
        pub app_protocol: Option<Arc<str>>,
    }
}
