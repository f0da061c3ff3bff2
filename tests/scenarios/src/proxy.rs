//! Proxies as scenarios describe them.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use model::proxy::{Proxy, SecretRight};
use protos::envoy::config::core::v3::Node;
use serde_json::{Map, Value, json};

/// Parses a scenario's short description of a proxy, by way of a node message as Envoy sends it.
///
/// # Errors
/// A field has the wrong form, or the node is rejected.
pub fn parse(name: &str, yaml: &str) -> Result<Proxy> {
    let body = read(yaml)?;
    let text = |key: &str, default: &str| body[key].as_str().unwrap_or(default).to_owned();
    let namespace = text("namespace", "default");
    let ips: Vec<String> = match &body["ips"] {
        Value::Array(list) => list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
        _ => vec![text("ip", "10.1.0.1")],
    };
    let id = format!("{}~{}~{name}.{namespace}~{namespace}.svc.cluster.local", text("type", "sidecar"), ips[0]);
    let mut metadata = body["metadata"].as_object().cloned().unwrap_or_else(Map::new);
    metadata.insert("NAMESPACE".into(), namespace.clone().into());
    metadata.insert("INSTANCE_IPS".into(), ips.join(",").into());
    metadata.insert("LABELS".into(), body["labels"].clone().as_object().cloned().unwrap_or_default().into());
    let locality = text("locality", "");
    let mut parts = locality.splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let extensions = body["extensions"].as_array().cloned().unwrap_or_default();
    let node = json!({
        "id": id,
        "metadata": metadata,
        "locality": {"region": part(), "zone": part(), "subZone": part()},
        "userAgentName": if body["envoy"].is_null() { "" } else { "envoy" },
        "userAgentBuildVersion": {"version": envoy_version(&body["envoy"])},
        "extensions": extensions.iter().map(|e| json!({"name": e})).collect::<Vec<_>>(),
    });
    let node: Node = protos::from_json(&node).context("node")?;
    let mut proxy = envoy::parse_node(&node)?;
    proxy.secrets = match body["secrets"].as_str() {
        None => SecretRight::None,
        Some("namespace") => SecretRight::Namespace,
        Some("account") => SecretRight::Account,
        Some(other) => bail!("unknown right to secrets {other:?}"),
    };
    Ok(proxy)
}

/// `1.40` as a version message.
fn envoy_version(text: &Value) -> Value {
    let text = text.as_str().unwrap_or_default();
    let (major, minor) = text.split_once('.').unwrap_or_default();
    let number = |part: &str| part.parse::<u32>().unwrap_or_default();
    json!({"majorNumber": number(major), "minorNumber": number(minor)})
}

/// The names of the listeners that a gRPC client or server requests, from `targets` (`HOST:PORT`) and `servers`
/// (`ADDRESS:PORT`) of its description.
///
/// # Errors
/// The description is not YAML.
pub fn targets(yaml: &str) -> Result<Vec<Arc<str>>> {
    let body = read(yaml)?;
    let texts = |key: &str| -> Vec<String> {
        let list = body[key].as_array().into_iter().flatten();
        list.filter_map(|v| v.as_str().map(str::to_owned)).collect()
    };
    let servers = texts("servers").into_iter().map(|bound| format!("xds.istio.io/grpc/lds/inbound/{bound}"));
    Ok(texts("targets").into_iter().chain(servers).map(Arc::from).collect())
}

fn read(yaml: &str) -> Result<Value> {
    Ok(match yaml.trim() {
        "" => json!({}),
        yaml => serde_saphyr::from_str(yaml)?,
    })
}
