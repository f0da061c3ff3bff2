//! EndpointSlice.

use std::sync::Arc;

message! {
    /// Some of the endpoints of the service that the label [`EndpointSlice::SERVICE_LABEL`] names.
    pub struct EndpointSlice: Relations {
        /// The type of the addresses.
        pub address_type: AddressType,
        /// The endpoints.
        pub endpoints: Vec<Endpoint>,
        /// The ports of all endpoints.
        pub ports: Vec<EndpointPort>,
    }
}

impl EndpointSlice {
    /// The label with the name of the service.
    pub const SERVICE_LABEL: &'static str = "kubernetes.io/service-name";
}

enumeration! {
    /// The type of the addresses of a slice.
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
        /// Its addresses. They are interchangeable; only the first is used.
        pub addresses: Vec<Arc<str>>,
        /// Its conditions.
        pub conditions: EndpointConditions,
        /// Its host name, for DNS.
        pub hostname: Arc<str>,
        /// Its node.
        pub node_name: Arc<str>,
        /// Its zone.
        pub zone: Arc<str>,
        /// The object that the endpoint represents, usually a Pod.
        pub target_ref: Option<ObjectReference>,
        /// Topology hints.
        pub hints: EndpointHints,
    }
}

message! {
    /// The conditions of an endpoint. Use the methods, which interpret absent conditions.
    pub struct EndpointConditions {
        /// It accepts traffic; absent means yes.
        pub ready: Option<bool>,
        /// It can serve traffic, even while it terminates. If absent, `ready` applies.
        pub serving: Option<bool>,
        /// It is terminating; absent means no.
        pub terminating: Option<bool>,
    }
}

impl EndpointConditions {
    /// Whether it accepts traffic.
    pub fn is_ready(&self) -> bool {
        self.ready.unwrap_or(true)
    }

    /// Whether it can serve traffic, even while it terminates.
    pub fn is_serving(&self) -> bool {
        self.serving.unwrap_or(self.is_ready())
    }

    /// Whether it is terminating.
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
    /// Topology hints of an endpoint.
    pub struct EndpointHints {
        /// Zones; empty means all.
        pub for_zones: Vec<ForZone>,
    }
}

message! {
    /// A zone whose clients should use the endpoint.
    pub struct ForZone {
        /// Its name.
        pub name: Arc<str>,
    }
}

message! {
    /// A port of all endpoints of a slice.
    pub struct EndpointPort {
        /// The name of the service port.
        pub name: Arc<str>,
        /// `TCP` (also when empty), `UDP` or `SCTP`.
        pub protocol: Arc<str>,
        /// The number; absent means all ports.
        pub port: Option<u16>,
        /// The application protocol, if the service declares it.
        pub app_protocol: Option<Arc<str>>,
    }
}
