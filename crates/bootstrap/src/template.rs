//! Custom bootstrap templates, with the parameters of Istio's agent.

use go_template::{Host, Problem, Templates};
use serde_json::{Map, Value, json};

use crate::diagnostic::Diagnostics;
use crate::envoy::{FILES_SOCKET, Flavor, Plan, TracerKind};
use crate::node::Node;

/// The reason why a template cannot be rendered.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the bootstrap template {0}")]
pub struct TemplateError(#[from] go_template::Error);

/// Renders a template. It is a Go template with the functions of sprig; `.config` and `.metadata` have fields with the names of
/// Go. Parameters are absent under the same conditions as in Istio's agent.
///
/// # Errors
/// The template has a syntax error, or an evaluation fails.
pub fn render(
    name: &str,
    template: &str,
    node: &Node,
    flavor: Flavor,
    diagnostics: &mut Diagnostics,
) -> Result<String, TemplateError> {
    let parameters = parameters(node, &Plan::new(node, flavor, diagnostics));
    let mut templates = Templates::default();
    templates.add(name, template)?;
    Ok(templates.render(name, &parameters, &Functions)?)
}

/// The parameters of templates.
fn parameters(node: &Node, plan: &Plan) -> Value {
    let settings = &node.settings;
    let address = &*settings.discovery_address;
    let mut all = json!({
        "nodeID": node.id,
        "nodeType": node.role.kind.name(),
        "cluster": node.cluster,
        "config": settings.to_json(),
        "metadata": node.metadata,
        "meta_json_str": Value::Object(node.metadata.clone()).to_string(),
        "pilot_SAN": Value::from(node.pilot_san.iter().map(|name| json!({"exact": name})).collect::<Vec<_>>()).to_string(),
        "discovery_address": address,
        "discovery_host": address.split(':').next().unwrap_or_default(),
        "log_json": node.options.log_as_json,
        "xds_type": plan.xds_type,
        "metadata_discovery": plan.discovers_metadata,
        "metrics_localhost_access_only": plan.local_metrics,
        "workload_identity_socket_file": node.options.socket_file,
        "localhost": plan.localhost,
        "wildcard": plan.wildcard,
        "dns_lookup_family": plan.lookup_family,
        "runtime_flags": Value::Object(plan.runtime.clone()).to_string(),
        "envoy_status_port": node.options.status_port,
        "envoy_prometheus_port": node.options.prometheus_port,
        "global_downstream_max_connections": plan.max_connections,
        "envoy_metrics_stats_compression": plan.compress_stats,
        "inclusionPrefix": plan.stats.prefixes,
        "inclusionSuffix": plan.stats.suffixes,
        "inclusionRegexps": plan.stats.regexps,
        "histogram_buckets": plan.stats.bucket_settings(),
    });
    if let Some(fields) = all.as_object_mut() {
        let present = optional(node, plan).into_iter().filter(|(_, value)| !matches!(value, Value::Null));
        fields.extend(present.map(|(name, value)| (name.to_owned(), value)));
    }
    all
}

/// Parameters that are null if they are absent.
fn optional(node: &Node, plan: &Plan) -> Vec<(&'static str, Value)> {
    let text = |text: &str| if text.is_empty() { Value::Null } else { text.into() };
    let written = |value: Option<&Value>| value.map_or(Value::Null, |value| value.to_string().into());
    let port = |port: u16| if port == 0 { Value::Null } else { port.into() };
    let set = |on: bool| if on { true.into() } else { Value::Null };
    let (metrics, logs) = (plan.metrics_service.as_ref(), plan.access_log_service.as_ref());
    let tracer = |kind| plan.tracer.as_ref().filter(|tracer| tracer.kind == kind).map(|tracer| &tracer.service.address);
    let sts = node.text("STS_PORT").parse::<u16>().ok();
    let project = |key: &str| node.platform.get(key).map_or(Value::Null, |value| value.as_str().into());
    vec![
        ("region", text(&node.locality.region)),
        ("zone", text(&node.locality.zone)),
        ("sub_zone", text(&node.locality.sub_zone)),
        ("outlier_log_path", text(node.text("OUTLIER_LOG_PATH"))),
        (
            "custom_file_path",
            if node.metadata.contains_key("file-credential") { FILES_SOCKET.into() } else { Value::Null },
        ),
        ("secure_metrics_port", port(node.options.secure_metrics_port)),
        ("secure_merged_metrics_port", port(node.options.secure_merged_metrics_port)),
        ("additional_localhost", plan.additional.map_or(Value::Null, |(localhost, _)| localhost.into())),
        ("additional_wildcard", plan.additional.map_or(Value::Null, |(_, wildcard)| wildcard.into())),
        ("dual_stack", set(plan.additional.is_some())),
        ("envoy_status_port_enable_proxy_protocol", set(node.options.status_proxy_protocol)),
        ("enable_self_discovery", set(plan.self_discovery)),
        ("extraStatTags", if plan.stats.extra_tags.is_empty() { Value::Null } else { json!(plan.stats.extra_tags) }),
        (
            "stats_flush_interval",
            plan.stats.flush_interval.map_or(Value::Null, |interval| crate::envoy::seconds(interval).into()),
        ),
        (
            "stats_eviction_interval",
            plan.stats.eviction_interval.map_or(Value::Null, |interval| crate::envoy::seconds(interval).into()),
        ),
        ("load_stats_config_json_str", written(plan.load_stats.as_ref())),
        ("pilot_grpc_address", written(plan.discovery.as_ref())),
        ("statsd", written(plan.statsd.as_ref())),
        ("zipkin", written(tracer(TracerKind::Zipkin))),
        ("datadog", written(tracer(TracerKind::Datadog))),
        ("tracing_tls", written(plan.tracer.as_ref().and_then(|tracer| tracer.service.tls.as_ref()))),
        ("envoy_metrics_service_address", written(metrics.map(|service| &service.address))),
        ("envoy_metrics_service_tls", written(metrics.and_then(|service| service.tls.as_ref()))),
        ("envoy_metrics_service_tcp_keepalive", written(metrics.and_then(|service| service.keepalive.as_ref()))),
        ("envoy_accesslog_service_address", written(logs.map(|service| &service.address))),
        ("envoy_accesslog_service_tls", written(logs.and_then(|service| service.tls.as_ref()))),
        ("envoy_accesslog_service_tcp_keepalive", written(logs.and_then(|service| service.keepalive.as_ref()))),
        ("gcp_project_number", project("gcp_project_number")),
        ("sts", set(sts.is_some())),
        ("sts_port", sts.map_or(Value::Null, Value::from)),
        ("gcp_project_id", if sts.is_some() { project("gcp_project") } else { Value::Null }),
    ]
}

/// Functions and fields that Go has, beside the built-in ones.
struct Functions;

impl Host for Functions {
    fn call(&self, name: &str, arguments: &[Value]) -> Option<Result<Value, Problem>> {
        match (name, arguments) {
            ("toJSON", [Value::Null]) => Some(Ok("{}".into())),
            ("toJSON", [value]) => Some(Ok(value.to_string().into())),
            ("js", [Value::String(text)]) => Some(Ok(js(text).into())),
            ("js", [value]) => Some(Ok(js(&value.to_string()).into())),
            _ => None,
        }
    }

    /// A field or getter of Go: `ProxyAdminPort` or `GetProxyAdminPort` is `proxyAdminPort`, `InstanceIPs` is `INSTANCE_IPS`.
    fn method(&self, receiver: &Value, name: &str, arguments: &[Value]) -> Option<Result<Value, Problem>> {
        if !arguments.is_empty() || !name.starts_with(char::is_uppercase) {
            return None;
        }
        let fields = receiver.as_object()?;
        let name = name.strip_prefix("Get").filter(|rest| rest.starts_with(char::is_uppercase)).unwrap_or(name);
        let name = match name {
            "InstanceName" => "NAME",
            "PilotSubjectAltName" => "PILOT_SAN",
            "CertBaseDir" => "BASE",
            other => other,
        };
        // A field without a value is absent from JSON.
        Some(Ok(field(fields, name).cloned().unwrap_or_default()))
    }
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let plain = |text: &str| text.replace('_', "").to_ascii_lowercase();
    let name = plain(name);
    fields.iter().find(|(key, _)| plain(key) == name).map(|(_, value)| value)
}

/// Text as a part of a string of JavaScript, as Go's `js` escapes it.
fn js(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        match c {
            '\\' | '\'' | '"' => out.extend(['\\', c]),
            '<' | '>' | '&' | '=' => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => out.push(c),
        }
        out
    })
}
