//! The counters of the world thread.

use prometheus_client::metrics::histogram::Histogram;
use xds::Response;

use crate::stalls::Stalls;

/// The bucket bounds of `pilot_proxy_convergence_time`, in seconds: those of Istio, and finer ones at the low end.
const CONVERGENCE_BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0];

/// Counters of the world thread.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) commits: u64,
    pub(crate) commit_seconds: f64,
    pub(crate) rule_panics: u64,
    pub(crate) panics: u64,
    pub(crate) stalls: Stalls,
    /// The time from a change until it is sent to a proxy.
    pub(crate) convergence: Histogram,
}

impl Default for Counters {
    fn default() -> Counters {
        let convergence = Histogram::new(CONVERGENCE_BUCKETS);
        Counters { commits: 0, commit_seconds: 0.0, rule_panics: 0, panics: 0, stalls: Stalls::default(), convergence }
    }
}

impl Counters {
    /// Records a response that is sent.
    pub(crate) fn note(&self, response: &Response) {
        self.convergence.observe(response.waited.as_secs_f64());
    }
}
