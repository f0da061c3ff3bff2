//! The counters of the world thread.

use std::time::Duration;

use model::xds::ResourceType;
use prometheus::Histogram;
use xds::Response;

use crate::metrics::{Events, Families, histogram, short};
use crate::stalls::Stalls;

/// The bucket bounds of `pilot_proxy_convergence_time`, in seconds: those of Istio, and finer ones at the low end.
const CONVERGENCE_BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0];
/// The bucket bounds of `pilot_debounce_time`, in seconds.
const DEBOUNCE_BUCKETS: [f64; 9] = [0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0];
/// The bucket bounds of `pilot_xds_push_time`, in seconds.
const PUSH_BUCKETS: [f64; 10] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 1.0, 3.0, 5.0];
/// The bucket bounds of `pilot_xds_config_size_bytes`: those of Istio, and finer ones at the low end.
const SIZE_BUCKETS: [f64; 9] = [1.0, 1e3, 1e4, 1e5, 1e6, 4e6, 1e7, 4e7, 1e8];

/// Counters of the world thread.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) commits: u64,
    pub(crate) commit_seconds: f64,
    pub(crate) rule_panics: u64,
    pub(crate) panics: u64,
    /// Streams closed because the client did not read responses.
    pub(crate) unread: u64,
    /// Rejected resources that were put in quarantine.
    pub(crate) quarantined: u64,
    pub(crate) stalls: Stalls,
    pub(crate) events: Events,
    pub(crate) pushes: Pushes,
    /// The time for which changes waited for the commit.
    pub(crate) debounce: Histogram,
    /// The time from a change until it is sent to a proxy.
    pub(crate) convergence: Histogram,
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            commits: 0,
            commit_seconds: 0.0,
            rule_panics: 0,
            panics: 0,
            unread: 0,
            quarantined: 0,
            stalls: Stalls::default(),
            events: Events::default(),
            pushes: Pushes::default(),
            debounce: histogram(&DEBOUNCE_BUCKETS),
            convergence: histogram(&CONVERGENCE_BUCKETS),
        }
    }
}

impl Counters {
    /// Records a response that is sent, which took this long to compose.
    pub(crate) fn note(&mut self, response: &Response, took: Duration) {
        self.convergence.observe(response.waited.as_secs_f64());
        self.pushes.note(response, took);
    }
}

/// The durations and sizes of responses, by type.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pushes(Vec<(ResourceType, Histogram, Histogram)>);

impl Pushes {
    fn note(&mut self, response: &Response, took: Duration) {
        let found = self.0.iter().position(|(kind, ..)| *kind == response.kind);
        let index = found.unwrap_or_else(|| {
            self.0.push((response.kind, histogram(&PUSH_BUCKETS), histogram(&SIZE_BUCKETS)));
            self.0.len() - 1
        });
        if let Some((_, seconds, bytes)) = self.0.get(index) {
            seconds.observe(took.as_secs_f64());
            bytes.observe(response.rope.len() as f64);
        }
    }

    pub(crate) fn write(&self, out: &mut Families) {
        let kinds: Vec<String> = self.0.iter().map(|(kind, ..)| short(*kind)).collect();
        let seconds = kinds.iter().zip(&self.0).map(|(kind, (_, seconds, _))| (vec![("type", kind.as_str())], seconds));
        out.histogram("pilot_xds_push_time", "Seconds in which a response was composed and queued, by type", seconds);
        let bytes = kinds.iter().zip(&self.0).map(|(kind, (.., bytes))| (vec![("type", kind.as_str())], bytes));
        out.histogram("pilot_xds_config_size_bytes", "Bytes of responses, by type", bytes);
    }
}
