//! Listeners of Gateways and ListenerSets.

use std::sync::Arc;

use crate::gateway_api::reference::SecretObjectReference;
use crate::gateway_api::text::{DNS_NAME, GATEWAY_GROUP, GROUP, HOSTNAME, KIND, LABEL, PROTOCOL};
use crate::mesh::LabelSelector;
use crate::object::StringMap;

/// CEL rule: names of listeners must be unique.
pub(crate) const NAMES_RULE: &str = "self.all(l1, self.exists_one(l2, l1.name == l2.name))";
/// CEL rule: listeners must differ in port, protocol or host name.
pub(crate) const DISTINCT_RULE: &str = "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))";
/// CEL rule: plaintext protocols must not have TLS settings.
pub(crate) const PLAIN_RULE: &str = "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)";
/// CEL rule: HTTPS must be terminated.
pub(crate) const HTTPS_RULE: &str =
    "self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)";
/// CEL rule: the protocol TLS requires a TLS mode.
pub(crate) const TLS_RULE: &str =
    "self.all(l, (l.protocol == 'TLS' ? has(l.tls) && has(l.tls.mode) && l.tls.mode != '' : true))";
/// CEL rule: TCP and UDP must not have a host name.
pub(crate) const HOST_RULE: &str =
    "self.all(l, l.protocol in ['TCP', 'UDP'] ? (!has(l.hostname) || l.hostname == '') : true)";

/// Message of [`NAMES_RULE`].
pub(crate) const NAMES_MESSAGE: &str = "listener names must be unique";
/// Message of [`DISTINCT_RULE`].
pub(crate) const DISTINCT_MESSAGE: &str = "the combination of port, protocol and hostname must be unique";
/// Message of [`PLAIN_RULE`].
pub(crate) const PLAIN_MESSAGE: &str = "tls must not be set for the protocols HTTP, TCP and UDP";
/// Message of [`HTTPS_RULE`].
pub(crate) const HTTPS_MESSAGE: &str = "the protocol HTTPS requires the tls mode Terminate";
/// Message of [`TLS_RULE`].
pub(crate) const TLS_MESSAGE: &str = "the protocol TLS requires a tls mode";
/// Message of [`HOST_RULE`].
pub(crate) const HOST_MESSAGE: &str = "hostname must not be set for the protocols TCP and UDP";

message! {
    /// Adds listeners to a Gateway.
    pub struct ListenerSet {
        /// Gateway that the listeners are added to.
        pub parent_ref: ParentGatewayReference where [required],
        /// Listeners.
        pub listeners: Vec<Listener> where [
            required, min 1, max 64, key name,
            rule PLAIN_RULE PLAIN_MESSAGE, rule HTTPS_RULE HTTPS_MESSAGE, rule TLS_RULE TLS_MESSAGE,
            rule HOST_RULE HOST_MESSAGE, rule NAMES_RULE NAMES_MESSAGE, rule DISTINCT_RULE DISTINCT_MESSAGE,
        ],
    }
}

message! {
    /// Reference to a Gateway.
    pub struct ParentGatewayReference {
        /// API group of the referenced object.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Kind of the referenced object.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Gateway"] = "Gateway".into(),
        /// Name of the referenced object.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Namespace of the referenced object. Defaults to the same namespace.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}

message! {
    /// Port of a Gateway with a protocol and an optional host name.
    pub struct Listener: Relations {
        /// Name of the listener, unique within the Gateway. Routes refer to it by `sectionName`.
        pub name: Arc<str> where [required, min 1, max 253, pattern DNS_NAME],
        /// Host name to serve, optionally with the prefix `*.`. If omitted, all host names are served. Not allowed for
        /// TCP and UDP.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern HOSTNAME],
        /// Port number. Listeners with different host names can share a port.
        pub port: u16 where [required, min 1, max 65535],
        /// Protocol: `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP` or an implementation-specific protocol.
        pub protocol: Arc<str> where [required, min 1, max 255, pattern PROTOCOL],
        /// TLS settings for client connections. Applies to `HTTPS` and `TLS`.
        pub tls: Option<ListenerTls>,
        /// Routes that can attach to the listener.
        pub allowed_routes: AllowedRoutes where [default {"namespaces": {"from": "Same"}}],
    }
}

message! {
    /// TLS settings for client connections.
    pub struct ListenerTls where [
        rule "self.mode != 'Terminate' || (has(self.certificateRefs) && size(self.certificateRefs) > 0) || (has(self.options) && size(self.options) > 0)"
            "the mode Terminate requires certificateRefs or options",
    ] {
        /// Whether TLS is terminated.
        pub mode: TlsMode where [default "Terminate"],
        /// Secrets with server certificates and keys. The SNI of the client selects one.
        pub certificate_refs: Vec<SecretObjectReference> where [max 64],
        /// Implementation-specific settings, by domain-prefixed name.
        pub options: StringMap where [max 16, values(min 0, max 4096)],
    }
}

enumeration! {
    /// Whether TLS is terminated.
    pub enum TlsMode {
        /// Terminates TLS.
        #[default]
        Terminate = "Terminate",
        /// Does not terminate TLS. Connections are routed by SNI.
        Passthrough = "Passthrough",
    }
}

message! {
    /// Routes that can attach to a listener.
    pub struct AllowedRoutes {
        /// Namespaces of the routes.
        pub namespaces: RouteNamespaces where [default {"from": "Same"}],
        /// Kinds of the routes. If empty, all kinds that the protocol supports.
        pub kinds: Vec<RouteGroupKind> where [max 8],
    }
}

message! {
    /// Namespaces of routes.
    pub struct RouteNamespaces: Relations {
        /// Which namespaces are allowed.
        pub from: FromNamespaces where [default "Same"],
        /// Labels of the namespaces. Requires `from: Selector`.
        pub selector: Option<LabelSelector> where [atomic],
    }
}

enumeration! {
    /// Namespaces of routes that are allowed.
    pub enum FromNamespaces {
        /// The namespace of the Gateway.
        #[default]
        Same = "Same",
        /// All namespaces.
        All = "All",
        /// Namespaces selected by label.
        Selector = "Selector",
    }
}

message! {
    /// Kind of route.
    pub struct RouteGroupKind {
        /// API group of the kind.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Name of the kind.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
    }
}
