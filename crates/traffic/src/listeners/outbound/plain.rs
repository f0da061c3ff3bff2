//! Listeners of a single service port without routes: most listeners of a mesh with TCP services. All clients that see
//! the service under the same policy share them.

use std::sync::Arc;

use flow::Reads;
use model::audience::{IpFamilies, PolicyKey};
use model::listener::{ChainKind, DnsCache, HttpChain, ListenerSpec, RouteSource, TcpChain};
use model::service::ServiceKey;
use names::{ClusterName, Protocol};

use crate::listeners::chain::{Chain, fallback};
use crate::listeners::entry::{Bound, Entry, Primary, Settings};
use crate::listeners::l4;
use crate::stats;

flow::rule! {
    /// The listener of a single service port.
    pub PlainListeners: Plain => Arc<ListenerSpec> = "plain listeners", derive_plain_listeners;
}

/// A service port at its bind address, without VirtualServices.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Plain {
    pub(super) service: ServiceKey,
    /// The listener's port; 0 for a Unix domain socket.
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    /// The service's port.
    pub(super) service_port: u16,
    pub(super) bound: Bound,
    pub(super) bind_to_port: bool,
    /// The listener binds a wildcard address, so that it gets connections to any destination.
    pub(super) shared: bool,
    /// SNI of TLS connections to the service; none if the address identifies the service.
    pub(super) names: Arc<[Arc<str>]>,
    /// The proxy's address families, if the service is resolved dynamically.
    pub(super) dns: Option<IpFamilies>,
    /// The policy of the service for the client.
    pub(super) policy: Option<PolicyKey>,
    pub(super) client: Arc<Client>,
}

/// Client facts that listeners depend on, other than visibility.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Client {
    /// The cluster of connections to unknown destinations.
    pub(super) unknown_cluster: Arc<str>,
    pub(super) settings: Settings,
    pub(super) accepts_http10: bool,
    /// Some service or route has session affinity.
    pub(super) sessions: bool,
    /// Some route asks an external service.
    pub(super) external_auth: bool,
    /// The DNS cache for unknown destinations, if the mesh resolves them.
    pub(super) dns_cache: Option<DnsCache>,
}

fn derive_plain_listeners(cx: &Reads<'_>, key: &Plain) -> Option<Arc<ListenerSpec>> {
    let fallback = fallback(&key.client.unknown_cluster);
    Some(Arc::new(key.entry(cx).finish(key.name(), &fallback, key.client.settings)))
}

impl Plain {
    /// The listener's name.
    pub(super) fn name(&self) -> Arc<str> {
        self.bound.primary.listener(self.port)
    }

    /// The listener's protocol; a detected protocol is not declared.
    pub(super) fn listener_protocol(&self) -> Protocol {
        let inspected = self.protocol.is_http() && self.inspects();
        if inspected { Protocol::Unsupported } else { self.protocol }
    }

    /// The listener, ready for more filter chains.
    pub(super) fn entry(&self, cx: &Reads<'_>) -> Entry {
        let tcp = || self.tcp(cx);
        let chains = match self.protocol {
            p if p.is_http() => vec![self.http()],
            p if p.is_tcp() => vec![tcp()],
            _ => vec![tcp(), self.http()],
        };
        self.entry_with(chains)
    }

    /// The listener with these filter chains.
    pub(super) fn entry_with(&self, chains: Vec<Chain>) -> Entry {
        let mut entry = Entry::new(self.bound.clone(), self.bind_to_port, self.port, self.listener_protocol());
        entry.merge(chains);
        entry
    }

    /// A TCP proxy to the service.
    pub(super) fn tcp(&self, cx: &Reads<'_>) -> Chain {
        let cluster = ClusterName::outbound(self.service_port, "", self.service.hostname.as_arc().clone());
        let all = l4::to_cluster(cx, &cluster.to_string(), self.policy.as_ref(), "").speaking(self.protocol);
        let tcp = TcpChain {
            stat_prefix: stats::outbound(cx, &self.service, self.service_port, "").unwrap_or(all.stat_prefix),
            by_server_name: self.dns_cache().map(|cache| Box::new((cache, self.service_port))),
            ..all
        };
        Chain { sni: self.names.to_vec(), ..Chain::any(ChainKind::Tcp(tcp)) }
    }

    /// HTTP with a route table.
    pub(super) fn http(&self) -> Chain {
        let detected = self.protocol.is_unsupported();
        let table: Arc<str> = match &self.bound.primary {
            Primary::Unix(bind) if self.port == 0 => bind.clone(),
            // Detected HTTP at the service's own address is for this service only.
            _ if detected && !self.shared => format!("{}:{}", self.service.hostname, self.port).into(),
            _ => self.port.to_string().into(),
        };
        let mut http = http(&self.client, &self.name(), self.protocol, RouteSource::Discovered(table));
        http.dns_caches.extend(self.dns_cache());
        Chain { inspected: self.inspects(), ..Chain::any(ChainKind::Http(http)) }
    }

    fn dns_cache(&self) -> Option<DnsCache> {
        Some(DnsCache { host: Some(self.service.hostname.as_arc().clone()), families: self.dns?, resolver: None })
    }

    /// Whether HTTP is detected; at a shared listener even if it is declared.
    fn inspects(&self) -> bool {
        self.protocol.is_unsupported() || self.shared && self.protocol != Protocol::HttpProxy
    }
}

/// The HTTP connection manager of an outbound listener of this name.
pub(super) fn http(client: &Client, name: &str, protocol: Protocol, routes: RouteSource) -> HttpChain {
    HttpChain {
        stat_prefix: format!("outbound_{name};").into(),
        protocol,
        routes,
        accepts_http10: client.accepts_http10,
        use_remote_address: false,
        alpn_filter: client.settings.capabilities.istio_alpn,
        sessions: client.sessions,
        external_auth: client.external_auth,
        pickers: false,
        dns_caches: client.dns_cache.iter().cloned().collect(),
    }
}
