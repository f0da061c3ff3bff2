//! The bootstrap of an Envoy beside an agent.

use std::net::SocketAddr;

use serde_json::{Value, json};
use test_harness::run::{Envoy, Node, Protocol};

/// The bootstrap of an Envoy beside an agent with this SDS server. It connects to the control plane over plaintext.
pub fn bootstrap(mut node: Node, protocol: Protocol, xds: SocketAddr, sds: SocketAddr) -> Value {
    // Agents report their version. A proxy without one is treated as having no certificates.
    node.metadata["ISTIO_VERSION"] = "1.28.0".into();
    let mut bootstrap = Envoy::bootstrap(&node, protocol, xds);
    let clusters = &mut bootstrap["static_resources"]["clusters"];
    // A cluster like that of the control plane, with another name and address.
    let mut cluster = clusters[0].clone();
    cluster["name"] = "sds-grpc".into();
    cluster["load_assignment"] = json!({
        "cluster_name": "sds-grpc",
        "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": {
            "socket_address": { "address": sds.ip().to_string(), "port_value": sds.port() } } } }] }],
    });
    *clusters = json!([clusters[0], cluster]);
    bootstrap
}

/// The same, over TLS with the workload's certificate. `istiod` is the name of the control plane in its certificate.
pub fn over_tls(mut bootstrap: Value, istiod: &str) -> Value {
    let secret = |name: &str| {
        json!({ "name": name, "sds_config": { "resource_api_version": "V3", "api_config_source": {
            "api_type": "GRPC", "transport_api_version": "V3",
            "grpc_services": [{ "envoy_grpc": { "cluster_name": "sds-grpc" } }] } } })
    };
    let kind = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    bootstrap["static_resources"]["clusters"][0]["transport_socket"] = json!({
        "name": "envoy.transport_sockets.tls",
        "typed_config": { "@type": kind, "sni": istiod, "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificate_sds_secret_configs": [secret("default")],
            "combined_validation_context": {
                "default_validation_context": {
                    "match_typed_subject_alt_names": [{ "san_type": "DNS", "matcher": { "exact": istiod } }] },
                "validation_context_sds_secret_config": secret("ROOTCA"),
            },
        } },
    });
    bootstrap
}
