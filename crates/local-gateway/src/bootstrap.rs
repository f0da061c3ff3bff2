//! The bootstrap of a gateway's Envoy.

use std::net::IpAddr;
use std::path::Path;

use config::MAX_PROGRAM_SIZE;
use serde_json::{Map, Value, json};

use crate::Xds;
use crate::exchange::Settings;
use crate::gateway::Gateway;
use crate::mesh::Member;
use crate::parameters::Tuning;

/// The proxy of a Gateway.
pub(crate) struct Proxy<'a> {
    pub(crate) gateway: &'a Gateway,
    /// The addresses that it binds; empty for all.
    pub(crate) addresses: &'a [IpAddr],
    /// Its own address.
    pub(crate) ip: IpAddr,
    /// The Unix socket of the admin interface.
    pub(crate) admin: &'a Path,
    /// The name of the machine.
    pub(crate) machine: &'a str,
    /// The number of restarts because of lost ports.
    pub(crate) restarts: u32,
    pub(crate) tuning: &'a Tuning,
    /// Its identity in the mesh.
    pub(crate) member: Option<&'a Member>,
}

/// The bootstrap, as JSON.
pub(crate) fn bootstrap(proxy: &Proxy<'_>, settings: &Settings) -> Value {
    let source = json!({"ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3"});
    json!({
        "node": node(proxy, settings),
        "admin": {"address": {"pipe": {"path": proxy.admin, "mode": 0o600}}},
        "layered_runtime": {"layers": [
            {"name": "static", "static_layer": runtime(proxy)},
            {"name": "admin", "admin_layer": {}},
        ]},
        "dynamic_resources": {
            "ads_config": {
                "api_type": "DELTA_GRPC",
                "transport_api_version": "V3",
                "set_node_on_first_message_only": true,
                "grpc_services": [{"envoy_grpc": {"cluster_name": "xds-grpc", "retry_policy": {
                    "retry_back_off": {"base_interval": "0.5s", "max_interval": "5s"},
                }}}],
            },
            "cds_config": source,
            "lds_config": source,
        },
        "static_resources": {"clusters": clusters(proxy, &settings.xds)},
    })
}

/// The values of the static layer.
fn runtime(proxy: &Proxy<'_>) -> Value {
    let mut values = Map::new();
    for (name, value) in &proxy.tuning.settings.runtime_values {
        // Envoy accepts booleans of feature flags only as such.
        let value = value.parse::<bool>().map_or_else(|_| Value::from(&**value), Value::from);
        values.insert(name.to_string(), value);
    }
    values.insert("re2.max_program_size.error_level".to_owned(), MAX_PROGRAM_SIZE.into());
    // Envoy does not know it: it restarts when its bootstrap changes.
    values.insert("rutter.restarts".to_owned(), proxy.restarts.into());
    values.into()
}

/// The node, with the metadata of a gateway in Kubernetes. The version of an agent shows that there is a certificate.
fn node(proxy: &Proxy<'_>, settings: &Settings) -> Value {
    let Proxy { gateway, addresses, ip, machine, .. } = proxy;
    let (workload, namespace) = (&gateway.workload, &gateway.id.namespace);
    let bound: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let name = format!("{workload}-{machine}");
    let mut node = json!({
        "id": format!("router~{ip}~{name}.{namespace}~{namespace}.svc.{}", settings.domain),
        "cluster": format!("{workload}.{namespace}"),
        "metadata": {
            "NAME": name,
            "NAMESPACE": namespace,
            "SERVICE_ACCOUNT": gateway.account,
            "WORKLOAD_NAME": workload,
            "NODE_NAME": machine,
            "CLUSTER_ID": settings.cluster,
            "LABELS": gateway.labels,
            "ANNOTATIONS": gateway.annotations,
            "BIND_ADDRESSES": bound.join(","),
            // Two Envoys of this machine with the same port would get the connections of each other.
            "EXCLUSIVE_PORTS": "true",
            "RE2_MAX_PROGRAM_SIZE": MAX_PROGRAM_SIZE.to_string(),
        },
    });
    if proxy.member.is_some() {
        node["metadata"]["ISTIO_VERSION"] = env!("CARGO_PKG_VERSION").into();
    }
    for (key, value) in proxy.tuning.metadata.iter() {
        // The own facts of the proxy stay.
        let entry = &mut node["metadata"][key];
        if entry.is_null() {
            *entry = value.as_str().into();
        }
    }
    node
}

/// The control plane, and the server of the certificate.
fn clusters(proxy: &Proxy<'_>, xds: &Xds) -> Vec<Value> {
    let unix = |path: &Path| json!({"pipe": {"path": path}});
    if let Some(member) = proxy.member {
        let sockets = [("xds-grpc", &member.xds), ("sds-grpc", &member.sds)];
        return sockets.map(|(name, path)| cluster(name, "STATIC", &unix(path))).into();
    }
    match xds {
        Xds::Unix(path) => vec![cluster("xds-grpc", "STATIC", &unix(path))],
        Xds::Tcp(host, port) => {
            vec![cluster("xds-grpc", "STRICT_DNS", &json!({"socket_address": {"address": host, "port_value": port}}))]
        }
        // Its proxies have an identity.
        Xds::Tls(_) => Vec::new(),
    }
}

fn cluster(name: &str, kind: &str, address: &Value) -> Value {
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({
        "name": name,
        "type": kind,
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
        "typed_extension_protocol_options": {options: {
            "@type": format!("type.googleapis.com/{options}"),
            "explicit_http_config": {"http2_protocol_options": {
                "connection_keepalive": {"interval": "30s", "timeout": "5s"},
            }},
        }},
    })
}
