//! The promises of the demo and whether they held.

use std::time::Duration;

use test_harness::run::Counts;

/// The promises and the observations that break them.
pub(super) struct Promises {
    /// The proxies that must receive each change, as text.
    proxies: &'static str,
    /// The maximum time until they have a change.
    prompt: Duration,
    latencies: Vec<Duration>,
    held: Vec<(bool, String)>,
}

impl Promises {
    /// Creates an empty record for changes to these proxies with this maximum time.
    pub(super) fn new(proxies: &'static str, prompt: Duration) -> Promises {
        Promises { proxies, prompt, latencies: Vec::new(), held: Vec::new() }
    }

    pub(super) fn change_took(&mut self, latency: Duration) {
        self.latencies.push(latency);
    }

    /// Checks the measured share of a version against its weight, both from 0 to 1.
    ///
    /// Proxies choose at random. The tolerance of four standard deviations fails by chance once in 16,000 checks.
    pub(super) fn split(&mut self, through: &str, counts: &Counts, wanted: f64) {
        let good: u64 = counts.by_version.values().sum();
        let share = counts.share("v2");
        let allowed = 4.0 * (wanted * (1.0 - wanted) / good.max(1) as f64).sqrt();
        self.check(
            good > 0 && (share - wanted).abs() <= allowed + 1e-9,
            format!(
                "{:.1} % for {:.0} % of v2 through the {through}, in {good} requests",
                share * 100.0,
                wanted * 100.0
            ),
        );
    }

    /// Records any other promise.
    pub(super) fn check(&mut self, held: bool, what: impl Into<String>) {
        self.held.push((held, what.into()));
    }

    /// Checks all traffic, at the end.
    pub(super) fn traffic(&mut self, through: &str, counts: &Counts) {
        let mut text =
            format!("{} requests through the {through}, {} not answered with 200", counts.requests, counts.errors);
        if let Some(first) = counts.described.first() {
            text += &format!(" (the first: {first})");
        }
        self.check(counts.errors == 0 && counts.requests > 0, text);
    }

    /// One line per promise, and the verdict.
    pub(super) fn summary(&self) -> Vec<String> {
        let all = self.all();
        let broken = all.iter().filter(|(held, _)| !held).count();
        let line = |(held, text): &(bool, String)| format!("  {} {text}", if *held { "held  " } else { "BROKEN" });
        let verdict = match broken {
            0 => "Every promise held.".to_owned(),
            n => format!("{n} of {} promises did not hold.", all.len()),
        };
        all.iter().map(line).chain([verdict]).collect()
    }

    pub(super) fn all_held(&self) -> bool {
        self.all().iter().all(|(held, _)| *held)
    }

    fn all(&self) -> Vec<(bool, String)> {
        let slowest = self.latencies.iter().max().copied().unwrap_or(Duration::MAX);
        let text = format!(
            "{} changes; the slowest was in {} {} ms after it was sent to the API",
            self.latencies.len(),
            self.proxies,
            slowest.as_millis()
        );
        let mut all = vec![(slowest < self.prompt, text)];
        all.extend(self.held.iter().cloned());
        all
    }
}
