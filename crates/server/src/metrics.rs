//! Metrics in OpenMetrics format, under Istio's names where they exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use flow::RelationStats;
use model::xds::ResourceType;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use xds::{Stats, TypeStats};

use crate::core::Core;
use crate::counters::Counters;
use crate::status_tracker::TrackerStats;

/// A gauge that another part of the program provides, with one sample or one for each value of a label.
#[derive(Clone, PartialEq, Debug)]
pub struct Gauge {
    /// The metric's name.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The name of the label; empty if there is none.
    pub label: &'static str,
    /// The values of the label with their samples.
    pub samples: Vec<(String, f64)>,
}

impl Gauge {
    /// A gauge without a label.
    pub fn one(name: &'static str, help: &'static str, value: f64) -> Gauge {
        Gauge { name, help, label: "", samples: vec![(String::new(), value)] }
    }
}

/// All metrics as they are now.
#[derive(Debug)]
pub(crate) struct Snapshot {
    hub: Stats,
    /// Connected streams by the version that their proxies state.
    streams: BTreeMap<Arc<str>, usize>,
    /// Type and proxy of each current NACK.
    rejected_by: Vec<(ResourceType, Arc<str>)>,
    sizes: [(&'static str, usize); 6],
    counters: Counters,
    relations: Vec<RelationStats>,
    services: usize,
    feedback: TrackerStats,
    more: Vec<Gauge>,
}

impl Snapshot {
    /// Adds gauges of other parts of the program.
    pub(crate) fn with(self, more: Vec<Gauge>) -> Snapshot {
        Snapshot { more, ..self }
    }

    pub(crate) fn of(core: &Core) -> Snapshot {
        let (mut streams, mut rejected_by) = (BTreeMap::new(), Vec::new());
        for status in core.hub.statuses() {
            *streams.entry(status.proxy.version.clone()).or_default() += 1;
            let rejected = status.watches.iter().filter(|watch| watch.error.is_some());
            rejected_by.extend(rejected.map(|watch| (watch.kind, status.proxy.id.clone())));
        }
        Snapshot {
            hub: core.hub.stats(),
            streams,
            rejected_by,
            sizes: core.hub.sizes(),
            counters: core.counters.clone(),
            relations: core.served.world.engine().stats().relations,
            services: core.served.world.services(),
            feedback: core.tracker.numbers(),
            more: Vec::new(),
        }
    }

    /// The text that Prometheus scrapes.
    pub(crate) fn text(self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
        text
    }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut out = Writer(&mut encoder);
        let streams: Vec<Sample<'_>> = self.streams.iter().map(|(v, n)| ("version", &**v, *n as f64)).collect();
        out.gauge("pilot_xds", "Connected xDS streams, by the version of the proxy", &streams)?;
        out.gauge("pilot_services", "Services known to the control plane", &[("", "", self.services as f64)])?;
        let counters = &self.counters;
        out.istio("pilot_xds_pushes", "Responses sent", &self.hub, |stats| stats.responses)?;
        out.by_type("rutter_xds_response_bytes", "Bytes of responses sent", &self.hub, |stats| stats.bytes)?;
        out.by_type("rutter_xds_resources", "Resources in responses sent", &self.hub, |stats| stats.resources)?;
        out.by_type(
            "rutter_xds_responses_composed",
            "Responses that were composed for one stream and not shared",
            &self.hub,
            |stats| stats.composed,
        )?;
        out.by_type("rutter_xds_acks", "Responses acknowledged by proxies (ACK)", &self.hub, |stats| stats.accepted)?;
        out.istio("pilot_total_xds_rejects", "Responses rejected by proxies (NACK)", &self.hub, |stats| {
            stats.rejected
        })?;
        out.istio("pilot_xds_expired_nonce", "Requests with the nonce of an earlier response", &self.hub, |stats| {
            stats.stale
        })?;
        out.by_type(
            "rutter_xds_overdue",
            "Responses sent after the wait for resources that they depend on timed out",
            &self.hub,
            |stats| stats.overdue,
        )?;
        for (kind, _) in self.hub.iter() {
            let rejected: Vec<Sample<'_>> =
                self.rejected_by.iter().filter(|r| r.0 == *kind).map(|r| ("node", &*r.1, 1.0)).collect();
            let name = format!("pilot_xds_{}_reject", short(*kind));
            out.gauge(&name, "Proxies that rejected the last response of the type", &rejected)?;
        }
        out.counter("rutter_commits", "Commits of changes", &[("", "", counters.commits as f64)])?;
        out.counter("rutter_commit_seconds", "Seconds spent on commits", &[("", "", counters.commit_seconds)])?;
        out.counter(
            "rutter_rule_panics",
            "Panics in rules; the rows derived before stay in effect",
            &[("", "", counters.rule_panics as f64)],
        )?;
        out.counter(
            "rutter_panics",
            "Panics outside of rules, limited to one stream or page",
            &[("", "", counters.panics as f64)],
        )?;
        let sizes: Vec<(&str, &str, f64)> = self.sizes.iter().map(|(n, v)| ("what", *n, *v as f64)).collect();
        out.gauge("rutter_hub", "Sizes of the xDS hub's tables", &sizes)?;
        let of = |pick: fn(&RelationStats) -> f64| -> Vec<Sample<'_>> {
            self.relations.iter().map(|relation| ("relation", relation.name, pick(relation))).collect()
        };
        out.gauge("rutter_cells", "Cells in the derivation graph", &of(|relation| relation.cells as f64))?;
        out.gauge("rutter_edges", "Recorded reads in the derivation graph", &of(|relation| relation.edges as f64))?;
        out.counter("rutter_rule_runs", "Executions of rules", &of(|relation| relation.runs as f64))?;
        let feedback = &self.feedback;
        let sizes: Vec<Sample<'_>> = feedback.sizes.iter().map(|(n, v)| ("state", *n, *v)).collect();
        out.gauge(
            "rutter_objects",
            "Configuration objects with a status: all; not yet acknowledged by some proxy; waiting to be counted; rejected by \
             some proxy",
            &sizes,
        )?;
        for (name, help, value) in [
            ("rutter_status_planned", "Statuses handed to the writer", feedback.planned),
            ("rutter_status_counted", "Counts of proxies for an object", feedback.counted),
            ("rutter_status_seconds", "Seconds spent counting proxies for statuses", feedback.seconds),
        ] {
            out.counter(name, help, &[("", "", value)])?;
        }
        for gauge in &self.more {
            let samples = gauge.samples.iter();
            let samples: Vec<Sample<'_>> =
                samples.map(|(value, number)| (gauge.label, value.as_str(), *number)).collect();
            out.gauge(gauge.name, gauge.help, &samples)?;
        }
        let help = "Seconds for which the thread that owns the world held up all other work, by kind of step";
        let mut metric = encoder.encode_descriptor("rutter_world_step_seconds", help, None, MetricType::Histogram)?;
        for (step, durations) in counters.stalls.iter() {
            durations.encode(metric.encode_family(&[("step", step.name())])?)?;
        }
        let help = "Seconds from a change until it is sent to a proxy";
        let metric = encoder.encode_descriptor("pilot_proxy_convergence_time", help, None, MetricType::Histogram)?;
        counters.convergence.encode(metric)
    }
}

struct Writer<'a, 'b>(&'a mut DescriptorEncoder<'b>);

/// The name and value of a label (both empty if there is none), and the sample.
type Sample<'a> = (&'a str, &'a str, f64);

impl Writer<'_, '_> {
    fn by_type(&mut self, name: &str, help: &str, stats: &Stats, value: fn(&TypeStats) -> u64) -> std::fmt::Result {
        self.of_types(name, help, MetricType::Counter, (stats, value), |value, to| ConstCounter::new(value).encode(to))
    }

    /// A counter of Istio. Its type is unknown: OpenMetrics requires the suffix `_total` on counters, and dashboards use the
    /// name without it.
    fn istio(&mut self, name: &str, help: &str, stats: &Stats, value: fn(&TypeStats) -> u64) -> std::fmt::Result {
        self.of_types(name, help, MetricType::Unknown, (stats, value), |value, to| ConstGauge::new(value).encode(to))
    }

    /// One sample for each resource type.
    fn of_types(
        &mut self,
        name: &str,
        help: &str,
        metric: MetricType,
        (stats, value): (&Stats, fn(&TypeStats) -> u64),
        encode: impl Fn(f64, prometheus_client::encoding::MetricEncoder<'_>) -> std::fmt::Result,
    ) -> std::fmt::Result {
        let labels = stats.iter().map(|(kind, stats)| (short(*kind), value(stats) as f64));
        let labels: Vec<(String, f64)> = labels.collect();
        let samples: Vec<Sample<'_>> = labels.iter().map(|(kind, value)| ("type", kind.as_str(), *value)).collect();
        self.samples(name, help, metric, &samples, encode)
    }

    fn counter(&mut self, name: &str, help: &str, samples: &[Sample<'_>]) -> std::fmt::Result {
        self.samples(name, help, MetricType::Counter, samples, |value, to| ConstCounter::new(value).encode(to))
    }

    fn gauge(&mut self, name: &str, help: &str, samples: &[Sample<'_>]) -> std::fmt::Result {
        self.samples(name, help, MetricType::Gauge, samples, |value, to| ConstGauge::new(value).encode(to))
    }

    fn samples(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: &[Sample<'_>],
        encode: impl Fn(f64, prometheus_client::encoding::MetricEncoder<'_>) -> std::fmt::Result,
    ) -> std::fmt::Result {
        let mut descriptor = self.0.encode_descriptor(name, help, None, kind)?;
        for (label, text, value) in samples {
            let pair = [(*label, *text)];
            let labels: &[(&str, &str)] = if label.is_empty() { &[] } else { &pair };
            encode(*value, descriptor.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// The label that Istio uses: `cds`, `eds`, and so on.
fn short(kind: ResourceType) -> String {
    kind.short_name.to_lowercase()
}
