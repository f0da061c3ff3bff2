//! Listeners of Gateways, as their specification says, without regard to those of ListenerSets.

use std::sync::Arc;

use config::Object;
use config::Timestamp;
use config::gateway_api::listener::{AllowedRoutes, FromNamespaces, TlsMode};
use config::gateway_api::{Gateway, Listener, ListenerTls};
use config::istio::ServerTlsMode;
use flow::Reads;
use model::kube::{ListenerId, ListenerOwner, RouteKind};
use model::service::{ObjectId, SourceId};
use names::Hostname;
use registry::inputs::{KubeGateways, ListenerSets};

use crate::class::Classes;
use crate::conflict::{self, Conflict};
use crate::grants::GROUP;

/// A Gateway of a class that is served, with its own listeners.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnPlan {
    /// When the object was created.
    pub created: Option<Timestamp>,
    /// The listeners, in their order.
    pub listeners: Arc<[ListenerPlan]>,
}

/// A listener, judged by specifications alone.
#[derive(Clone, PartialEq, Debug)]
pub struct ListenerPlan {
    /// Its name, unique in the Gateway or ListenerSet.
    pub name: Arc<str>,
    /// The port.
    pub port: u16,
    /// The protocol.
    pub protocol: ListenerProtocol,
    /// The host or wildcard that it serves; `*` if none is set.
    pub hostname: Hostname,
    /// The namespaces of routes that may attach.
    pub namespaces: AllowedNamespaces,
    /// The kinds of routes that may attach.
    pub kinds: Vec<RouteKind>,
    /// Its conflict with other listeners of the Gateway.
    pub conflict: Option<Conflict>,
    /// The termination of TLS; none for other protocols, and without valid settings.
    pub termination: Option<Termination>,
    /// The forwarding of connections, if the protocol is TLS and it is not terminated.
    pub passthrough: Option<Passthrough>,
}

/// Protocols of listeners.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum ListenerProtocol {
    /// `HTTP`.
    Http,
    /// `HTTPS`.
    Https,
    /// `TLS`.
    Tls,
    /// `TCP`.
    Tcp,
    /// `UDP`.
    Udp,
    /// Any other.
    Unknown,
}

impl ListenerProtocol {
    /// Whether connections are selected by SNI.
    pub fn is_by_name(self) -> bool {
        matches!(self, ListenerProtocol::Https | ListenerProtocol::Tls)
    }
}

/// The namespaces of routes that may attach to a listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AllowedNamespaces {
    /// The namespace of the Gateway or ListenerSet.
    Same,
    /// All.
    All,
    /// The namespaces that its selector selects.
    Selected,
}

/// The termination of TLS at a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Termination {
    /// The mode.
    pub mode: ServerTlsMode,
    /// Cipher suites; those of the mesh if empty.
    pub cipher_suites: Vec<Arc<str>>,
}

/// The forwarding of connections of TLS without termination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Passthrough {
    /// By TLSRoutes.
    Routes,
    /// To the cluster that the SNI names (`AUTO_PASSTHROUGH`), between networks. There are no routes.
    Clusters,
}

impl Termination {
    /// Whether clients present certificates that a Secret's CA certificates verify.
    pub fn verifies_clients(&self) -> bool {
        matches!(self.mode, ServerTlsMode::Mutual | ServerTlsMode::OptionalMutual)
    }

    /// Whether the certificate is that of the workload.
    pub fn is_of_mesh(&self) -> bool {
        self.mode == ServerTlsMode::IstioMutual
    }
}

impl ListenerPlan {
    /// Whether proxies listen for it. Termination of TLS also requires a certificate, and the protocols TLS, TCP and UDP a route.
    pub fn is_served(&self) -> bool {
        self.protocol != ListenerProtocol::Unknown && self.conflict.is_none()
    }
}

flow::index! {
    /// Gateways of the configuration cluster.
    pub HomeGateways: ObjectId => members of KubeGateways = "own gateways of the gateway api", home_gateways_keys;
}

flow::rule! {
    /// The Gateways of served classes, with their own listeners.
    pub OwnPlans: ObjectId => Arc<OwnPlan> = "own listeners of gateways of the gateway api", derive_plan;
}

fn home_gateways_keys(key: &SourceId, _: &Arc<Object<Gateway>>) -> Vec<ObjectId> {
    if key.cluster.is_empty() { vec![key.id.clone()] } else { Vec::new() }
}

/// The Gateway of this name in the configuration cluster.
pub(crate) fn object(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<Object<Gateway>>> {
    cx.get::<KubeGateways>(&SourceId { cluster: Arc::default(), id: id.clone() }).map(|row| (*row).clone())
}

/// A listener as its object in the configuration cluster declares it.
pub(crate) fn spec(cx: &Reads<'_>, id: &ListenerId) -> Option<Listener> {
    let find = |all: &[Listener]| all.iter().find(|one| one.name == id.name).cloned();
    match &id.owner {
        ListenerOwner::Gateway(gateway) => find(&object(cx, gateway)?.spec.listeners),
        ListenerOwner::ListenerSet(set) => cx.with::<ListenerSets, _>(set, |row| find(&row?.spec.listeners)),
    }
}

fn derive_plan(cx: &Reads<'_>, id: &ObjectId) -> Option<Arc<OwnPlan>> {
    let object = object(cx, id)?;
    cx.get::<Classes>(&object.spec.gateway_class_name)?;
    let of_network = object.meta.labels.contains_key(NETWORK);
    let listeners = listeners(&object.spec.listeners, of_network);
    Some(Arc::new(OwnPlan { created: object.meta.creation_timestamp, listeners }))
}

/// The plans of the listeners of one object, with the conflicts among them.
pub(crate) fn listeners(specs: &[Listener], of_network: bool) -> Arc<[ListenerPlan]> {
    let mut listeners: Vec<ListenerPlan> = specs.iter().filter_map(|listener| plan(listener, of_network)).collect();
    conflict::mark(&mut listeners);
    listeners.into()
}

/// The plan of one listener; `of_network` if the Gateway has the label of a network. None for an invalid host name, which
/// validation has refused before.
fn plan(listener: &Listener, of_network: bool) -> Option<ListenerPlan> {
    let protocol = protocol(&listener.protocol);
    let tls = listener.tls.as_ref().filter(|_| protocol.is_by_name());
    let passed = tls.filter(|tls| protocol == ListenerProtocol::Tls && tls.mode == TlsMode::Passthrough);
    let passthrough = passed.map(|tls| passthrough(tls, of_network && listener.port == BETWEEN_NETWORKS));
    Some(ListenerPlan {
        name: listener.name.clone(),
        port: listener.port,
        protocol,
        hostname: Hostname::parse(listener.hostname.as_deref().unwrap_or("*")).ok()?,
        namespaces: match listener.allowed_routes.namespaces.from {
            FromNamespaces::Same => AllowedNamespaces::Same,
            FromNamespaces::All => AllowedNamespaces::All,
            FromNamespaces::Selector => AllowedNamespaces::Selected,
        },
        kinds: kinds(protocol, passthrough, &listener.allowed_routes),
        conflict: None,
        termination: tls.and_then(termination),
        passthrough,
    })
}

fn protocol(text: &str) -> ListenerProtocol {
    match text {
        "HTTP" => ListenerProtocol::Http,
        "HTTPS" => ListenerProtocol::Https,
        "TLS" => ListenerProtocol::Tls,
        "TCP" => ListenerProtocol::Tcp,
        "UDP" => ListenerProtocol::Udp,
        _ => ListenerProtocol::Unknown,
    }
}

/// The kinds of routes that the protocol supports and the listener allows.
fn kinds(protocol: ListenerProtocol, passthrough: Option<Passthrough>, allowed: &AllowedRoutes) -> Vec<RouteKind> {
    let supported: &[RouteKind] = match protocol {
        ListenerProtocol::Http | ListenerProtocol::Https => &[RouteKind::Http, RouteKind::Grpc],
        ListenerProtocol::Tls => match passthrough {
            None => &[RouteKind::Tls, RouteKind::Tcp],
            Some(Passthrough::Routes) => &[RouteKind::Tls],
            Some(Passthrough::Clusters) => &[],
        },
        ListenerProtocol::Tcp => &[RouteKind::Tcp],
        ListenerProtocol::Udp => &[RouteKind::Udp],
        ListenerProtocol::Unknown => &[],
    };
    let named = |kind: &&RouteKind| {
        allowed.kinds.is_empty() || allowed.kinds.iter().any(|one| &*one.group == GROUP && &*one.kind == kind.name())
    };
    supported.iter().filter(named).copied().collect()
}

/// The label of a Gateway that connects networks.
const NETWORK: &str = "topology.istio.io/network";
/// The port at which it does so.
const BETWEEN_NETWORKS: u16 = 15443;
/// The option that makes a listener connect networks.
const KIND: &str = "gateway.istio.io/listener-protocol";

fn passthrough(tls: &ListenerTls, between_networks: bool) -> Passthrough {
    let asked = tls.options.get(KIND).is_some_and(|kind| &**kind == "auto-passthrough");
    if asked || between_networks { Passthrough::Clusters } else { Passthrough::Routes }
}

/// The option that selects the TLS mode.
const MODE: &str = "gateway.istio.io/tls-terminate-mode";
/// The option with cipher suites, separated by commas.
const CIPHER_SUITES: &str = "gateway.istio.io/tls-cipher-suites";

fn termination(tls: &ListenerTls) -> Option<Termination> {
    if tls.mode != TlsMode::Terminate {
        return None;
    }
    let mode = match tls.options.get(MODE).map(|mode| &**mode) {
        None | Some("") | Some("SIMPLE") => ServerTlsMode::Simple,
        Some("MUTUAL") => ServerTlsMode::Mutual,
        Some("OPTIONAL_MUTUAL") => ServerTlsMode::OptionalMutual,
        Some("ISTIO_MUTUAL") => ServerTlsMode::IstioMutual,
        Some(_) => return None,
    };
    let suites = tls.options.get(CIPHER_SUITES).map(|text| &**text).unwrap_or_default();
    let suites = suites.split(',').map(str::trim).filter(|suite| !suite.is_empty());
    Some(Termination { mode, cipher_suites: suites.map(Arc::from).collect() })
}

/// Adds this module's rules.
pub(crate) fn register(b: &mut flow::Builder) {
    b.index::<HomeGateways>();
    b.world::<OwnPlans, HomeGateways>();
}
