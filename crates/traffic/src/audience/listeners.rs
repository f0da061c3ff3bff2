//! Builds the audience of listeners.

use std::net::IpAddr;

use flow::Reads;
use model::audience::{InboundPort, ListenerAudience, ProxyClass, SidecarListenerFacts};
use model::listener::ListenerOptions;
use model::proxy::{Proxy, ProxyKind};

use super::class::{Class, SidecarFacts};
use super::facts::Facts;
use super::filters::Selected;
use super::overrides::Overrides;
use super::{TcpSourceLabels, mtls, policies, select, trace};
use crate::scope::particular;

/// The audience of the listeners that the proxy shares with sidecars that serve other ports, or are in other namespaces.
pub(super) fn shared(cx: &Reads<'_>, audience: &ListenerAudience, filters: &Selected) -> Option<ListenerAudience> {
    if !shares(&audience.class.sidecar()?.inbound, filters) {
        return None;
    }
    Some(ListenerAudience { filters: filters.listeners.shared.clone(), ..particular::base_listeners(cx, audience)? })
}

/// Whether a sidecar with these ports shares listeners. Ports that are not captured have listeners of their own with any
/// name, and so have patches that add a listener. Which of two with the same name counts is decided in one catalogue.
fn shares(inbound: &[InboundPort], filters: &Selected) -> bool {
    filters.listeners.all.is_empty() || inbound.iter().all(|port| port.captured)
}

pub(super) fn audience(
    facts: &Facts<'_>,
    class: &Class,
    filters: &Selected,
    overrides: &Overrides,
) -> ListenerAudience {
    let proxy = facts.proxy;
    ListenerAudience {
        scope: facts.scope.clone(),
        class: match class {
            ProxyClass::Sidecar(of_sidecar) => ProxyClass::Sidecar(sidecar(facts, of_sidecar)),
            ProxyClass::Gateway(gateway) => ProxyClass::Gateway(gateway.clone()),
            ProxyClass::Waypoint => ProxyClass::Waypoint,
            ProxyClass::Ztunnel => ProxyClass::Ztunnel,
            ProxyClass::Grpc => ProxyClass::Grpc,
        },
        capabilities: proxy.capabilities.without_key_providers(),
        agent: proxy.has_agent(),
        own_files: mtls::files(proxy),
        policies: policies::of(facts),
        ip: facts.ip,
        accepts_http10: proxy.accepts_http10 || facts.mesh.features.http10,
        unprivileged: proxy.unprivileged,
        options: options(proxy),
        filters: match class {
            ProxyClass::Sidecar(sidecar) if shares(&sidecar.inbound, filters) => filters.listeners.own.clone(),
            _ => filters.listeners.all.clone(),
        },
        overrides: overrides.listeners.clone(),
        trace_identity: trace::identity(facts, overrides),
    }
}

fn sidecar(facts: &Facts<'_>, sidecar: &SidecarFacts) -> SidecarListenerFacts {
    let proxy = facts.proxy;
    SidecarListenerFacts {
        inbound: sidecar.inbound.clone(),
        mtls: mtls::modes(facts),
        exact_balance_inbound: is_true(proxy, "INBOUND_LISTENER_EXACT_BALANCE"),
        source: facts.source(select::named::<TcpSourceLabels>(facts.cx, facts.labels)),
        interception: proxy.interception,
        network: facts.location.shared.network.clone(),
        http_proxy_port: text(proxy, "HTTP_PROXY_PORT").and_then(|text| text.parse().ok()),
        resolver: sidecar.resolver,
    }
}

/// Options from the proxy's metadata, which agents fill from environment variables. As in Istio, invalid values are
/// ignored.
fn options(proxy: &Proxy) -> ListenerOptions {
    let is_router = proxy.kind == ProxyKind::Router;
    let idle = text(proxy, "IDLE_TIMEOUT").and_then(config::parse_duration);
    ListenerOptions {
        idle_timeout_ms: idle.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        exact_balance: is_true(proxy, "OUTBOUND_LISTENER_EXACT_BALANCE"),
        static_ports: proxy.static_ports,
        addresses: if is_router { bind_addresses(proxy) } else { Vec::new() },
        exclusive: is_router && is_true(proxy, "EXCLUSIVE_PORTS"),
    }
}

fn bind_addresses(proxy: &Proxy) -> Vec<IpAddr> {
    let given = text(proxy, "BIND_ADDRESSES").into_iter().flat_map(|text| text.split(','));
    given.filter_map(|address| address.trim().parse().ok()).collect()
}

fn is_true(proxy: &Proxy, key: &str) -> bool {
    text(proxy, key).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

fn text<'p>(proxy: &'p Proxy, key: &str) -> Option<&'p str> {
    proxy.metadata.get(key).map(|text| &**text)
}
