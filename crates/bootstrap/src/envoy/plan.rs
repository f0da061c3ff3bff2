//! The facts from which the bootstrap is generated, and which custom templates read.

use std::net::IpAddr;

use config::mesh::{RemoteService, Tracer};
use serde_json::{Map, Value, json};

use super::services::{self, Service};
use super::stats::Stats;
use super::{Flavor, runtime};
use crate::diagnostic::Diagnostics;
use crate::node::Node;

/// The address of the workload itself and that of all addresses, by family.
const FAMILIES: [(&str, &str); 2] = [("127.0.0.1", "0.0.0.0"), ("::1", "::")];
/// The value of the metadata that allows metrics for the workload itself only.
const LOCAL_METRICS: &str = "METRICS_LOCALHOST_ACCESS_ONLY";
/// The metadata with the settings of load reports.
const LOAD_STATS: &str = "LOAD_STATS_CONFIG_JSON";

/// A tracer that Envoy has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TracerKind {
    Zipkin,
    Datadog,
}

/// A tracer with the cluster of its collector.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct PlannedTracer {
    pub(crate) kind: TracerKind,
    pub(crate) service: Service,
}

/// The facts of a bootstrap.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) localhost: &'static str,
    pub(crate) wildcard: &'static str,
    /// The same of the other family, if listeners have both.
    pub(crate) additional: Option<(&'static str, &'static str)>,
    pub(crate) lookup_family: &'static str,
    pub(crate) xds_type: &'static str,
    pub(crate) discovers_metadata: bool,
    pub(crate) self_discovery: bool,
    pub(crate) local_metrics: bool,
    pub(crate) compress_stats: bool,
    pub(crate) tracer: Option<PlannedTracer>,
    pub(crate) metrics_service: Option<Service>,
    pub(crate) access_log_service: Option<Service>,
    pub(crate) statsd: Option<Value>,
    pub(crate) stats: Stats,
    pub(crate) runtime: Map<String, Value>,
    pub(crate) max_connections: i64,
    pub(crate) load_stats: Option<Value>,
    /// The address of the control plane.
    pub(crate) discovery: Option<Value>,
}

impl Plan {
    pub(crate) fn new(node: &Node, flavor: Flavor, diagnostics: &mut Diagnostics) -> Plan {
        let settings = &node.settings;
        let dual = !node.role.is_ipv4() && !node.role.is_ipv6();
        let first = usize::from(node.loopback().is_ipv6());
        let both = dual && node.options.dual_stack;
        let asked = node.options.metadata_discovery == Some(true) && flavor == Flavor::Stock;
        if asked {
            diagnostics.add("PEER_METADATA_DISCOVERY", "has no effect: only Istio's Envoy has this extension");
        }
        Plan {
            localhost: FAMILIES[first].0,
            wildcard: FAMILIES[first].1,
            additional: both.then_some(FAMILIES[1 - first]),
            lookup_family: if both { "ALL" } else { ["V4_ONLY", "V6_ONLY"][first] },
            xds_type: if node.options.delta || node.is_waypoint() { "DELTA_GRPC" } else { "GRPC" },
            discovers_metadata: flavor == Flavor::Istio && node.discovers_metadata(),
            self_discovery: node.text("ENABLE_SELF_DISCOVERY") == "true",
            local_metrics: settings.proxy_metadata.get(LOCAL_METRICS).is_some_and(|value| &**value == "true"),
            compress_stats: settings.stats_compression.unwrap_or(true),
            tracer: tracer(node, diagnostics),
            metrics_service: metrics_service(node, diagnostics),
            access_log_service: settings.envoy_access_log_service.as_ref().and_then(|service| {
                services::remote("envoyAccessLogService", service, "envoy_accesslog_service", node, diagnostics)
            }),
            statsd: statsd(node, diagnostics),
            stats: Stats::new(node, diagnostics),
            runtime: runtime::values(node),
            max_connections: runtime::max_connections(node, diagnostics),
            load_stats: load_stats(node, diagnostics),
            discovery: services::address("discoveryAddress", &settings.discovery_address, node, diagnostics),
        }
    }
}

fn tracer(node: &Node, diagnostics: &mut Diagnostics) -> Option<PlannedTracer> {
    let tracing = node.settings.tracing.as_ref()?;
    let (kind, address) = match tracing.tracer.as_ref()? {
        Tracer::Zipkin(zipkin) => (TracerKind::Zipkin, &zipkin.address),
        Tracer::Datadog(datadog) => (TracerKind::Datadog, &datadog.address),
        // Envoy has removed these; the check of the settings says so.
        Tracer::Lightstep(_) | Tracer::Stackdriver(_) | Tracer::OpenCensusAgent(_) => return None,
    };
    let address = services::address("tracing", address, node, diagnostics)?;
    let tls = tracing.tls_settings.as_ref().and_then(|tls| services::transport_socket(tls, "tracer", node, false));
    Some(PlannedTracer { kind, service: Service { address, tls, keepalive: None } })
}

fn metrics_service(node: &Node, diagnostics: &mut Diagnostics) -> Option<Service> {
    let given = node.settings.envoy_metrics_service.clone().filter(|service| !service.address.is_empty());
    let deprecated = &node.settings.envoy_metrics_service_address;
    let service = given.or_else(|| {
        (!deprecated.is_empty()).then(|| RemoteService { address: deprecated.clone(), ..RemoteService::default() })
    })?;
    services::remote("envoyMetricsService", &service, "envoy_metrics_service", node, diagnostics)
}

/// The address of the statsd server. Envoy does not look its name up.
fn statsd(node: &Node, diagnostics: &mut Diagnostics) -> Option<Value> {
    let text = &node.settings.statsd_udp_address;
    if text.is_empty() {
        return None;
    }
    let address = services::address("statsdUdpAddress", text, node, diagnostics)?;
    let is_ip = address["address"].as_str().is_some_and(|host| host.parse::<IpAddr>().is_ok());
    if !is_ip {
        diagnostics
            .add("statsdUdpAddress", format_args!("{text:?} could not be resolved; no statistics are sent to it"));
    }
    is_ip.then_some(address)
}

fn load_stats(node: &Node, diagnostics: &mut Diagnostics) -> Option<Value> {
    let text = node.metadata.get(LOAD_STATS)?.as_str()?;
    match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(config) => Some(json!(config)),
        Err(error) => {
            diagnostics.add(format!("ISTIO_META_{LOAD_STATS}"), format_args!("is not a JSON object: {error}"));
            None
        }
    }
}
