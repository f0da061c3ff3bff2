//! The metrics of the DNS proxy, with Istio's names.

use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

/// The buckets of durations, in seconds.
const SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.1, 1.0, 5.0];

#[derive(Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: IntCounter,
    pub(crate) upstream: IntCounter,
    pub(crate) failures: IntCounter,
    pub(crate) duration: Histogram,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let duration = "Total time in seconds until a name server answered a forwarded DNS request.";
        let duration = HistogramOpts::new("dns_upstream_request_duration_seconds", duration).buckets(SECONDS.to_vec());
        let duration = Histogram::with_opts(duration)?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Metrics {
            requests: counter("dns_requests_total", "Number of DNS requests.")?,
            upstream: counter(
                "dns_upstream_requests_total",
                "Number of DNS requests that were forwarded to a name server.",
            )?,
            failures: counter("dns_upstream_failures_total", "Number of DNS requests that no name server answered.")?,
            duration,
        })
    }
}
