//! The static clusters.

use serde_json::{Map, Value, json};

use super::plan::{Plan, TracerKind};
use super::services::Service;
use super::{socket, url};
use crate::node::Node;

/// The folder of the Unix socket from which Envoy gets its certificate.
const IDENTITY_FOLDER: &str = "./var/run/secrets/workload-spiffe-uds";
/// The Unix socket from which Envoy gets secrets in files, if another server has its certificate.
pub(crate) const FILES_SOCKET: &str = "./var/run/secrets/credential-uds/files-socket";

pub(super) fn clusters(node: &Node, plan: &Plan) -> Vec<Value> {
    let local = |name: &str, port: i32| {
        let mut cluster = cluster(name, "STATIC", &socket(plan.localhost, port));
        cluster["connect_timeout"] = "0.250s".into();
        cluster
    };
    let mut all = vec![
        local("prometheus_stats", node.settings.proxy_admin_port),
        local("agent", node.settings.status_port),
        unix("sds-grpc", &format!("{IDENTITY_FOLDER}/{}", node.options.socket_file)),
    ];
    if node.metadata.contains_key("file-credential") {
        all.push(unix("sds-files-grpc", FILES_SOCKET));
    }
    all.push(xds(node));
    if let Some(tracer) = &plan.tracer {
        let name = match tracer.kind {
            TracerKind::Zipkin => "zipkin",
            TracerKind::Datadog => "datadog_agent",
        };
        let mut cluster = remote(name, &tracer.service, plan, false);
        if tracer.kind == TracerKind::Zipkin {
            cluster["dns_refresh_rate"] = "30s".into();
        }
        all.push(cluster);
    }
    let services =
        [("envoy_metrics_service", &plan.metrics_service), ("envoy_accesslog_service", &plan.access_log_service)];
    all.extend(services.into_iter().filter_map(|(name, service)| Some(remote(name, service.as_ref()?, plan, true))));
    all.extend(plan.self_discovery.then(local_cluster));
    all
}

fn cluster(name: &str, kind: &str, address: &Value) -> Value {
    json!({
        "name": name,
        // Without the semicolon, the tag of the cluster would not be found.
        "alt_stat_name": format!("{name};"),
        "type": kind,
        "connect_timeout": "1s",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    })
}

/// Connections with HTTP/2, with common options.
fn http2(common: &Map<String, Value>) -> Value {
    let name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    let mut options = json!({"@type": url(name), "explicit_http_config": {"http2_protocol_options": {}}});
    if !common.is_empty() {
        options["common_http_protocol_options"] = json!(common);
    }
    json!({ name: options })
}

/// A server at a Unix socket.
fn unix(name: &str, path: &str) -> Value {
    let mut cluster = cluster(name, "STATIC", &json!({"pipe": {"path": path}}));
    cluster["typed_extension_protocol_options"] = http2(&Map::new());
    cluster
}

/// The control plane, through the agent. Each stream has its own connection.
fn xds(node: &Node) -> Value {
    let mut cluster = unix("xds-grpc", &format!("{}/XDS", node.settings.config_path));
    let threshold = |priority: &str| {
        json!({
            "priority": priority, "max_connections": 100_000, "max_pending_requests": 100_000, "max_requests": 100_000,
        })
    };
    cluster["circuit_breakers"] = json!({"thresholds": [threshold("DEFAULT"), threshold("HIGH")]});
    cluster["upstream_connection_options"] = json!({"tcp_keepalive": {"keepalive_time": 300}});
    let once = [("max_requests_per_connection".to_owned(), json!(1))].into_iter().collect();
    cluster["typed_extension_protocol_options"] = http2(&once);
    cluster
}

fn remote(name: &str, service: &Service, plan: &Plan, is_grpc: bool) -> Value {
    let mut cluster = cluster(name, "STRICT_DNS", &json!({"socket_address": service.address}));
    cluster["respect_dns_ttl"] = true.into();
    cluster["dns_lookup_family"] = plan.lookup_family.into();
    let options = is_grpc.then(|| http2(&Map::new()));
    for (field, value) in [
        ("typed_extension_protocol_options", &options),
        ("transport_socket", &service.tls),
        ("upstream_connection_options", &service.keepalive),
    ] {
        if let Some(value) = value {
            cluster[field] = value.clone();
        }
    }
    cluster
}

/// The cluster of the workload's own endpoints, from which Envoy knows its zone's share.
fn local_cluster() -> Value {
    json!({
        "name": "local_cluster",
        "alt_stat_name": "local_cluster;",
        "type": "EDS",
        "connect_timeout": "1s",
        "load_balancing_policy": {"policies": [{"typed_extension_config": {
            "name": "envoy.load_balancing_policies.least_request",
            "typed_config": {
                "@type": url("envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest"),
                "locality_lb_config": {"zone_aware_lb_config": {"min_cluster_size": "1"}},
            },
        }}]},
        "eds_cluster_config": {
            "eds_config": {"ads": {}, "resource_api_version": "V3"},
            "service_name": "local_cluster",
        },
    })
}
