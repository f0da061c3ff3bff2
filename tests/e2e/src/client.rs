//! Another Envoy as a client, for what the small clients of the tests do not speak: HTTP/3, and many connections over TLS.

use serde_json::{Value, json};
use test_harness::run::{Envoy, Result, free_port};

use crate::envoy_binary;

/// The protocol with which the client calls a server. The server must have a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Upstream {
    /// HTTP/3.
    Http3,
    /// HTTP/1.1 over TLS, with a new connection after this number of requests.
    Tls(u32),
}

/// An Envoy that accepts plaintext HTTP/1.1 and HTTP/2, and forwards all requests to one server of this machine.
#[derive(Debug)]
pub struct Client {
    /// Its proxy.
    pub envoy: Envoy,
    /// The port that it listens on.
    pub port: u16,
}

impl Client {
    /// Starts a client of the server at this port, with this SNI. It trusts these root certificates.
    pub async fn start(upstream: Upstream, server: u16, sni: &str, roots: &str) -> Result<Client> {
        let port = free_port();
        let bootstrap = json!({
            "admin": {"address": address("127.0.0.1", 0)},
            "static_resources": {
                "listeners": [listener(port)],
                "clusters": [cluster(upstream, server, sni, roots)],
            },
        });
        Ok(Client { envoy: Envoy::start_with(envoy_binary(), &bootstrap).await?, port })
    }
}

fn address(ip: &str, port: u16) -> Value {
    json!({"socket_address": {"address": ip, "port_value": port}})
}

fn kind(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

fn listener(port: u16) -> Value {
    let manager = json!({
        "@type": kind("filters.network.http_connection_manager.v3.HttpConnectionManager"),
        "stat_prefix": "client",
        // The server compares the scheme with its connection.
        "scheme_header_transformation": {"scheme_to_overwrite": "https"},
        "route_config": {"virtual_hosts": [{
            "name": "all",
            "domains": ["*"],
            "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "server", "timeout": "0s"}}],
        }]},
        "http_filters": [{
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": kind("filters.http.router.v3.Router")},
        }],
    });
    json!({
        "name": "plain",
        "address": address("127.0.0.1", port),
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": manager,
        }]}],
    })
}

fn cluster(upstream: Upstream, server: u16, sni: &str, roots: &str) -> Value {
    let mut context = json!({
        "sni": sni,
        "common_tls_context": {"validation_context": {"trusted_ca": {"inline_string": roots}}},
    });
    let mut options = json!({"@type": kind("upstreams.http.v3.HttpProtocolOptions")});
    let socket = match upstream {
        Upstream::Http3 => {
            options["explicit_http_config"] = json!({"http3_protocol_options": {}});
            json!({
                "name": "envoy.transport_sockets.quic",
                "typed_config": {
                    "@type": kind("transport_sockets.quic.v3.QuicUpstreamTransport"),
                    "upstream_tls_context": context,
                },
            })
        }
        Upstream::Tls(requests) => {
            options["explicit_http_config"] = json!({"http_protocol_options": {}});
            options["common_http_protocol_options"] = json!({"max_requests_per_connection": requests});
            context["@type"] = kind("transport_sockets.tls.v3.UpstreamTlsContext").into();
            json!({"name": "envoy.transport_sockets.tls", "typed_config": context})
        }
    };
    json!({
        "name": "server",
        "type": "STATIC",
        "load_assignment": {"cluster_name": "server", "endpoints": [{"lb_endpoints": [{
            "endpoint": {"address": address("127.0.0.1", server)},
        }]}]},
        "transport_socket": socket,
        "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": options},
    })
}
