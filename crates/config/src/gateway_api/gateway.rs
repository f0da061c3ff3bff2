//! GatewayClass and Gateway: where traffic enters.

use std::sync::Arc;

use crate::gateway_api::listener::*;
use crate::gateway_api::reference::{LocalObjectReference, ObjectReference, SecretObjectReference};
use crate::gateway_api::text::{ADDRESS_TYPE, CONTROLLER, LABEL_KEYS_RULE, LABEL_PREFIX_RULE, LABEL_VALUE};
use crate::mesh::LabelSelector;
use crate::object::StringMap;

message! {
    /// A class of Gateways, all of which one controller makes.
    pub struct GatewayClass {
        /// The controller: a domain and a path, such as `istio.io/gateway-controller`.
        pub controller_name: Arc<str> where [
            required, min 1, max 253, pattern CONTROLLER, rule "self == oldSelf" "the controller of a class cannot change",
        ],
        /// An object with settings for the controller.
        pub parameters_ref: Option<ObjectReference>,
        /// What the class is for, in a few words.
        pub description: Option<Arc<str>> where [max 64],
    }
}

message! {
    /// Ports at the edge of the mesh, to which routes are attached.
    pub struct Gateway {
        /// The name of its GatewayClass.
        pub gateway_class_name: Arc<str> where [required, min 1, max 253],
        /// The ports with their protocols and host names.
        pub listeners: Vec<Listener> where [
            required, min 1, max 64, key name,
            rule PLAIN_RULE PLAIN_MESSAGE, rule HTTPS_RULE HTTPS_MESSAGE, rule TLS_RULE TLS_MESSAGE,
            rule HOST_RULE HOST_MESSAGE, rule NAMES_RULE NAMES_MESSAGE, rule DISTINCT_RULE DISTINCT_MESSAGE,
        ],
        /// Addresses that it is to be reached by; empty: the controller chooses.
        pub addresses: Vec<GatewaySpecAddress> where [
            max 16,
            rule "self.all(a1, a1.type == 'IPAddress' && has(a1.value) ? self.exists_one(a2, a2.type == a1.type && has(a2.value) && a2.value == a1.value) : true)"
                "IP addresses must be unique",
            rule "self.all(a1, a1.type == 'Hostname' && has(a1.value) ? self.exists_one(a2, a2.type == a1.type && has(a2.value) && a2.value == a1.value) : true)"
                "host names must be unique",
        ],
        /// What its own objects, such as Deployment and Service, get.
        pub infrastructure: Option<GatewayInfrastructure>,
        /// Which ListenerSets may add listeners; absent: none.
        pub allowed_listeners: Option<AllowedListeners>,
        /// TLS for all listeners.
        pub tls: Option<GatewayTls>,
        /// Whether it is a default gateway, to which routes are attached that ask for one (`useDefaultGateways`). Absent: no.
        pub default_scope: Option<GatewayDefaultScope>,
    }
}

enumeration! {
    /// For which routes a Gateway is the default.
    pub enum GatewayDefaultScope {
        /// All.
        #[default]
        All = "All",
        /// None.
        None = "None",
    }
}

message! {
    /// An address that a Gateway is to be reached by.
    pub struct GatewaySpecAddress where [
        rule "self.type == 'IPAddress' && has(self.value) ? isIP(self.value) : true" "the value must be an IP address",
        rule "self.type == 'Hostname' ? (!has(self.value) || self.value.matches(r\"\"\"^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$\"\"\")) : true"
            "the value must be a host name",
    ] {
        /// What it is: `IPAddress`, `Hostname`, or a domain's own sort.
        pub kind: Arc<str> as "type" where [min 1, max 253, pattern ADDRESS_TYPE, default "IPAddress"] = "IPAddress".into(),
        /// The address; absent: the controller chooses one of the sort.
        pub value: Option<Arc<str>> where [max 253],
    }
}

message! {
    /// What a Gateway's own objects get.
    pub struct GatewayInfrastructure {
        /// Labels.
        pub labels: StringMap where [
            max 8,
            rule LABEL_KEYS_RULE "a key is a name of at most 63 characters, with or without a DNS name and / before it",
            rule LABEL_PREFIX_RULE "the DNS name before a key has at most 253 characters",
            values(min 0, max 63, pattern LABEL_VALUE),
        ],
        /// Annotations.
        pub annotations: StringMap where [
            max 16,
            rule LABEL_KEYS_RULE "a key is a name of at most 63 characters, with or without a DNS name and / before it",
            rule LABEL_PREFIX_RULE "the DNS name before a key has at most 253 characters",
            values(min 0, max 4096),
        ],
        /// An object with settings for the controller.
        pub parameters_ref: Option<LocalObjectReference>,
    }
}

message! {
    /// Which ListenerSets may add listeners.
    pub struct AllowedListeners {
        /// Namespaces that they may be in.
        pub namespaces: ListenerNamespaces where [default {"from": "None"}],
    }
}

message! {
    /// Namespaces of ListenerSets.
    pub struct ListenerNamespaces {
        /// Which ones.
        pub from: FromListenerNamespaces where [default "None"],
        /// Their labels, with `Selector` only.
        pub selector: Option<LabelSelector> where [atomic],
    }
}

enumeration! {
    /// Which namespaces ListenerSets may be in.
    pub enum FromListenerNamespaces {
        /// None.
        #[default]
        None = "None",
        /// The Gateway's own.
        Same = "Same",
        /// All.
        All = "All",
        /// Those with certain labels.
        Selector = "Selector",
    }
}

message! {
    /// TLS of a Gateway.
    pub struct GatewayTls {
        /// Towards backends.
        pub backend: Option<GatewayBackendTls>,
        /// Towards clients.
        pub frontend: Option<FrontendTls>,
    }
}

message! {
    /// TLS towards backends.
    pub struct GatewayBackendTls {
        /// The secret with the certificate and key by which the Gateway says who it is.
        pub client_certificate_ref: Option<SecretObjectReference>,
    }
}

message! {
    /// TLS towards clients.
    pub struct FrontendTls {
        /// For ports without settings of their own.
        pub default: TlsConfig where [required],
        /// For single ports.
        pub per_port: Vec<TlsPortConfig> where [
            max 64, key port, rule "self.all(t1, self.exists_one(t2, t1.port == t2.port))" "a port can have one entry only",
        ],
    }
}

message! {
    /// TLS towards the clients of one port.
    pub struct TlsPortConfig {
        /// The port.
        pub port: u16 where [required, min 1, max 65535],
        /// The settings.
        pub tls: TlsConfig where [required],
    }
}

message! {
    /// Settings of TLS towards clients.
    pub struct TlsConfig {
        /// How clients' certificates are checked; absent: clients need none.
        pub validation: Option<FrontendTlsValidation>,
    }
}

message! {
    /// How clients' certificates are checked.
    pub struct FrontendTlsValidation {
        /// ConfigMaps or secrets with CA certificates that vouch for clients.
        pub ca_certificate_refs: Vec<ObjectReference> as "caCertificateRefs" where [required, min 1, max 16],
        /// What happens to clients without a valid certificate.
        pub mode: FrontendValidationMode where [default "AllowValidOnly"],
    }
}

enumeration! {
    /// What happens to clients without a valid certificate.
    pub enum FrontendValidationMode {
        /// They are refused.
        #[default]
        AllowValidOnly = "AllowValidOnly",
        /// They are let in.
        AllowInsecureFallback = "AllowInsecureFallback",
    }
}
