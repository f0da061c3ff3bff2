//! Proxies as scenarios describe them.

use anyhow::{Context, Result};
use model::proxy::Proxy;
use protos::envoy::config::core::v3::Node;
use serde_json::{Map, Value, json};

/// A proxy from a scenario's short description, through a node message as Envoy sends it.
///
/// # Errors
/// A field of the wrong form, or a node that discovery refuses.
pub fn parse(name: &str, yaml: &str) -> Result<Proxy> {
    let body: Value = if yaml.trim().is_empty() {
        json!({})
    } else {
        serde_saphyr::from_str(yaml)?
    };
    let text = |key: &str, default: &str| body[key].as_str().unwrap_or(default).to_owned();
    let namespace = text("namespace", "default");
    let ips: Vec<String> = match &body["ips"] {
        Value::Array(list) => list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect(),
        _ => vec![text("ip", "10.1.0.1")],
    };
    let id = format!(
        "{}~{}~{name}.{namespace}~{namespace}.svc.cluster.local",
        text("type", "sidecar"),
        ips[0]
    );
    let mut metadata = body["metadata"].as_object().cloned().unwrap_or_else(Map::new);
    metadata.insert("NAMESPACE".into(), namespace.clone().into());
    metadata.insert("INSTANCE_IPS".into(), ips.join(",").into());
    metadata.insert(
        "LABELS".into(),
        body["labels"].clone().as_object().cloned().unwrap_or_default().into(),
    );
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
    let mut proxy = ads::parse_node(&node)?;
    proxy.trusted = body["trusted"].as_bool().unwrap_or(false);
    Ok(proxy)
}

/// `1.40` as a version message.
fn envoy_version(text: &Value) -> Value {
    let text = text.as_str().unwrap_or_default();
    let (major, minor) = text.split_once('.').unwrap_or_default();
    let number = |part: &str| part.parse::<u32>().unwrap_or_default();
    json!({"majorNumber": number(major), "minorNumber": number(minor)})
}
