//! Merging of metrics: Prometheus scrapes the agent, which scrapes the application.

use config::{MeshConfig, parse_bool};
use serde_json::{Value, json};

use crate::pod::{annotate, annotation, annotations, find_mut, full_name, metadata_map, push};
use crate::{Error, PROXY};

/// The environment variable of the agent with the original annotations.
const SCRAPING: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";
/// The environment variable with the port of merged metrics over TLS, and the annotation with its value.
const SECURE_VARIABLE: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";
const SECURE_ANNOTATION: &str = "prometheus.istio.io/secure-port";

/// Annotations as Prometheus names them.
const SCRAPE: &str = "prometheus_io_scrape";
const PORT: &str = "prometheus_io_port";
const PATH: &str = "prometheus_io_path";
const TARGETS: &str = "prometheus_istio_io_scrape_targets";
const SECURE: &str = "prometheus_istio_io_secure_port";

/// Ports of the sidecar, which the agent must not scrape as the application's.
const RESERVED: [(u32, &str); 9] = [
    (15000, "the admin port of Envoy"),
    (15001, "outbound traffic"),
    (15004, "reserved"),
    (15006, "inbound traffic"),
    (15008, "HBONE"),
    (15020, "the agent"),
    (15021, "the health of the sidecar"),
    (15053, "the DNS proxy"),
    (15090, "the metrics of Envoy"),
];

/// A port and a path to scrape.
struct Target {
    port: String,
    path: String,
}

/// Points the annotations for Prometheus at the agent, and passes the original ones to it.
pub(crate) fn merge(pod: &mut Value, mesh: &MeshConfig) -> Result<(), Error> {
    let scraped = found(pod, SCRAPE).and_then(parse_bool).unwrap_or(true);
    if !scraped || !is_enabled(pod, mesh) {
        return Ok(());
    }
    let agent = mesh.default_config.status_port.unsigned_abs();
    // The annotations of a pod that was injected before point at the agent already.
    if found(pod, PORT) == Some(agent.to_string().as_str()) {
        return Ok(());
    }
    let targets = found(pod, TARGETS).and_then(targets);
    let text = |name| found(pod, name).unwrap_or_default().to_owned();
    let (port, path) = match targets.as_deref() {
        Some([first, ..]) => (first.port.clone(), first.path.clone()),
        _ => (text(PORT), text(PATH)),
    };
    let scrape = text(SCRAPE);
    let all: Vec<&str> = match targets.as_deref() {
        Some(targets @ [_, ..]) => targets.iter().map(|target| target.port.as_str()).collect(),
        _ => [port.as_str()].into_iter().filter(|port| !port.is_empty()).collect(),
    };
    for port in all {
        check(port, agent).map_err(|message| Error::Pod { pod: full_name(pod), message })?;
    }
    let mut passed = json!({"scrape": scrape, "path": path, "port": port});
    let is_empty = passed.as_object().is_some_and(|fields| fields.values().all(|value| value == ""));
    if let Some(targets) = targets.filter(|targets| !targets.is_empty()) {
        let targets = targets.iter().map(|target| json!({"port": target.port, "path": target.path}));
        passed["targets"] = targets.collect();
    }
    if let Some(sidecar) = find_mut(pod, PROXY).filter(|_| !is_empty) {
        push(sidecar, "env", json!({"name": SCRAPING, "value": passed.to_string()}));
    }
    // All spellings are removed: Prometheus would choose any of them.
    clear(pod);
    annotate(pod, "prometheus.io/port", agent.to_string());
    annotate(pod, "prometheus.io/path", "/stats/prometheus");
    annotate(pod, "prometheus.io/scrape", "true");
    Ok(())
}

/// Tells Prometheus the port of merged metrics over TLS, if the sidecar has one and the pod does not name it.
pub(crate) fn secure_port(pod: &mut Value) {
    if found(pod, SECURE).is_some() {
        return;
    }
    let sidecar = find_mut(pod, PROXY).map(|sidecar| &*sidecar);
    let variables = sidecar.and_then(|sidecar| sidecar["env"].as_array()).into_iter().flatten();
    let values = variables.filter(|variable| variable["name"] == SECURE_VARIABLE);
    let port = values.filter_map(|variable| variable["value"].as_str()).find(|port| !matches!(*port, "" | "0"));
    if let Some(port) = port.map(str::to_owned) {
        annotate(pod, SECURE_ANNOTATION, port);
    }
}

/// Removes the annotations that an injection before has set.
pub(crate) fn forget(pod: &mut Value, mesh: &MeshConfig) {
    if found(pod, PORT) == Some(mesh.default_config.status_port.to_string().as_str()) {
        clear(pod);
    }
}

fn is_enabled(pod: &Value, mesh: &MeshConfig) -> bool {
    let wanted = annotation(pod, "prometheus.istio.io/merge-metrics").and_then(parse_bool);
    wanted.unwrap_or(mesh.enable_prometheus_merge)
}

/// The name of an annotation as Prometheus writes it as a label.
fn sanitized(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

fn found<'p>(pod: &'p Value, wanted: &str) -> Option<&'p str> {
    annotations(pod).find(|(name, _)| sanitized(name) == wanted).map(|(_, value)| value)
}

fn clear(pod: &mut Value) {
    if let Some(annotations) = metadata_map(pod, "annotations") {
        annotations.retain(|name, _| ![SCRAPE, PORT, PATH, TARGETS].contains(&sanitized(name).as_str()));
    }
}

/// `8080:/metrics,9090`; none if a port is missing.
fn targets(text: &str) -> Option<Vec<Target>> {
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let targets = entries.map(|entry| {
        let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
        let (port, path) = (port.trim(), path.trim());
        let path = if path.is_empty() { "/metrics" } else { path };
        (!port.is_empty()).then(|| Target { port: port.to_owned(), path: path.to_owned() })
    });
    targets.collect()
}

fn check(port: &str, agent: u32) -> Result<(), String> {
    let number = port.parse::<u32>().ok().filter(|port| (1..=65535).contains(port));
    let Some(number) = number else {
        return Err(format!("the port {port:?} to scrape for Prometheus is not a port"));
    };
    if number == agent {
        return Err(format!("the port {port} to scrape for Prometheus is that of the agent; name the application's"));
    }
    match RESERVED.iter().find(|(reserved, _)| *reserved == number) {
        Some((_, use_)) => Err(format!("the port {port} to scrape for Prometheus belongs to the sidecar ({use_})")),
        None => Ok(()),
    }
}
