//! The bootstrap of gRPC applications that use xDS without a proxy.

use std::path::Path;

use serde_json::{Value, json};

/// The name of a server listener: gRPC replaces `%s` by the address.
const LISTENER_TEMPLATE: &str = "xds.istio.io/grpc/lds/inbound/%s";
/// The interval at which gRPC reloads certificates.
const REFRESH: &str = "900s";

/// The bootstrap of an application with this node that connects to a server (`HOST:PORT`, or `unix:///PATH`). With a directory of
/// certificates, it has a provider of certificates, `default`.
#[must_use]
pub fn grpc(node: Value, server: &str, certificates: Option<&Path>) -> Value {
    let mut bootstrap = json!({
        "xds_servers": [{
            "server_uri": server,
            "channel_creds": [{"type": "insecure"}],
            "server_features": ["xds_v3"],
        }],
        "node": node,
        "server_listener_resource_name_template": LISTENER_TEMPLATE,
    });
    if let Some(directory) = certificates {
        let config = grpc_certificates(directory);
        bootstrap["certificate_providers"] = json!({"default": {"plugin_name": "file_watcher", "config": config}});
    }
    bootstrap
}

/// The files of a directory of certificates, as gRPC's `file_watcher` and `tls` credentials take them.
#[must_use]
pub fn grpc_certificates(directory: &Path) -> Value {
    let file = |name: &str| directory.join(name).display().to_string();
    json!({
        "certificate_file": file("cert-chain.pem"),
        "private_key_file": file("key.pem"),
        "ca_certificate_file": file("root-cert.pem"),
        "refresh_interval": REFRESH,
    })
}
