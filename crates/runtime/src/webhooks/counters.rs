//! istiod's metrics of the webhooks (`sidecar_injection_*` and `galley_validation_*`).

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use admission::webhook::{Call, Verdict};
use server::Metric;

/// The outcome of an injection call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Injected {
    Done,
    Skipped,
    Failed,
}

impl Injected {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Injected::Done => "injected",
            Injected::Skipped => "skipped",
            Injected::Failed => "failed",
        }
    }
}

/// The counts of calls.
#[derive(Default)]
pub(super) struct Counters(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    requests: u64,
    done: u64,
    skipped: u64,
    failed: u64,
    timed: u64,
    seconds: f64,
    /// By group, version and resource.
    passed: BTreeMap<Vec<String>, u64>,
    /// By group, version, resource and reason.
    refused: BTreeMap<Vec<String>, u64>,
    http_errors: BTreeMap<u16, u64>,
}

impl Counters {
    pub(super) fn injected(&self, outcome: Injected, took: Duration) {
        let mut counts = self.lock();
        counts.requests += 1;
        counts.timed += 1;
        counts.seconds += took.as_secs_f64();
        match outcome {
            // A call that is answered is a success, also without a sidecar, as in istiod.
            Injected::Done => counts.done += 1,
            Injected::Skipped => {
                counts.done += 1;
                counts.skipped += 1;
            }
            Injected::Failed => counts.failed += 1,
        }
    }

    pub(super) fn refused_injection(&self) {
        let mut counts = self.lock();
        counts.requests += 1;
        counts.failed += 1;
    }

    pub(super) fn validation_http_error(&self, status: u16) {
        *self.lock().http_errors.entry(status).or_default() += 1;
    }

    pub(super) fn validated(&self, call: &Call, verdict: &Verdict) {
        let mut labels = call.resource.to_vec();
        let mut counts = self.lock();
        match verdict {
            Verdict::Passed(_) => *counts.passed.entry(labels).or_default() += 1,
            Verdict::Unjudged => {
                labels.push("unsupported_operation".to_owned());
                *counts.refused.entry(labels).or_default() += 1;
            }
            Verdict::Failed { reason, .. } => {
                labels.push((*reason).to_owned());
                *counts.refused.entry(labels).or_default() += 1;
            }
        }
    }

    pub(super) fn metrics(&self) -> Vec<Metric> {
        let counts = self.lock();
        let by = |map: &BTreeMap<Vec<String>, u64>| -> Vec<(Vec<String>, f64)> {
            map.iter().map(|(labels, count)| (labels.clone(), *count as f64)).collect()
        };
        let http = counts.http_errors.iter().map(|(status, count)| (vec![status.to_string()], *count as f64));
        vec![
            Metric::counter("sidecar_injection_requests_total", "Calls of the injection webhook", counts.requests),
            Metric::counter("sidecar_injection_success_total", "Injection calls that were answered", counts.done),
            Metric::counter("sidecar_injection_failure_total", "Injection calls that failed", counts.failed),
            Metric::counter(
                "sidecar_injection_skip_total",
                "Injection calls for pods that get no sidecar",
                counts.skipped,
            ),
            Metric::counter_by(
                "sidecar_injection_time_seconds_sum",
                "Seconds that injection calls took",
                &[],
                [(Vec::new(), counts.seconds)],
            ),
            Metric::counter(
                "sidecar_injection_time_seconds_count",
                "Injection calls in the sum of their times",
                counts.timed,
            ),
            Metric::counter_by(
                "galley_validation_passed",
                "Objects that the validation webhook accepted",
                &["group", "version", "resource"],
                by(&counts.passed),
            ),
            Metric::counter_by(
                "galley_validation_failed",
                "Objects that the validation webhook refused",
                &["group", "version", "resource", "reason"],
                by(&counts.refused),
            ),
            Metric::counter_by(
                "galley_validation_http_error",
                "Calls of the validation webhook that are not valid",
                &["status"],
                http,
            ),
        ]
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        // Counts are valid after every change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
