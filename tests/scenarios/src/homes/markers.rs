//! Objects that show how far a source has read.
//!
//! Each kind is watched separately and in order. After an edit, the marker of every kind that it touched is changed.
//! When the source has reported the markers, it has reported the edit.

use config::Kind;
use serde_json::{Value, json};

/// The name of every marker and of its namespace.
pub(super) const MARKER: &str = "scenario-marker";

/// The content of the marker of a kind, without its metadata; `None` if the kind has no marker yet.
pub(super) fn content(kind: Kind) -> Option<Value> {
    const HOST: &str = "marker.example.com";
    let port = json!({"number": 80, "name": "http", "protocol": "HTTP"});
    Some(match kind {
        Kind::Service => json!({"spec": {"clusterIP": "None", "ports": [{"name": "http", "port": 80}]}}),
        Kind::EndpointSlice => json!({"addressType": "IPv4", "endpoints": [], "ports": []}),
        Kind::Pod => json!({"spec": {"containers": [{"name": "none", "image": "none"}]}}),
        Kind::Node | Kind::Namespace | Kind::ServiceExport => json!({}),
        Kind::Ingress => json!({"spec": {"defaultBackend": {"service": {"name": "none", "port": {"number": 80}}}}}),
        Kind::IngressClass => json!({"spec": {"controller": "example.com/none"}}),
        Kind::VirtualService => {
            json!({"spec": {"hosts": [HOST], "http": [{"route": [{"destination": {"host": HOST}}]}]}})
        }
        Kind::ServiceEntry => json!({"spec": {"hosts": [HOST], "ports": [port], "resolution": "DNS"}}),
        Kind::DestinationRule => json!({"spec": {"host": HOST}}),
        Kind::Sidecar => json!({"spec": {"egress": [{"hosts": ["./*"]}]}}),
        Kind::Gateway => {
            json!({"spec": {"selector": {"app": MARKER}, "servers": [{"port": port, "hosts": ["*"]}]}})
        }
        Kind::KubeGateway => {
            let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
            json!({"spec": {"gatewayClassName": MARKER, "listeners": [listener]}})
        }
        Kind::EnvoyFilter => {
            let nothing = json!({
                "applyTo": "CLUSTER",
                "match": {"cluster": {"name": MARKER}},
                "patch": {"operation": "REMOVE"},
            });
            json!({"spec": {"workloadSelector": {"labels": {"app": MARKER}}, "configPatches": [nothing]}})
        }
        Kind::ProxyConfig => json!({"spec": {"selector": {"matchLabels": {"app": MARKER}}, "concurrency": 1}}),
        Kind::PeerAuthentication => json!({"spec": {"selector": {"matchLabels": {"app": MARKER}}}}),
        Kind::WorkloadEntry => json!({"spec": {"address": "192.0.2.1"}}),
        Kind::ServiceImport => json!({"spec": {"type": "Headless", "ports": [{"name": "http", "port": 80}]}}),
        _ => return None,
    })
}
