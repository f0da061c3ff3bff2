//! Default routes: to a service, to the application, passthrough and black hole.

use config::MeshConfig;
use protos::envoy::config::route::v3::route::Action;
use protos::envoy::config::route::v3::route_action::{ClusterSpecifier, HashPolicy, MaxStreamDuration};
use protos::envoy::config::route::v3::{
    Decorator, DirectResponseAction, Route, RouteAction, RouteConfiguration, VirtualHost,
};

use super::{matching, retry};
use crate::parts::{duration, seconds};

/// The name of a route that says nothing about itself.
const DEFAULT_NAME: &str = "default";
/// The name of all that leads requests to unknown hosts to where their names do.
const ANYWHERE: &str = "allow_any_dynamic_dns";
/// The response to requests for unknown hosts.
const BAD_GATEWAY: u32 = 502;

/// The route of a service: everything to its cluster.
pub(crate) fn outbound(host: &str, port: u16, hash: Option<&HashPolicy>, mesh: &MeshConfig) -> Route {
    let mut action = to_cluster(format!("outbound|{port}||{host}"));
    action.retry_policy = retry::policy(mesh.default_http_retry_policy.as_ref(), false);
    action.hash_policy = hash.cloned().into_iter().collect();
    set_timeout(&mut action, None);
    named(DEFAULT_NAME, &format!("{host}:{port}/*"), action)
}

/// The table of an inbound chain: everything to the application.
///
/// A request that was reset before it reached the application is tried again, but not with gRPC, whose streams that does
/// not suit.
pub(crate) fn inbound_table(cluster: &str, port: u16, operation: &str, grpc: bool) -> RouteConfiguration {
    let mut action = to_cluster(cluster.to_owned());
    action.timeout = Some(seconds(0));
    action.max_stream_duration = Some(MaxStreamDuration {
        max_stream_duration: Some(seconds(0)),
        grpc_timeout_header_max: Some(seconds(0)),
        ..Default::default()
    });
    action.retry_policy = (!grpc).then(retry::inbound);
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

/// Requests to unknown hosts pass.
pub(crate) fn allow_any(cluster: &str, mesh: &MeshConfig) -> Route {
    let mut action = to_cluster(cluster.to_owned());
    set_timeout(&mut action, None);
    action.append_x_forwarded_host = appends_forwarded_host(mesh);
    Route {
        decorator: None,
        ..named("allow_any", "", action)
    }
}

/// Requests to unknown hosts go to where their names lead.
pub(crate) fn dynamic_forward_proxy(mesh: &MeshConfig) -> Route {
    let mut action = to_cluster("AllowAnyDynamicDNSCluster".to_owned());
    set_timeout(&mut action, None);
    action.append_x_forwarded_host = appends_forwarded_host(mesh);
    Route {
        decorator: None,
        ..named(ANYWHERE, "", action)
    }
}

/// The table of a chain for requests to unknown hosts: everything to where its name leads.
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

/// Requests to unknown hosts are refused.
pub(crate) fn block_all() -> Route {
    let response = DirectResponseAction {
        status: BAD_GATEWAY,
        ..Default::default()
    };
    Route {
        name: "block_all".to_owned(),
        r#match: Some(matching::everything()),
        action: Some(Action::DirectResponse(response)),
        ..Default::default()
    }
}

/// Sets how long a response may take; absent means as long as it does. Deadlines of gRPC clients count, too.
// The newer max_stream_duration cuts off streams that this lets live.
#[allow(deprecated)]
pub(crate) fn set_timeout(action: &mut RouteAction, timeout: Option<std::time::Duration>) {
    let timeout = duration(timeout.unwrap_or_default());
    action.max_grpc_timeout = Some(timeout);
    action.timeout = Some(timeout);
}

/// Whether requests tell in a header how often they were tried.
pub(crate) fn counts_attempts(mesh: &MeshConfig) -> bool {
    let switch = mesh
        .default_config
        .proxy_headers
        .as_ref()
        .and_then(|headers| headers.attempt_count.as_ref());
    !switch.and_then(|switch| switch.disabled).unwrap_or(false)
}

/// Whether the host that was rewritten is kept in `x-forwarded-host`.
pub(crate) fn appends_forwarded_host(mesh: &MeshConfig) -> bool {
    let switch = mesh
        .default_config
        .proxy_headers
        .as_ref()
        .and_then(|headers| headers.x_forwarded_host.as_ref());
    switch.and_then(|switch| switch.enabled).unwrap_or(false)
}

fn to_cluster(cluster: String) -> RouteAction {
    RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        ..Default::default()
    }
}

fn named(name: &str, operation: &str, action: RouteAction) -> Route {
    Route {
        name: name.to_owned(),
        r#match: Some(matching::everything()),
        decorator: Some(Decorator {
            operation: operation.to_owned(),
            propagate: None,
        }),
        action: Some(Action::Route(action)),
        ..Default::default()
    }
}
