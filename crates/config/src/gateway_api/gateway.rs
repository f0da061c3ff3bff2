//! GatewayClass and Gateway: entry points for traffic.

use std::sync::Arc;

use crate::gateway_api::listener::*;
use crate::gateway_api::reference::{LocalObjectReference, ObjectReference, SecretObjectReference};
use crate::gateway_api::text::{ADDRESS_TYPE, CONTROLLER, LABEL_KEYS_RULE, LABEL_PREFIX_RULE, LABEL_VALUE};
use crate::mesh::LabelSelector;
use crate::object::StringMap;

message! {
    /// Class of Gateways that are managed by one controller.
    pub struct GatewayClass {
        /// Name of the controller: a domain-prefixed path, such as `istio.io/gateway-controller`.
        pub controller_name: Arc<str> where [
            required, min 1, max 253, pattern CONTROLLER, rule "self == oldSelf" "controllerName is immutable",
        ],
        /// Object with controller-specific parameters.
        pub parameters_ref: Option<ObjectReference>,
        /// Description of the class.
        pub description: Option<Arc<str>> where [max 64],
    }
}

message! {
    /// Entry point for traffic, with listeners that routes attach to.
    pub struct Gateway {
        /// Name of the GatewayClass.
        pub gateway_class_name: Arc<str> where [required, min 1, max 253],
        /// Listeners: ports with their protocols and host names.
        pub listeners: Vec<Listener> where [
            required, min 1, max 64, key name,
            rule PLAIN_RULE PLAIN_MESSAGE, rule HTTPS_RULE HTTPS_MESSAGE, rule TLS_RULE TLS_MESSAGE,
            rule HOST_RULE HOST_MESSAGE, rule NAMES_RULE NAMES_MESSAGE, rule DISTINCT_RULE DISTINCT_MESSAGE,
        ],
        /// Requested addresses. If empty, the controller assigns them.
        pub addresses: Vec<GatewaySpecAddress> where [
            max 16,
            rule "self.all(a1, a1.type == 'IPAddress' && has(a1.value) ? self.exists_one(a2, a2.type == a1.type && has(a2.value) && a2.value == a1.value) : true)"
                "IP addresses must be unique",
            rule "self.all(a1, a1.type == 'Hostname' && has(a1.value) ? self.exists_one(a2, a2.type == a1.type && has(a2.value) && a2.value == a1.value) : true)"
                "host names must be unique",
        ],
        /// Settings of the resources that are created for the Gateway, such as its Deployment and Service.
        pub infrastructure: Option<GatewayInfrastructure>,
        /// ListenerSets that can attach listeners. If omitted, none can.
        pub allowed_listeners: Option<AllowedListeners>,
        /// TLS settings of all listeners.
        pub tls: Option<GatewayTls>,
        /// Whether the Gateway is a default gateway, which routes with `useDefaultGateways` attach to. If omitted, it is not.
        pub default_scope: Option<GatewayDefaultScope> where [
            warn "not-implemented-yet" "the field is not implemented yet and has no effect",
        ],
    }
}

enumeration! {
    /// Routes that a Gateway is a default gateway for.
    pub enum GatewayDefaultScope {
        /// All routes.
        #[default]
        All = "All",
        /// No routes.
        None = "None",
    }
}

message! {
    /// Requested address of a Gateway.
    pub struct GatewaySpecAddress where [
        rule "self.type == 'IPAddress' && has(self.value) ? isIP(self.value) : true" "the value must be an IP address",
        rule "self.type == 'Hostname' ? (!has(self.value) || self.value.matches(r\"\"\"^(\\*\\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$\"\"\")) : true"
            "the value must be a host name",
    ] {
        /// Type of the address: `IPAddress`, `Hostname` or an implementation-specific type.
        pub kind: Arc<str> as "type" where [min 1, max 253, pattern ADDRESS_TYPE, default "IPAddress"] = "IPAddress".into(),
        /// Address. If omitted, the controller assigns one of the type.
        pub value: Option<Arc<str>> where [max 253],
    }
}

message! {
    /// Settings of the resources that are created for a Gateway.
    pub struct GatewayInfrastructure {
        /// Labels of the resources.
        pub labels: StringMap where [
            max 8,
            rule LABEL_KEYS_RULE "a key must be a name of at most 63 characters with an optional DNS prefix and slash",
            rule LABEL_PREFIX_RULE "the DNS prefix of a key must be shorter than 253 characters",
            values(min 0, max 63, pattern LABEL_VALUE),
        ],
        /// Annotations of the resources.
        pub annotations: StringMap where [
            max 16,
            rule LABEL_KEYS_RULE "a key must be a name of at most 63 characters with an optional DNS prefix and slash",
            rule LABEL_PREFIX_RULE "the DNS prefix of a key must be shorter than 253 characters",
            values(min 0, max 4096),
        ],
        /// Object with controller-specific parameters.
        pub parameters_ref: Option<LocalObjectReference>,
    }
}

message! {
    /// ListenerSets that can attach listeners.
    pub struct AllowedListeners {
        /// Namespaces of the ListenerSets.
        pub namespaces: ListenerNamespaces where [default {"from": "None"}],
    }
}

message! {
    /// Namespaces of ListenerSets.
    pub struct ListenerNamespaces: Relations {
        /// Which namespaces are allowed.
        pub from: FromListenerNamespaces where [default "None"],
        /// Labels of the namespaces. Requires `from: Selector`.
        pub selector: Option<LabelSelector> where [atomic],
    }
}

enumeration! {
    /// Namespaces of ListenerSets that are allowed.
    pub enum FromListenerNamespaces {
        /// No namespace.
        #[default]
        None = "None",
        /// The namespace of the Gateway.
        Same = "Same",
        /// All namespaces.
        All = "All",
        /// Namespaces selected by label.
        Selector = "Selector",
    }
}

message! {
    /// TLS settings of a Gateway.
    pub struct GatewayTls {
        /// TLS settings for connections to backends.
        pub backend: Option<GatewayBackendTls>,
        /// TLS settings for client connections.
        pub frontend: Option<FrontendTls>,
    }
}

message! {
    /// TLS settings for connections to backends.
    pub struct GatewayBackendTls {
        /// Secret with the client certificate and key that the Gateway presents to backends.
        pub client_certificate_ref: Option<SecretObjectReference>,
    }
}

message! {
    /// TLS settings for client connections.
    pub struct FrontendTls {
        /// Settings for ports that have none of their own.
        pub default: TlsConfig where [required],
        /// Settings for individual ports.
        pub per_port: Vec<TlsPortConfig> where [
            max 64, key port, rule "self.all(t1, self.exists_one(t2, t1.port == t2.port))" "the port of an entry must be unique",
        ],
    }
}

message! {
    /// TLS settings for client connections to one port.
    pub struct TlsPortConfig {
        /// Port number.
        pub port: u16 where [required, min 1, max 65535],
        /// TLS settings of the port.
        pub tls: TlsConfig where [required],
    }
}

message! {
    /// TLS settings for client connections.
    pub struct TlsConfig {
        /// Verification of client certificates. If omitted, no client certificate is required.
        pub validation: Option<FrontendTlsValidation>,
    }
}

message! {
    /// Verification of client certificates.
    pub struct FrontendTlsValidation {
        /// ConfigMaps or Secrets with the CA certificates that verify client certificates.
        pub ca_certificate_refs: Vec<ObjectReference> as "caCertificateRefs" where [required, min 1, max 16],
        /// Handling of clients without a valid certificate.
        pub mode: FrontendValidationMode where [default "AllowValidOnly"],
    }
}

enumeration! {
    /// Handling of clients without a valid certificate.
    pub enum FrontendValidationMode {
        /// Rejects the connection.
        #[default]
        AllowValidOnly = "AllowValidOnly",
        /// Accepts the connection.
        AllowInsecureFallback = "AllowInsecureFallback",
    }
}
