//! Metrics, with the names of Istio's agent.

use std::sync::{Arc, RwLock};
use std::time::SystemTime;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, CounterVec, Gauge, GaugeVec, IntCounter, IntCounterVec, Opts, Registry};

use crate::name::WORKLOAD;

/// The metrics. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: IntCounter,
    pub(crate) failures: IntCounter,
    pub(crate) retries: IntCounter,
    /// In milliseconds.
    pub(crate) latency: Counter,
    pub(crate) watch_failures: IntCounter,
    pub(crate) file_failures: IntCounter,
    pub(crate) expiry: Expiry,
}

impl Metrics {
    /// Creates the metrics and adds them to a registry.
    ///
    /// # Errors
    /// The registry has a metric of the same name.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Metrics> {
        let requests = |name: &str, help: &str| {
            let counters = IntCounterVec::new(Opts::new(name, help), &["request_type"])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters.with_label_values(&["csr"]))
        };
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let help = "Time of requests to the certificate authority, in milliseconds.";
        let latency = CounterVec::new(Opts::new("outgoing_latency", help), &["request_type"])?;
        registry.register(Box::new(latency.clone()))?;
        let expiry = Expiry::new()?;
        registry.register(Box::new(expiry.clone()))?;
        Ok(Metrics {
            requests: requests("num_outgoing_requests", "Number of requests to the certificate authority.")?,
            failures: requests(
                "num_failed_outgoing_requests",
                "Number of failed requests to the certificate authority.",
            )?,
            retries: requests("num_outgoing_retries", "Number of retried requests to the certificate authority.")?,
            latency: latency.with_label_values(&["csr"]),
            watch_failures: counter("num_file_watcher_failures_total", "Number of failures to watch a file.")?,
            file_failures: counter(
                "num_file_secret_failures_total",
                "Number of failures to read a secret from files.",
            )?,
            expiry,
        })
    }
}

/// The gauge of the time until the workload's certificate expires, computed when it is read.
#[derive(Clone, Debug)]
pub(crate) struct Expiry {
    expires: Arc<RwLock<Option<SystemTime>>>,
    gauges: GaugeVec,
    gauge: Gauge,
}

impl Expiry {
    fn new() -> prometheus::Result<Expiry> {
        let help = "Seconds until the workload's certificate expires. It is negative after that.";
        let gauges = GaugeVec::new(Opts::new("cert_expiry_seconds", help), &["resource_name"])?;
        let gauge = gauges.with_label_values(&[WORKLOAD]);
        Ok(Expiry { expires: Arc::default(), gauges, gauge })
    }

    pub(crate) fn set(&self, expires: SystemTime) {
        if let Ok(mut now) = self.expires.write() {
            *now = Some(expires);
        }
    }
}

impl Collector for Expiry {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let Some(expires) = self.expires.read().ok().and_then(|expires| *expires) else { return Vec::new() };
        let now = SystemTime::now();
        self.gauge.set(match expires.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(error) => -error.duration().as_secs_f64(),
        });
        self.gauges.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_until_expiry_is_computed_when_it_is_read() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry).unwrap();
        let value = || {
            let families = registry.gather();
            let family = families.iter().find(|family| family.name() == "cert_expiry_seconds")?;
            Some(family.get_metric()[0].get_gauge().get_value())
        };
        assert_eq!(value(), None);
        metrics.expiry.set(SystemTime::now() + Duration::from_secs(1000));
        assert!((990.0..=1000.0).contains(&value().unwrap()));
        metrics.expiry.set(SystemTime::now() - Duration::from_secs(10));
        assert!(value().unwrap() <= -10.0);
        assert!(Metrics::new(&registry).is_err(), "the names are taken");
    }
}
