//! Listeners of gRPC clients, which refer to the routes of a service, and of gRPC servers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use flow::Reads;
use gateway_api::route_filters::{self, RouteFilter};
use model::audience::{GrpcAudience, PolicyIds};
use model::service::Service;
use model::session::Session;
use model::xds::Resource;
use names::{ClusterName, Hostname};
use protos::envoy::config::listener::v3::{ApiListener, Filter, FilterChain, Listener};
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::{NonForwardingAction, Route, RouteConfiguration, VirtualHost};
use protos::envoy::extensions::filters::http::fault::v3::HttpFault;
use protos::envoy::extensions::filters::http::router::v3::Router;
use protos::envoy::extensions::filters::http::stateful_session::v3::StatefulSession;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, HttpFilter, Rds,
};
use registry::Services;
use security::authorization::GrpcChecks;

use super::tls;
use crate::parts::{address, aggregated_discovery, any, http_filter, network_filter};
use crate::rbac;
use crate::route::{everything, sessions};

/// The prefix of a server's address in the name of its listener (`server_listener_resource_name_template`).
const SERVER_PREFIX: &str = "xds.istio.io/grpc/lds/inbound/";

flow::rule! {
    /// Encoded listeners of gRPC clients and servers, by the requested name.
    pub GrpcListeners: (Arc<GrpcAudience>, Arc<str>) => Resource = "grpc listeners", derive_grpc_listeners;
}

fn derive_grpc_listeners(cx: &Reads<'_>, (audience, name): &(Arc<GrpcAudience>, Arc<str>)) -> Option<Resource> {
    let body = match name.strip_prefix(SERVER_PREFIX) {
        Some(bound) => server(audience, name, bound, || authorization(cx, &audience.policies))?,
        None => client(cx, audience, name)?,
    };
    Some(Resource::new(name.clone(), body))
}

/// The listener of a service's port, by any of its names.
fn client(cx: &Reads<'_>, audience: &GrpcAudience, name: &str) -> Option<Bytes> {
    let (host, port) = name.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port != 0)?;
    let served = |host: &str| {
        let host = Hostname::parse(host).ok()?;
        traffic::scope::served(cx, &audience.scope, &host, port)
    };
    let full = || served(&expanded(host, audience)?);
    let visible = served(host).or_else(full)?;
    let service = cx.get::<Services>(&visible.key)?;
    let mut http_filters: Vec<HttpFilter> = session_filter(cx, &service).into_iter().collect();
    http_filters.extend([http_filter("envoy.filters.http.fault", &HttpFault::default()), router()]);
    let manager = HttpConnectionManager {
        http_filters,
        route_specifier: Some(RouteSpecifier::Rds(Rds {
            config_source: Some(aggregated_discovery()),
            route_config_name: ClusterName::outbound(port, "", visible.key.hostname.as_arc().clone()).to_string(),
        })),
        ..Default::default()
    };
    // gRPC uses only the name of the listener; the address is informational.
    let virtual_address = service.addresses_in(&audience.scope.cluster, false).first();
    let ip = virtual_address.map_or(IpAddr::from([0u8; 4]), |network| network.addr());
    let listener = Listener {
        name: name.to_owned(),
        address: Some(address(ip, port)),
        api_listener: Some(ApiListener { api_listener: Some(any(&manager)) }),
        ..Default::default()
    };
    Some(protos::encode(&listener))
}

/// Expands a short host name (`a`, `a.NAMESPACE`, `a.NAMESPACE.svc`).
fn expanded(host: &str, audience: &GrpcAudience) -> Option<String> {
    let domain = &audience.domain;
    if !host.contains('.') {
        return Some(format!("{host}.{domain}"));
    }
    let namespace = &audience.scope.namespace;
    let ends = [format!("{namespace}.svc"), namespace.to_string()];
    let short = ends
        .iter()
        .filter(|end| domain.starts_with(&**end))
        .find_map(|end| host.strip_suffix(&**end)?.strip_suffix('.'))?;
    Some(format!("{short}.{domain}"))
}

/// The listener of a server at this address, if a service selects its port.
fn server(
    audience: &GrpcAudience,
    name: &str,
    bound: &str,
    authorization: impl FnOnce() -> Vec<HttpFilter>,
) -> Option<Bytes> {
    let bound: SocketAddr = bound.parse().ok()?;
    if !audience.inbound.contains(&bound.port()) {
        return None;
    }
    let accept = Route {
        r#match: Some(everything()),
        action: Some(Action::NonForwardingAction(NonForwardingAction {})),
        ..Default::default()
    };
    let routes = RouteConfiguration {
        name: "inbound".to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "inbound".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![accept],
            ..Default::default()
        }],
        ..Default::default()
    };
    let manager = HttpConnectionManager {
        http_filters: authorization().into_iter().chain([router()]).collect(),
        route_specifier: Some(RouteSpecifier::RouteConfig(routes)),
        ..Default::default()
    };
    // One chain for both plain text and TLS is impossible: gRPC supports no transport protocol match except
    // `raw_buffer`.
    let mutual_tls = audience.mutual_tls.contains(&bound.port());
    let kind = if mutual_tls { "mtls" } else { "plaintext" };
    let manager: Filter = network_filter(&format!("inbound-hcm-{kind}"), &manager);
    let chain = FilterChain {
        name: format!("inbound-{kind}"),
        filters: vec![manager],
        transport_socket: mutual_tls.then(tls::to_clients),
        ..Default::default()
    };
    let listener = Listener {
        name: name.to_owned(),
        address: Some(address(bound.ip(), bound.port())),
        filter_chains: vec![chain],
        ..Default::default()
    };
    Some(protos::encode(&listener))
}

/// The filters of a server's policies. If they are not derived, nothing is allowed.
fn authorization(cx: &Reads<'_>, policies: &PolicyIds) -> Vec<HttpFilter> {
    if policies.is_empty() {
        return Vec::new();
    }
    match cx.get::<GrpcChecks>(policies) {
        Some(checks) => checks.iter().flat_map(rbac::of_calls).collect(),
        None => rbac::of_calls(&rbac::closed()),
    }
}

/// The session affinity filter, for the session of a service or for those of routes. gRPC supports it with cookies only, and not in
/// every language.
fn session_filter(cx: &Reads<'_>, service: &Service) -> Option<HttpFilter> {
    let session = traffic::sessions::of(cx, &service.key).filter(|one| matches!(one, Session::Cookie { .. }));
    let in_routes = || route_filters::in_use(cx, RouteFilter::Sessions, true).then(StatefulSession::default);
    let filter = session.as_ref().map(sessions::filter).or_else(in_routes)?;
    Some(HttpFilter { is_optional: true, ..http_filter(sessions::FILTER, &filter) })
}

fn router() -> HttpFilter {
    http_filter("envoy.filters.http.router", &Router::default())
}

#[cfg(test)]
mod tests {
    use model::audience::Scope;

    use super::*;

    fn audience() -> GrpcAudience {
        GrpcAudience {
            scope: Arc::new(Scope {
                namespace: "shop".into(),
                sidecar: None,
                selected_rules: Vec::new(),
                cluster: "".into(),
                assigned: false,
            }),
            domain: "shop.svc.cluster.local".into(),
            inbound: [8080].into(),
            mutual_tls: [].into(),
            policies: [].into(),
        }
    }

    #[test]
    fn short_host_names_are_expanded() {
        for (host, want) in [
            ("pay", Some("pay.shop.svc.cluster.local")),
            ("pay.shop", Some("pay.shop.svc.cluster.local")),
            ("pay.shop.svc", Some("pay.shop.svc.cluster.local")),
            ("pay.other", None),
            ("pay.other.svc", None),
            ("pay.shop.svc.cluster.local", None),
            ("workshop", Some("workshop.shop.svc.cluster.local")),
            ("shop.shop", Some("shop.shop.svc.cluster.local")),
            ("a.workshop", None),
        ] {
            assert_eq!(expanded(host, &audience()).as_deref(), want, "{host}");
        }
    }

    #[test]
    fn servers_listen_on_ports_of_services() {
        let audience = audience();
        let listens = |bound: &str| server(&audience, &format!("{SERVER_PREFIX}{bound}"), bound, Vec::new).is_some();
        assert!(listens("0.0.0.0:8080") && listens("[::]:8080"));
        assert!(!listens("0.0.0.0:8081") && !listens("8080") && !listens("0.0.0.0:") && !listens(""));
    }
}
