//! Gateways, routes and ListenerSets, as JSON.

use anyhow::Result;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

use crate::objects::Size;

/// The Gateway's group and version.
const API: &str = "gateway.networking.k8s.io/v1";
/// The Gateway's namespace, which is that of its proxy.
pub(crate) const NAMESPACE: &str = "istio-system";
/// The Gateway's name.
pub(crate) const GATEWAY: &str = "edge";
/// The host of a route that is measured alone.
const ALONE: &str = "alone";

/// The parent of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Parent {
    /// The Gateway.
    Gateway,
    /// The ListenerSet of the route's service.
    Set,
}

/// The Gateway: one listener for HTTP, to which all routes and ListenerSets may attach.
pub(crate) fn gateway() -> Value {
    json!({
        "apiVersion": API,
        "kind": "Gateway",
        "metadata": {"name": GATEWAY, "namespace": NAMESPACE},
        "spec": {
            "gatewayClassName": "istio",
            "allowedListeners": {"namespaces": {"from": "All"}},
            "listeners": [{
                "name": "http", "port": 80, "protocol": "HTTP",
                "allowedRoutes": {"namespaces": {"from": "All"}},
            }],
        },
    })
}

/// The host of a service's routes.
fn host(service: usize) -> String {
    format!("svc-{service}.example.com")
}

/// A route of a service. Several routes of one service share its host. A later generation differs in what a user would change.
pub(crate) fn route(size: Size, parent: Parent, service: usize, number: usize, generation: usize) -> Value {
    let parent = match parent {
        Parent::Gateway => json!({"name": GATEWAY, "namespace": NAMESPACE}),
        Parent::Set => {
            json!({"group": "gateway.networking.k8s.io", "kind": "ListenerSet", "name": format!("set-{service}")})
        }
    };
    let metadata = json!({"name": format!("route-{service}-{number}"), "namespace": size.namespace(service)});
    let rule = rule(&format!("svc-{service}"), &format!("/{number}/{generation}"));
    object("HTTPRoute", &metadata, &json!({"parentRefs": [parent], "hostnames": [host(service)], "rules": [rule]}))
}

/// A route of a host of its own, whose arrival is measured.
pub(crate) fn alone(size: Size, number: usize) -> Value {
    let metadata = json!({"name": format!("{ALONE}-{number}"), "namespace": size.namespace(0)});
    let parent = json!({"name": GATEWAY, "namespace": NAMESPACE});
    let rule = rule("svc-0", "/");
    object("HTTPRoute", &metadata, &json!({"parentRefs": [parent], "hostnames": [host_alone(number)], "rules": [rule]}))
}

/// The host of a route of [`alone`].
pub(crate) fn host_alone(number: usize) -> String {
    format!("{ALONE}-{number}.example.com")
}

fn rule(service: &str, path: &str) -> Value {
    json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": [{"name": service, "port": 80}]})
}

fn object(kind: &str, metadata: &Value, spec: &Value) -> Value {
    json!({"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec})
}

/// A ListenerSet with a listener for HTTPS of the host of a service.
pub(crate) fn set(size: Size, service: usize) -> Value {
    let metadata = json!({"name": format!("set-{service}"), "namespace": size.namespace(service)});
    let tls = json!({"mode": "Terminate", "certificateRefs": [{"name": "cert"}]});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "hostname": host(service), "tls": tls});
    let parent = json!({"name": GATEWAY, "namespace": NAMESPACE});
    object("ListenerSet", &metadata, &json!({"parentRef": parent, "listeners": [listener]}))
}

/// The certificate of each namespace.
pub(crate) fn certificates(size: Size) -> Result<Vec<Value>> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["*.example.com".to_owned()])?.self_signed(&key)?;
    let data = json!({"tls.crt": certificate.pem(), "tls.key": key.serialize_pem()});
    let secret = |number: usize| {
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "cert", "namespace": size.namespace(number)},
            "type": "kubernetes.io/tls",
            "stringData": data,
        })
    };
    Ok((0..size.namespaces).map(secret).collect())
}
