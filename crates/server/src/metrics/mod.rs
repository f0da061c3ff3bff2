//! Metrics in the Prometheus text format. A metric that has the same meaning in istiod has istiod's name.

mod events;
mod snapshot;

use prometheus::core::Metric as _;
use prometheus::proto::{Counter, Gauge, LabelPair, Metric as ProtoMetric, MetricFamily, MetricType};
use prometheus::{Histogram, HistogramOpts, TextEncoder};

pub(crate) use events::Events;
pub(crate) use snapshot::{Snapshot, short};

/// A metric that another part of the program provides, with one sample or one for each value of its labels.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    kind: MetricType,
    /// The metric's name; that of a counter ends in `_total`.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    labels: &'static [&'static str],
    /// The values of the labels, and the sample.
    samples: Vec<(Vec<String>, f64)>,
}

impl Metric {
    /// A gauge without a label.
    pub fn gauge(name: &'static str, help: &'static str, value: f64) -> Metric {
        Metric { kind: MetricType::GAUGE, name, help, labels: &[], samples: vec![(Vec::new(), value)] }
    }

    /// A gauge with one sample for each value of a label.
    pub fn gauge_by(
        name: &'static str,
        help: &'static str,
        label: &'static [&'static str; 1],
        samples: impl IntoIterator<Item = (String, f64)>,
    ) -> Metric {
        let samples = samples.into_iter().map(|(value, sample)| (vec![value], sample)).collect();
        Metric { kind: MetricType::GAUGE, name, help, labels: label, samples }
    }

    /// A counter without a label.
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Metric {
        Metric { kind: MetricType::COUNTER, name, help, labels: &[], samples: vec![(Vec::new(), value as f64)] }
    }

    /// A counter with one sample for each combination of its labels' values, which are in the order of the labels.
    pub fn counter_by(
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        samples: impl IntoIterator<Item = (Vec<String>, f64)>,
    ) -> Metric {
        Metric { kind: MetricType::COUNTER, name, help, labels, samples: samples.into_iter().collect() }
    }
}

/// A histogram with these bucket bounds. Its name and help are given when it is written ([`Families::histogram`]).
pub(crate) fn histogram(buckets: &[f64]) -> Histogram {
    let options = HistogramOpts::new("histogram", "histogram").buckets(buckets.to_vec());
    #[expect(clippy::unwrap_used, reason = "the bounds are constants in ascending order, which a test checks")]
    Histogram::with_opts(options).unwrap()
}

/// The labels of a sample, as names and values.
pub(crate) type Labels<'a> = Vec<(&'a str, &'a str)>;

/// The metrics of one scrape.
#[derive(Default)]
pub(crate) struct Families(Vec<MetricFamily>);

impl Families {
    pub(crate) fn gauge<'a>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        self.add(name, help, MetricType::GAUGE, samples.into_iter().map(|(labels, value)| gauge(&labels, value)));
    }

    pub(crate) fn counter<'a>(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = (Labels<'a>, f64)>) {
        self.add(name, help, MetricType::COUNTER, samples.into_iter().map(|(labels, value)| counter(&labels, value)));
    }

    pub(crate) fn histogram<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (Labels<'a>, &'a Histogram)>,
    ) {
        let metrics = samples.into_iter().map(|(labels, histogram)| {
            let mut metric = histogram.metric();
            metric.set_label(pairs(&labels));
            metric
        });
        self.add(name, help, MetricType::HISTOGRAM, metrics);
    }

    /// Adds a metric of another part of the program.
    pub(crate) fn metric(&mut self, metric: &Metric) {
        let make = if metric.kind == MetricType::COUNTER { counter } else { gauge };
        let samples = metric.samples.iter().map(|(values, sample)| {
            let labels: Labels<'_> = metric.labels.iter().copied().zip(values.iter().map(String::as_str)).collect();
            make(&labels, *sample)
        });
        self.add(metric.name, metric.help, metric.kind, samples);
    }

    /// Adds complete families.
    pub(crate) fn extend(&mut self, families: Vec<MetricFamily>) {
        self.0.extend(families);
    }

    fn add(&mut self, name: &str, help: &str, kind: MetricType, metrics: impl Iterator<Item = ProtoMetric>) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics.collect());
        self.0.push(family);
    }

    /// The text that Prometheus scrapes. A metric without samples is left out.
    pub(crate) fn text(mut self) -> String {
        self.0.retain(|family| !family.get_metric().is_empty());
        // Families without samples are the only ones that cannot be encoded.
        TextEncoder::new().encode_to_string(&self.0).unwrap_or_default()
    }
}

fn pairs(labels: &Labels<'_>) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}

fn gauge(labels: &Labels<'_>, value: f64) -> ProtoMetric {
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = ProtoMetric::from_label(pairs(labels));
    metric.set_gauge(gauge);
    metric
}

fn counter(labels: &Labels<'_>, value: f64) -> ProtoMetric {
    let mut counter = Counter::default();
    counter.set_value(value);
    let mut metric = ProtoMetric::from_label(pairs(labels));
    metric.set_counter(counter);
    metric
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_declares_each_metrics_type_under_its_own_name() {
        let mut families = Families::default();
        families.counter("pilot_xds_pushes", "Responses sent", [(vec![("type", "c\"ds\n")], 3.0)]);
        families.gauge("nothing", "Has no samples", []);
        let seconds = histogram(&[0.1, 1.0]);
        seconds.observe(0.5);
        families.histogram("took", "Seconds", [(vec![], &seconds)]);
        families.metric(&Metric::counter_by(
            "calls_total",
            "Calls",
            &["verb", "code"],
            [(vec!["get".to_owned(), "200".to_owned()], 2.0)],
        ));
        families.metric(&Metric::gauge("up", "Up", 1.0));
        assert_eq!(
            families.text(),
            "# HELP pilot_xds_pushes Responses sent\n# TYPE pilot_xds_pushes counter\n\
             pilot_xds_pushes{type=\"c\\\"ds\\n\"} 3\n\
             # HELP took Seconds\n# TYPE took histogram\n\
             took_bucket{le=\"0.1\"} 0\ntook_bucket{le=\"1\"} 1\ntook_bucket{le=\"+Inf\"} 1\ntook_sum 0.5\ntook_count 1\n\
             # HELP calls_total Calls\n# TYPE calls_total counter\ncalls_total{verb=\"get\",code=\"200\"} 2\n\
             # HELP up Up\n# TYPE up gauge\nup 1\n"
        );
    }
}
