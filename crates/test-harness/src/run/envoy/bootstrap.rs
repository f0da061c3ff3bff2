//! The bootstrap configuration of an Envoy.

use serde_json::{Value, json};

use super::{Node, Protocol, XdsAddress};

pub(super) fn bootstrap(node: &Node, protocol: Protocol, xds: &XdsAddress) -> Value {
    let api_type = match protocol {
        Protocol::Sotw => "GRPC",
        Protocol::Delta => "DELTA_GRPC",
    };
    let address = match xds {
        XdsAddress::Tcp(address) => json!({ "socket_address": {
            "address": address.ip().to_string(), "port_value": address.port() } }),
        XdsAddress::Unix(path) => json!({ "pipe": { "path": path } }),
    };
    json!({
        "node": { "id": node.id, "cluster": "mesh", "metadata": node.metadata, "locality": node.locality },
        "admin": { "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } } },
        "dynamic_resources": {
            "lds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
            "cds_config": { "ads": {}, "resource_api_version": "V3", "initial_fetch_timeout": "0s" },
            "ads_config": {
                "api_type": api_type,
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{ "envoy_grpc": {
                    "cluster_name": "xds-grpc",
                    // The default backoff of up to 30 seconds is too long for a demo.
                    "retry_policy": { "retry_back_off": { "base_interval": "0.05s", "max_interval": "0.5s" } },
                } }],
            },
        },
        "static_resources": { "clusters": [{
            "name": "xds-grpc",
            "type": "STATIC",
            "connect_timeout": "1s",
            "load_assignment": { "cluster_name": "xds-grpc", "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": address } }] }] },
            "typed_extension_protocol_options": { "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": { "http2_protocol_options": {} },
            } },
        }] },
    })
}
