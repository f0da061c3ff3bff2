//! The static listeners: metrics and readiness.

use serde_json::{Value, json};

use super::plan::Plan;
use super::services::secret;
use super::{socket, url};
use crate::node::Node;

/// The path of metrics.
const METRICS: &str = "/stats/prometheus";
/// Content types of metrics, which are compressed.
const METRICS_TYPES: [&str; 4] = [
    "text/plain",
    "application/vnd.google.protobuf",
    "application/openmetrics-text",
    "application/openmetrics-protobuf",
];

/// The route of a listener: statistics prefix, and the cluster of each path.
type Paths = (&'static str, &'static [(&'static str, &'static str)]);

pub(super) fn listeners(node: &Node, plan: &Plan) -> Vec<Value> {
    let options = &node.options;
    let everywhere = (plan.wildcard, plan.additional.map(|(_, wildcard)| wildcard));
    let here = (plan.localhost, plan.additional.map(|(localhost, _)| localhost));
    let compressors = if plan.compress_stats { compressors() } else { Vec::new() };
    let metrics = manager(("stats", &[(METRICS, "prometheus_stats")]), compressors);
    let mut all = vec![listener(
        if plan.local_metrics { here } else { everywhere },
        options.prometheus_port,
        json!({"filters": [metrics]}),
    )];
    let secure: [(u16, Paths); 2] = [
        (options.secure_metrics_port, ("secure_stats", &[(METRICS, "prometheus_stats")])),
        (options.secure_merged_metrics_port, ("secure_merged_stats", &[(METRICS, "agent"), ("/metrics", "agent")])),
    ];
    for (port, paths) in secure.into_iter().filter(|(port, _)| *port != 0) {
        let mut listener = listener((plan.wildcard, None), port, mutual_tls(manager(paths, Vec::new())));
        listener["listener_filters"] = json!([{"name": "envoy.filters.listener.tls_inspector", "typed_config": {
            "@type": url("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"),
        }}]);
        all.push(listener);
    }
    let ready = manager(("agent", &[("/healthz/ready", "agent")]), Vec::new());
    let mut status = listener(everywhere, options.status_port, json!({"filters": [ready]}));
    if options.status_proxy_protocol {
        status["listener_filters"] = json!([{"name": "envoy.filters.listener.proxy_protocol", "typed_config": {
            "@type": url("envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol"),
            "allow_requests_without_proxy_protocol": true,
        }}]);
    }
    all.push(status);
    all
}

/// A listener that works even when the proxy is overloaded. Its second address is of the other IP family.
fn listener((address, additional): (&str, Option<&str>), port: u16, filter_chain: Value) -> Value {
    let mut listener = json!({
        "name": format!("{address}_{port}"),
        "address": socket(address, port),
        "ignore_global_conn_limit": true,
        "bypass_overload_manager": true,
        "filter_chains": [filter_chain],
    });
    if let Some(additional) = additional {
        listener["additional_addresses"] = json!([{"address": socket(additional, port)}]);
    }
    listener
}

/// An HTTP connection manager that routes paths to clusters.
fn manager((prefix, paths): Paths, filters: Vec<Value>) -> Value {
    let routes: Vec<Value> =
        paths.iter().map(|(path, cluster)| json!({"match": {"prefix": path}, "route": {"cluster": cluster}})).collect();
    let router = json!({"name": "envoy.filters.http.router", "typed_config": {
        "@type": url("envoy.extensions.filters.http.router.v3.Router"),
    }});
    json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": {
        "@type": url("envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "codec_type": "AUTO",
        "stat_prefix": prefix,
        "route_config": {"virtual_hosts": [{"name": "backend", "domains": ["*"], "routes": routes}]},
        "http_filters": filters.into_iter().chain([router]).collect::<Vec<Value>>(),
    }})
}

fn compressors() -> Vec<Value> {
    let libraries = [("brotli", "Brotli"), ("zstd", "Zstd"), ("gzip", "Gzip")];
    let compressor = |(name, message): (&str, &str)| {
        json!({"name": format!("envoy.filters.http.compressor.{name}"), "typed_config": {
            "@type": url("envoy.extensions.filters.http.compressor.v3.Compressor"),
            "compressor_library": {
                "name": format!("stats_{name}"),
                "typed_config": {"@type": url(&format!("envoy.extensions.compression.{name}.compressor.v3.{message}"))},
            },
            "response_direction_config": {"common_config": {"content_type": METRICS_TYPES}},
        }})
    };
    libraries.map(compressor).into()
}

/// A filter chain for clients with a certificate of the mesh.
fn mutual_tls(manager: Value) -> Value {
    let (certificate, root) = (metrics_secret("default"), metrics_secret("ROOTCA"));
    json!({
        "filter_chain_match": {"transport_protocol": "tls"},
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": {
            "@type": url("envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
            "require_client_certificate": true,
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [certificate],
                "combined_validation_context": {
                    "default_validation_context": {},
                    "validation_context_sds_secret_config": root,
                },
            },
        }},
        "filters": [manager],
    })
}

/// A secret whose absence does not delay the listener, and with it the start, for longer than Envoy's default.
fn metrics_secret(name: &str) -> Value {
    let mut secret = secret(name);
    if let Some(source) = secret["sds_config"].as_object_mut() {
        source.remove("initial_fetch_timeout");
    }
    secret
}
