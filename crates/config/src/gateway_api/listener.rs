//! Listeners, of Gateways and of ListenerSets.

use std::sync::Arc;

use crate::gateway_api::reference::SecretObjectReference;
use crate::gateway_api::text::{DNS_NAME, GATEWAY_GROUP, GROUP, HOSTNAME, KIND, LABEL, PROTOCOL};
use crate::mesh::LabelSelector;
use crate::object::StringMap;

/// In CEL: names of listeners are unique.
pub(crate) const NAMES_RULE: &str = "self.all(l1, self.exists_one(l2, l1.name == l2.name))";
/// In CEL: no two listeners have the same port, protocol and host name.
pub(crate) const DISTINCT_RULE: &str = "self.all(l1, self.exists_one(l2, l1.port == l2.port && l1.protocol == l2.protocol && (has(l1.hostname) && has(l2.hostname) ? l1.hostname == l2.hostname : !has(l1.hostname) && !has(l2.hostname))))";
/// In CEL: plain protocols have no TLS.
pub(crate) const PLAIN_RULE: &str = "self.all(l, l.protocol in ['HTTP', 'TCP', 'UDP'] ? !has(l.tls) : true)";
/// In CEL: HTTPS is terminated.
pub(crate) const HTTPS_RULE: &str =
    "self.all(l, (l.protocol == 'HTTPS' && has(l.tls)) ? (l.tls.mode == '' || l.tls.mode == 'Terminate') : true)";
/// In CEL: TLS says what is done with it.
pub(crate) const TLS_RULE: &str =
    "self.all(l, (l.protocol == 'TLS' ? has(l.tls) && has(l.tls.mode) && l.tls.mode != '' : true))";
/// In CEL: protocols without host names have none.
pub(crate) const HOST_RULE: &str =
    "self.all(l, l.protocol in ['TCP', 'UDP'] ? (!has(l.hostname) || l.hostname == '') : true)";

/// What is said when names are not unique.
pub(crate) const NAMES_MESSAGE: &str = "the names of listeners must be unique";
/// What is said when listeners cannot be told apart.
pub(crate) const DISTINCT_MESSAGE: &str = "no two listeners may have the same port, protocol and hostname";
/// What is said about TLS on a plain protocol.
pub(crate) const PLAIN_MESSAGE: &str = "listeners for HTTP, TCP and UDP have no tls";
/// What is said about HTTPS that is not terminated.
pub(crate) const HTTPS_MESSAGE: &str = "a listener for HTTPS has the tls mode Terminate";
/// What is said about TLS without a mode.
pub(crate) const TLS_MESSAGE: &str = "a listener for TLS needs a tls mode";
/// What is said about a host name where there can be none.
pub(crate) const HOST_MESSAGE: &str = "listeners for TCP and UDP have no hostname";

message! {
    /// Adds listeners to a Gateway.
    pub struct ListenerSet {
        /// The Gateway.
        pub parent_ref: ParentGatewayReference where [required],
        /// The listeners.
        pub listeners: Vec<Listener> where [
            required, min 1, max 64, key name,
            rule PLAIN_RULE PLAIN_MESSAGE, rule HTTPS_RULE HTTPS_MESSAGE, rule TLS_RULE TLS_MESSAGE,
            rule HOST_RULE HOST_MESSAGE, rule NAMES_RULE NAMES_MESSAGE, rule DISTINCT_RULE DISTINCT_MESSAGE,
        ],
    }
}

message! {
    /// Names a Gateway.
    pub struct ParentGatewayReference {
        /// The API group of its kind.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Its kind.
        pub kind: Arc<str> where [min 1, max 63, pattern KIND, default "Gateway"] = "Gateway".into(),
        /// Its name.
        pub name: Arc<str> where [required, min 1, max 253],
        /// Its namespace; absent means the same.
        pub namespace: Option<Arc<str>> where [min 1, max 63, pattern LABEL],
    }
}

message! {
    /// One port with a protocol and, perhaps, a host name.
    pub struct Listener {
        /// The name, unique in the Gateway, by which routes choose the listener.
        pub name: Arc<str> where [required, min 1, max 253, pattern DNS_NAME],
        /// The host name that it serves, perhaps with `*.` at the beginning; absent means all. Not for TCP and UDP.
        pub hostname: Option<Arc<str>> where [min 1, max 253, pattern HOSTNAME],
        /// The port. Listeners with different host names may share it.
        pub port: u16 where [required, min 1, max 65535],
        /// What it speaks: `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP`, or a domain's own protocol.
        pub protocol: Arc<str> where [required, min 1, max 255, pattern PROTOCOL],
        /// TLS towards clients; for `HTTPS` and `TLS`.
        pub tls: Option<ListenerTls>,
        /// The routes that may be attached.
        pub allowed_routes: AllowedRoutes where [default {"namespaces": {"from": "Same"}}],
    }
}

message! {
    /// TLS towards clients.
    pub struct ListenerTls where [
        rule "self.mode != 'Terminate' || (has(self.certificateRefs) && size(self.certificateRefs) > 0) || (has(self.options) && size(self.options) > 0)"
            "with the mode Terminate certificateRefs or options are needed",
    ] {
        /// Whether it is terminated.
        pub mode: TlsMode where [default "Terminate"],
        /// Secrets with certificates and keys; the server name that the client sends chooses one.
        pub certificate_refs: Vec<SecretObjectReference> where [max 64],
        /// More settings, by names that begin with a domain.
        pub options: StringMap where [max 16, values(min 0, max 4096)],
    }
}

enumeration! {
    /// Whether TLS is terminated.
    pub enum TlsMode {
        /// It is.
        #[default]
        Terminate = "Terminate",
        /// It is passed on, and routed by server name.
        Passthrough = "Passthrough",
    }
}

message! {
    /// The routes that may be attached to a listener.
    pub struct AllowedRoutes {
        /// Namespaces that they may be in.
        pub namespaces: RouteNamespaces where [default {"from": "Same"}],
        /// Their kinds; empty means those that fit the protocol.
        pub kinds: Vec<RouteGroupKind> where [max 8],
    }
}

message! {
    /// Namespaces of routes.
    pub struct RouteNamespaces {
        /// Which ones.
        pub from: FromNamespaces where [default "Same"],
        /// Their labels, with `Selector` only.
        pub selector: Option<LabelSelector> where [atomic],
    }
}

enumeration! {
    /// Which namespaces routes may be in.
    pub enum FromNamespaces {
        /// The Gateway's own.
        #[default]
        Same = "Same",
        /// All.
        All = "All",
        /// Those with certain labels.
        Selector = "Selector",
    }
}

message! {
    /// A kind of routes.
    pub struct RouteGroupKind {
        /// Its API group.
        pub group: Arc<str> where [max 253, pattern GROUP, default "gateway.networking.k8s.io"] = GATEWAY_GROUP.into(),
        /// Its name.
        pub kind: Arc<str> where [required, min 1, max 63, pattern KIND],
    }
}
