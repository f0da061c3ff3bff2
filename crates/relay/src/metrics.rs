//! Metrics, with the names of Istio's agent.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

/// The counters of the relay. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) requests: IntCounter,
    pub(crate) responses: IntCounter,
    pub(crate) connection_failures: IntCounter,
    /// By type: `cancelled` or `error`.
    pub(crate) upstream_ends: IntCounterVec,
    pub(crate) downstream_ends: IntCounterVec,
    pub(crate) wasm: WasmMetrics,
}

/// The counters of Wasm modules.
#[derive(Clone, Debug)]
pub(crate) struct WasmMetrics {
    pub(crate) entries: IntGauge,
    pub(crate) lookups: IntCounterVec,
    pub(crate) fetches: IntCounterVec,
    pub(crate) conversions: IntCounterVec,
    pub(crate) duration: Histogram,
}

impl Metrics {
    /// Creates the metrics and adds them to a registry.
    ///
    /// # Errors
    /// The registry has a metric of the same name.
    pub(crate) fn new(registry: &Registry) -> prometheus::Result<Metrics> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let counters = |name: &str, help: &str, label: &str| {
            let counters = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let entries = IntGauge::new("wasm_cache_entries", "Number of Wasm modules in the cache.")?;
        registry.register(Box::new(entries.clone()))?;
        let buckets = (0..15).map(|power| f64::from(1 << power)).collect();
        let help = "Time in milliseconds to replace the remote Wasm modules of a response.";
        let duration =
            Histogram::with_opts(HistogramOpts::new("wasm_config_conversion_duration", help).buckets(buckets))?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Metrics {
            requests: counter("xds_proxy_requests", "Number of xDS requests that were sent to the control plane.")?,
            responses: counter("xds_proxy_responses", "Number of xDS responses of the control plane.")?,
            connection_failures: counter(
                "istiod_connection_failures",
                "Number of failed connections to the control plane.",
            )?,
            upstream_ends: counters(
                "istiod_connection_terminations",
                "Number of streams that the control plane ended.",
                "type",
            )?,
            downstream_ends: counters(
                "envoy_connection_terminations",
                "Number of streams that the proxy ended.",
                "type",
            )?,
            wasm: WasmMetrics {
                entries,
                lookups: counters("wasm_cache_lookup_count", "Number of lookups in the cache of Wasm modules.", "hit")?,
                fetches: counters("wasm_remote_fetch_count", "Number of fetched Wasm modules, by result.", "result")?,
                conversions: counters(
                    "wasm_config_conversion_count",
                    "Number of converted Wasm filters, by result.",
                    "result",
                )?,
                duration,
            },
        })
    }
}
