//! The generated bootstrap.

mod clusters;
mod listeners;
mod plan;
mod runtime;
mod services;
mod stats;

use serde_json::{Map, Value, json};

use crate::diagnostic::Diagnostics;
use crate::node::Node;
pub(crate) use clusters::FILES_SOCKET;
pub(crate) use plan::{Plan, TracerKind};

/// The longest pause of Envoy after its xDS stream has broken. Envoy's own default is 30 s: with it, a proxy may be without a
/// control plane for so long after an outage. The agent, which the stream ends at, has its own limits.
const RECONNECT: &str = "5s";

/// The build of Envoy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Flavor {
    /// Unmodified Envoy.
    #[default]
    Stock,
    /// Istio's Envoy, with its extensions.
    Istio,
}

/// Generates the bootstrap of the node's proxy, as JSON. Settings without effect give diagnostics.
#[must_use]
pub fn generate(node: &Node, flavor: Flavor, diagnostics: &mut Diagnostics) -> Value {
    let plan = Plan::new(node, flavor, diagnostics);
    let mut bootstrap = json!({
        "application_log_config": {"log_format": log_format(node)},
        "node": {
            "id": node.id,
            "cluster": node.cluster,
            "locality": node.locality.to_json(),
            "metadata": node.metadata,
        },
        "layered_runtime": {"layers": [
            {"name": "global config", "static_layer": plan.runtime},
            {"name": "admin", "admin_layer": {}},
        ]},
        "bootstrap_extensions": extensions(&plan),
        "stats_config": plan.stats.config(plan.discovers_metadata),
        "admin": {
            "access_log": [{"name": "envoy.access_loggers.file", "typed_config": {
                "@type": url("envoy.extensions.access_loggers.file.v3.FileAccessLog"), "path": "/dev/null",
            }}],
            "profile_path": "/var/lib/istio/data/envoy.prof",
            "address": socket(plan.localhost, node.settings.proxy_admin_port),
        },
        "dynamic_resources": dynamic_resources(&plan),
        "static_resources": {"clusters": clusters::clusters(node, &plan), "listeners": listeners::listeners(node, &plan)},
        "overload_manager": {"resource_monitors": [{
            "name": "envoy.resource_monitors.global_downstream_max_connections",
            "typed_config": {
                "@type": url("envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"),
                "max_active_downstream_connections": plan.max_connections,
            },
        }]},
        "deferred_stat_options": {"enable_deferred_creation_stats": true},
    });
    let optional = [
        ("stats_flush_interval", plan.stats.flush_interval.map(|interval| seconds(interval).into())),
        ("stats_eviction_interval", plan.stats.eviction_interval.map(|interval| seconds(interval).into())),
        ("tracing", tracing(node, &plan)),
        ("stats_sinks", sinks(&plan)),
        ("cluster_manager", cluster_manager(node, &plan)),
    ];
    if let Some(fields) = bootstrap.as_object_mut() {
        fields.extend(optional.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    }
    bootstrap
}

/// The type URL of a message.
fn url(name: &str) -> String {
    format!("type.googleapis.com/{name}")
}

/// An address of TCP.
fn socket(address: &str, port: impl Into<Value>) -> Value {
    json!({"socket_address": {"protocol": "TCP", "address": address, "port_value": port.into()}})
}

/// A duration in the JSON form of protobuf.
pub(crate) fn seconds(duration: std::time::Duration) -> String {
    match duration.subsec_nanos() {
        0 => format!("{}s", duration.as_secs()),
        nanos => format!("{}.{nanos:09}s", duration.as_secs()),
    }
}

fn log_format(node: &Node) -> Value {
    if node.options.log_as_json {
        return json!({"json_format": {
            "time": "%Y-%m-%dT%T.%fZ", "level": "%l", "scope": "envoy %n", "msg": "%j", "caller": "%g:%#", "thread": "%t",
        }});
    }
    json!({"text_format": "%Y-%m-%dT%T.%fZ\t%l\tenvoy %n %g:%#\t%v\tthread=%t"})
}

fn extensions(plan: &Plan) -> Vec<Value> {
    let discovery = plan.discovers_metadata.then(|| {
        json!({"name": "metadata_discovery", "typed_config": {
            "@type": url("udpa.type.v1.TypedStruct"),
            "type_url": url("istio.workload.BootstrapExtension"),
            "value": {"config_source": {"ads": {}}},
        }})
    });
    let internal = json!({"name": "envoy.bootstrap.internal_listener", "typed_config": {
        "@type": url("envoy.extensions.bootstrap.internal_listener.v3.InternalListener"), "buffer_size_kb": 64,
    }});
    discovery.into_iter().chain([internal]).collect()
}

fn dynamic_resources(plan: &Plan) -> Value {
    let source = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    json!({
        "lds_config": source,
        "cds_config": source,
        "ads_config": {
            "api_type": plan.xds_type,
            "set_node_on_first_message_only": true,
            "transport_api_version": "V3",
            "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc", "retry_policy": {
                "retry_back_off": {"base_interval": "0.5s", "max_interval": RECONNECT},
            }}}],
        },
    })
}

fn tracing(node: &Node, plan: &Plan) -> Option<Value> {
    let (name, mut config) = match plan.tracer.as_ref()?.kind {
        TracerKind::Zipkin => (
            "zipkin",
            json!({
                "@type": url("envoy.config.trace.v3.ZipkinConfig"),
                "collector_cluster": "zipkin",
                "collector_endpoint": "/api/v2/spans",
                "collector_endpoint_version": "HTTP_JSON",
                "trace_id_128bit": true,
                "shared_span_context": false,
            }),
        ),
        TracerKind::Datadog => (
            "datadog",
            json!({
                "@type": url("envoy.config.trace.v3.DatadogConfig"),
                "collector_cluster": "datadog_agent",
            }),
        ),
    };
    if name == "datadog" {
        config["service_name"] = node.cluster.as_str().into();
    }
    Some(json!({"http": {"name": format!("envoy.tracers.{name}"), "typed_config": config}}))
}

fn sinks(plan: &Plan) -> Option<Value> {
    let metrics = plan.metrics_service.as_ref().map(|_| {
        json!({"name": "envoy.stat_sinks.metrics_service", "typed_config": {
            "@type": url("envoy.config.metrics.v3.MetricsServiceConfig"),
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": "envoy_metrics_service"}},
        }})
    });
    let statsd = plan.statsd.as_ref().map(|address| {
        json!({"name": "envoy.stat_sinks.statsd", "typed_config": {
            "@type": url("envoy.config.metrics.v3.StatsdSink"), "address": {"socket_address": address},
        }})
    });
    let sinks: Vec<Value> = metrics.into_iter().chain(statsd).collect();
    (!sinks.is_empty()).then(|| sinks.into())
}

fn cluster_manager(node: &Node, plan: &Plan) -> Option<Value> {
    let path = node.text("OUTLIER_LOG_PATH");
    let fields = [
        ("local_cluster_name", plan.self_discovery.then(|| json!("local_cluster"))),
        ("outlier_detection", (!path.is_empty()).then(|| json!({"event_log_path": path}))),
        ("load_stats_config", plan.load_stats.clone()),
    ];
    let mut set: Map<String, Value> =
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
    if set.is_empty() {
        return None;
    }
    set.insert("enable_deferred_cluster_creation".to_owned(), true.into());
    Some(set.into())
}
