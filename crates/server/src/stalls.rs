//! How long the world's thread holds up other work.

use std::time::{Duration, Instant};

use prometheus::Histogram;

use crate::metrics::histogram;
use crate::processor;

/// The bucket bounds, in seconds. No step should take more than 50 ms.
const BUCKETS: [f64; 12] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 3.0, 10.0];
/// A step that takes longer is logged as a warning.
const LONG: Duration = Duration::from_secs(1);
/// A step that takes longer is logged on the level `debug`.
const NOTABLE: Duration = Duration::from_millis(50);
/// The minimum time between two such lines.
const QUIET: Duration = Duration::from_secs(10);

/// A kind of work that is not interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Proxies connect.
    Connect,
    /// A request, or a part of it.
    Request,
    /// A complete commit is applied to the hub.
    Commit,
    /// A stream moves to the ledgers of other audiences.
    Move,
    /// Responses to several streams.
    Push,
    /// Streams are removed.
    Disconnect,
    /// Unused cells are closed.
    Close,
    /// Objects' acknowledgements are counted.
    Count,
    /// A page or another query.
    Inspect,
}

impl Step {
    const ALL: [Step; 9] = [
        Step::Connect,
        Step::Request,
        Step::Commit,
        Step::Move,
        Step::Push,
        Step::Disconnect,
        Step::Close,
        Step::Count,
        Step::Inspect,
    ];

    /// The value of the label.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Step::Connect => "connect",
            Step::Request => "request",
            Step::Commit => "commit",
            Step::Move => "move",
            Step::Push => "push",
            Step::Disconnect => "disconnect",
            Step::Close => "close",
            Step::Count => "count",
            Step::Inspect => "inspect",
        }
    }
}

/// The durations of steps.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    durations: [Histogram; Step::ALL.len()],
    /// Their processor time: on a busy machine, a step also lasts while other threads have the processor.
    processor: [Histogram; Step::ALL.len()],
    /// The processor time of the thread at the end of the last step.
    used: Duration,
    logged: Option<Instant>,
}

impl Default for Stalls {
    fn default() -> Stalls {
        let histograms = || Step::ALL.map(|_| histogram(&BUCKETS));
        Stalls { durations: histograms(), processor: histograms(), used: Duration::ZERO, logged: None }
    }
}

impl Stalls {
    /// Records a step that has ended now. `what` says what it was about, for the log.
    pub(crate) fn note(&mut self, step: Step, begun: Instant, what: impl FnOnce() -> String) {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun);
        // The little work between two steps counts as a part of the second one.
        let used = processor::of_thread();
        self.processor[step as usize].observe(used.saturating_sub(self.used).as_secs_f64());
        self.used = used;
        let is_long = self.record(step, took, now);
        let (step, millis) = (step.name(), took.as_millis());
        if is_long {
            tracing::warn!(step, what = what(), millis, "all other work was held up by one step");
        } else if took > NOTABLE {
            tracing::debug!(step, what = what(), millis, "all other work was held up by one step");
        }
    }

    /// The durations of each kind of step.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Step, &Histogram)> {
        Step::ALL.into_iter().zip(&self.durations)
    }

    /// The processor time of each kind of step.
    pub(crate) fn processor(&self) -> impl Iterator<Item = (Step, &Histogram)> {
        Step::ALL.into_iter().zip(&self.processor)
    }

    /// Records a step. Returns whether it is to be logged.
    fn record(&mut self, step: Step, took: Duration, now: Instant) -> bool {
        self.durations[step as usize].observe(took.as_secs_f64());
        let logs = took > LONG && self.logged.is_none_or(|last| now.saturating_duration_since(last) >= QUIET);
        if logs {
            self.logged = Some(now);
        }
        logs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_others_have_the_processor_is_not_counted() {
        let mut stalls = Stalls::default();
        stalls.note(Step::Push, Instant::now(), String::new);
        let (ms, begun) = (Duration::from_millis, Instant::now());
        std::thread::sleep(ms(20));
        stalls.note(Step::Push, begun, String::new);
        let begun = processor::of_thread();
        while processor::of_thread() < begun + ms(3) {
            std::hint::spin_loop();
        }
        stalls.note(Step::Commit, Instant::now(), String::new);
        let sum = |histograms: &[Histogram], step: Step| histograms[step as usize].get_sample_sum();
        assert!(sum(&stalls.durations, Step::Push) >= 0.02);
        assert!(sum(&stalls.processor, Step::Push) < 0.02, "the thread slept");
        assert!(sum(&stalls.processor, Step::Commit) >= 0.003);
    }

    #[test]
    fn long_steps_are_logged_once_in_a_while() {
        let mut stalls = Stalls::default();
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        assert!(!stalls.record(Step::Commit, LONG, begin));
        assert!(stalls.record(Step::Commit, LONG + ms(1), begin));
        assert!(!stalls.record(Step::Push, 2 * LONG, begin + QUIET - ms(1)));
        assert!(stalls.record(Step::Push, 2 * LONG, begin + QUIET));
        let names: Vec<&str> = stalls.iter().map(|(step, _)| step.name()).collect();
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), names.len());
    }
}
