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
/// A step that takes less counts as processor time as a whole.
const SHORT: Duration = Duration::from_millis(1);
/// The minimum time between two such lines.
const QUIET: Duration = Duration::from_secs(10);

/// A kind of work that is not interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Proxies connect.
    Connect,
    /// A request, or a part of it.
    Request,
    /// A part of a commit is applied to the hub, or what the commit changed apart from resources is published.
    Commit,
    /// A stream moves to the ledgers of other audiences.
    Move,
    /// Responses to several streams.
    Push,
    /// Streams are removed.
    Disconnect,
    /// What is not used any more is closed.
    Close,
    /// Waits expire, quarantined resources are tried again, and responses become unused.
    Tick,
    /// Objects' acknowledgements are counted.
    Count,
    /// A page or another query.
    Inspect,
}

impl Step {
    /// The values of the label, in the order of the kinds.
    const NAMES: [&str; 10] =
        ["connect", "request", "commit", "move", "push", "disconnect", "close", "tick", "count", "inspect"];
}

/// The durations of steps.
#[derive(Clone, Debug)]
pub(crate) struct Stalls {
    durations: [Histogram; Step::NAMES.len()],
    /// Their processor time: on a busy machine, a step also lasts while other threads have the processor.
    processor: [Histogram; Step::NAMES.len()],
    /// The processor time of the thread when the turn began, or when the last step ended that was not [`SHORT`].
    used: Duration,
    /// The duration of the steps since, all of them short.
    short: Duration,
    logged: Option<Instant>,
}

impl Default for Stalls {
    fn default() -> Stalls {
        let histograms = || Step::NAMES.map(|_| histogram(&BUCKETS));
        Stalls {
            durations: histograms(),
            processor: histograms(),
            used: Duration::ZERO,
            short: Duration::ZERO,
            logged: None,
        }
    }
}

impl Stalls {
    /// Begins to measure processor time. Call it before the first step of a turn.
    pub(crate) fn begin_turn(&mut self) {
        (self.used, self.short) = (processor::of_thread(), Duration::ZERO);
    }

    /// Records a step that has ended now. `what` says what it was about, for the log.
    pub(crate) fn note(&mut self, step: Step, begun: Instant, what: impl FnOnce() -> String) {
        let now = Instant::now();
        let took = now.saturating_duration_since(begun);
        let used = self.processor_time(took);
        self.processor[step as usize].observe(used.as_secs_f64());
        let is_long = self.record(step, took, now);
        let (step, millis, used) = (Step::NAMES[step as usize], took.as_millis(), used.as_millis());
        if is_long {
            tracing::warn!(
                step,
                what = what(),
                millis,
                processor_millis = used,
                "all other work was held up by one step"
            );
        } else if took > NOTABLE {
            tracing::debug!(
                step,
                what = what(),
                millis,
                processor_millis = used,
                "all other work was held up by one step"
            );
        }
    }

    /// The processor time of a step that has ended now, and lasted for this time. The little work between two steps counts as
    /// a part of the second one. Most steps are short: they are taken to have had the processor, because asking the kernel
    /// costs more than some of them.
    fn processor_time(&mut self, took: Duration) -> Duration {
        if took < SHORT {
            self.short += took;
            return took;
        }
        let (before, others) = (self.used, self.short);
        self.begin_turn();
        self.used.saturating_sub(before).saturating_sub(others).min(took)
    }

    /// The durations of each kind of step, by its name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        Step::NAMES.into_iter().zip(&self.durations)
    }

    /// The processor time of each kind of step, by its name.
    pub(crate) fn processor(&self) -> impl Iterator<Item = (&'static str, &Histogram)> {
        Step::NAMES.into_iter().zip(&self.processor)
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
        spin(ms(3));
        stalls.begin_turn();
        let begun = Instant::now();
        spin(ms(3));
        stalls.note(Step::Commit, begun, String::new);
        let sum = |histograms: &[Histogram], step: Step| histograms[step as usize].get_sample_sum();
        assert!(sum(&stalls.durations, Step::Push) >= 0.02);
        assert!(sum(&stalls.processor, Step::Push) < 0.02, "the thread slept");
        assert!(sum(&stalls.processor, Step::Commit) >= 0.003);
        assert!(sum(&stalls.processor, Step::Commit) <= sum(&stalls.durations, Step::Commit));
    }

    /// Uses processor time.
    fn spin(time: Duration) {
        let begun = processor::of_thread();
        while processor::of_thread() < begun + time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn long_steps_are_logged_once_in_a_while() {
        let mut stalls = Stalls::default();
        let (begin, ms) = (Instant::now(), Duration::from_millis);
        assert!(!stalls.record(Step::Commit, LONG, begin));
        assert!(stalls.record(Step::Commit, LONG + ms(1), begin));
        assert!(!stalls.record(Step::Push, 2 * LONG, begin + QUIET - ms(1)));
        assert!(stalls.record(Step::Push, 2 * LONG, begin + QUIET));
        assert_eq!(stalls.iter().nth(Step::Inspect as usize).map(|(name, _)| name), Some("inspect"));
    }
}
