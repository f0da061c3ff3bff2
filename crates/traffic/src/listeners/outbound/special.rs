//! Outbound listeners without services: the virtual outbound listener and the HTTP proxy; and the filter chain for
//! unknown destinations.

use std::sync::Arc;

use config::MeshConfig;
use model::audience::{IpFamilies, ListenerAudience, SidecarListenerFacts};
use model::listener::{Bind, ChainKind, ChainMatch, ChainSpec, Direction, ListenerSpec, RouteSource, Transport};
use model::proxy::InterceptionMode;
use names::{ClusterName, Protocol};

use super::place::Places;
use super::plain::{self, Client};
use crate::listeners::chain::{BLACK_HOLE, Chain, PASSTHROUGH, fallback, plaintext_http, to_cluster};
use crate::listeners::entry::Entry;
use crate::scope::OutboundPolicy;

/// Name of the virtual outbound listener, and prefix of its filter chains.
const VIRTUAL_OUTBOUND: &str = "virtualOutbound";
/// The route table of the HTTP proxy.
const HTTP_PROXY_ROUTES: &str = "http_proxy";

/// The cluster of connections to unknown destinations.
pub(super) fn unknown_cluster(policy: &OutboundPolicy) -> Arc<str> {
    match policy {
        OutboundPolicy::RegistryOnly => BLACK_HOLE.into(),
        // Only HTTP names its destination.
        OutboundPolicy::AllowAny { egress_proxy: None } | OutboundPolicy::ByName => PASSTHROUGH.into(),
        OutboundPolicy::AllowAny { egress_proxy: Some(to) } => {
            let port = to.port.as_ref().and_then(|p| u16::try_from(p.number).ok()).unwrap_or(0);
            ClusterName::outbound(port, to.subset.clone(), to.host.clone()).to_string().into()
        }
    }
}

/// The virtual outbound listener. It passes captured connections to the listener of their original destination and
/// handles the rest itself.
pub(super) fn virtual_outbound(
    (audience, facts): (&ListenerAudience, &SidecarListenerFacts),
    mesh: &MeshConfig,
    client: &Client,
) -> Option<ListenerSpec> {
    let unknown_cluster = &*client.unknown_cluster;
    if facts.interception == InterceptionMode::None {
        return None;
    }
    let port = u16::try_from(mesh.proxy_listen_port).ok().filter(|p| *p != 0)?;
    let chain = |name: &str, destination_port, cluster: &str| ChainSpec {
        name: format!("{VIRTUAL_OUTBOUND}-{name}").into(),
        matches: ChainMatch { destination_port, ..ChainMatch::default() },
        tls: None,
        kind: to_cluster(cluster),
    };
    let by_host = client.dns_cache.as_ref().map(|_| by_name(client));
    let inspects = by_host.is_some();
    // Connections to this port were not captured and would loop.
    let mut chains = vec![chain("blackhole", Some(port), BLACK_HOLE)];
    chains.extend(by_host);
    chains.push(chain("catchall-tcp", None, unknown_cluster));
    Some(ListenerSpec {
        name: VIRTUAL_OUTBOUND.into(),
        bind: everywhere(audience.ip, port),
        bind_to_port: true,
        transport: Transport::Tcp,
        direction: Direction::Outbound,
        use_original_dst: true,
        transparent: facts.interception == InterceptionMode::Tproxy,
        original_dst_filter: false,
        tls_inspector: false,
        http_inspector: inspects,
        server_first_ports: Vec::new(),
        inspection_timeout_ms: inspects.then_some(client.settings.detection_timeout_ms),
        chains: chains.into(),
        default_chain: None,
        idle_timeout_ms: audience.options.idle_timeout_ms,
        // Connections are passed on.
        exact_balance: false,
        exclusive: false,
        policies: Default::default(),
        internal: [].into(),
        capabilities: audience.capabilities,
        overrides: None,
        trace_identity: Arc::default(),
    })
}

/// The filter chain for HTTP to unknown destinations, by the requested host instead of the original destination.
fn by_name(client: &Client) -> ChainSpec {
    let name = format!("{VIRTUAL_OUTBOUND}_allow_any_dynamic_dns");
    ChainSpec {
        name: format!("{VIRTUAL_OUTBOUND}-catchall-tcp-http").into(),
        matches: ChainMatch { application_protocols: plaintext_http(client.accepts_http10), ..ChainMatch::default() },
        tls: None,
        kind: ChainKind::Http(plain::http(client, &name, Protocol::Http, RouteSource::DynamicForwardProxy)),
    }
}

/// The listener of the HTTP proxy (`proxyHttpPort`).
pub(super) fn http_proxy(
    (audience, facts): (&ListenerAudience, &SidecarListenerFacts),
    mesh: &MeshConfig,
    client: &Client,
) -> Option<ListenerSpec> {
    let of_mesh = || u16::try_from(mesh.proxy_http_port).ok();
    let port = facts.http_proxy_port.or_else(of_mesh).filter(|p| *p != 0)?;
    let bound = Places { audience, mesh }.loopback()?;
    let name = bound.primary.listener(port);
    let routes = RouteSource::Discovered(HTTP_PROXY_ROUTES.into());
    let chain = Chain::any(ChainKind::Http(plain::http(client, &name, Protocol::HttpProxy, routes)));
    let mut entry = Entry::new(bound, true, port, Protocol::HttpProxy);
    entry.merge(vec![chain]);
    Some(entry.finish(name, &fallback(PASSTHROUGH), client.settings))
}

fn everywhere(ip: IpFamilies, port: u16) -> Bind {
    let additional = if ip == IpFamilies::Dual { vec![[0u16; 8].into()] } else { Vec::new() };
    Bind::Socket { address: ip.wildcard(), additional, port }
}
