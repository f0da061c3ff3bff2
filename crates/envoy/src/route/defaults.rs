//! Default routes: to a service, to the application, passthrough and black hole.

use config::MeshConfig;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::route_action::{ClusterSpecifier, HashPolicy, MaxStreamDuration};
use protos::envoy::config::route::v3::{
    Decorator, DirectResponseAction, Route, RouteAction, RouteConfiguration, VirtualHost,
};

use super::{matching, retry};
use crate::parts::{duration, seconds};

/// The name of a route that has no name of its own.
const DEFAULT_NAME: &str = "default";
/// The name of the route and virtual host that forward requests for unknown hosts by DNS.
const ANYWHERE: &str = "allow_any_dynamic_dns";
/// The response to requests for unknown hosts.
const BAD_GATEWAY: u32 = 502;
/// The response to requests for a host of another listener.
const MISDIRECTED: u32 = 421;

/// The default route of a service, to its cluster.
pub(crate) fn outbound(host: &str, port: u16, hash: Option<&HashPolicy>, mesh: &MeshConfig) -> Route {
    let mut action = to_cluster(format!("outbound|{port}||{host}"));
    action.retry_policy = retry::policy(mesh.default_http_retry_policy.as_ref(), false);
    action.hash_policy = hash.cloned().into_iter().collect();
    set_timeout(&mut action, None);
    named(DEFAULT_NAME, &format!("{host}:{port}/*"), action)
}

/// The route table of an inbound chain, with one route to the application.
///
/// A request that was reset before it reached the application is retried. This does not suit gRPC streams, so `grpc`
/// disables it.
pub(crate) fn inbound_table(
    cluster: &str,
    port: u16,
    operation: &str,
    grpc: bool,
    mesh: &MeshConfig,
) -> RouteConfiguration {
    let mut action = to_cluster(cluster.to_owned());
    action.timeout = Some(seconds(0));
    action.max_stream_duration = Some(MaxStreamDuration {
        max_stream_duration: Some(seconds(0)),
        grpc_timeout_header_max: Some(seconds(0)),
        ..Default::default()
    });
    let asked = mesh.default_inbound_http_retry_policy.as_ref();
    action.retry_policy = if grpc { None } else { retry::inbound(asked) };
    let host = VirtualHost {
        name: format!("inbound|http|{port}"),
        domains: vec!["*".to_owned()],
        routes: vec![named(DEFAULT_NAME, operation, action)],
        ..Default::default()
    };
    RouteConfiguration {
        name: cluster.to_owned(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        ..Default::default()
    }
}

/// Forwards requests for unknown hosts.
pub(crate) fn allow_any(cluster: &str, mesh: &MeshConfig) -> Route {
    let mut action = to_cluster(cluster.to_owned());
    set_timeout(&mut action, None);
    action.append_x_forwarded_host = appends_forwarded_host(mesh);
    Route { decorator: None, ..named("allow_any", "", action) }
}

/// Forwards requests for unknown hosts to the addresses of their names.
pub(crate) fn dynamic_forward_proxy(mesh: &MeshConfig) -> Route {
    let mut action = to_cluster("AllowAnyDynamicDNSCluster".to_owned());
    set_timeout(&mut action, None);
    action.append_x_forwarded_host = appends_forwarded_host(mesh);
    Route { decorator: None, ..named(ANYWHERE, "", action) }
}

/// The route table of a chain that forwards all requests to the addresses of their hosts.
pub(crate) fn dynamic_forward_proxy_table(mesh: &MeshConfig) -> RouteConfiguration {
    let host = VirtualHost {
        name: ANYWHERE.to_owned(),
        domains: vec!["*".to_owned()],
        routes: vec![dynamic_forward_proxy(mesh)],
        include_request_attempt_count: counts_attempts(mesh),
        ..Default::default()
    };
    RouteConfiguration {
        name: ANYWHERE.to_owned(),
        virtual_hosts: vec![host],
        validate_clusters: Some(false),
        max_direct_response_body_size_bytes: Some(super::MAX_DIRECT_RESPONSE as u32),
        ignore_port_in_host_matching: true,
        ..Default::default()
    }
}

/// Rejects requests for unknown hosts.
pub(crate) fn block_all() -> Route {
    answer("block_all", BAD_GATEWAY)
}

/// Rejects requests over a connection that was opened for another listener. The client opens one for their host.
pub(crate) fn misdirected() -> Route {
    answer("misdirected", MISDIRECTED)
}

/// Answers all requests with a status.
fn answer(name: &str, status: u32) -> Route {
    let response = DirectResponseAction { status, ..Default::default() };
    Route {
        name: name.to_owned(),
        r#match: Some(matching::everything()),
        action: Some(Action::DirectResponse(response)),
        ..Default::default()
    }
}

/// Sets the timeout of a response; `None` means no timeout. Deadlines of gRPC clients apply too.
// The replacement, max_stream_duration, would also end streams that this timeout does not.
#[allow(deprecated)]
pub(crate) fn set_timeout(action: &mut RouteAction, timeout: Option<std::time::Duration>) {
    let timeout = duration(timeout.unwrap_or_default());
    action.max_grpc_timeout = Some(timeout);
    action.timeout = Some(timeout);
}

/// Whether requests have a header with the number of attempts.
pub(crate) fn counts_attempts(mesh: &MeshConfig) -> bool {
    let switch = mesh.default_config.proxy_headers.as_ref().and_then(|headers| headers.attempt_count.as_ref());
    !switch.and_then(|switch| switch.disabled).unwrap_or(false)
}

/// Whether the original host is kept in `x-forwarded-host` after a rewrite.
pub(crate) fn appends_forwarded_host(mesh: &MeshConfig) -> bool {
    let switch = mesh.default_config.proxy_headers.as_ref().and_then(|headers| headers.x_forwarded_host.as_ref());
    switch.and_then(|switch| switch.enabled).unwrap_or(false)
}

fn to_cluster(cluster: String) -> RouteAction {
    RouteAction { cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)), ..Default::default() }
}

fn named(name: &str, operation: &str, action: RouteAction) -> Route {
    Route {
        name: name.to_owned(),
        r#match: Some(matching::everything()),
        decorator: Some(Decorator { operation: operation.to_owned(), propagate: None }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}
