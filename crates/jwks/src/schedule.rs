//! The state of each source of keys: what is known, and when it is fetched again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::{KeySet, Timestamp};
use model::jwt::{KeyFailure, KeySource, WantedKeys, WantedSource};

/// The delay after the first failure; it doubles with each further one.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The maximum delay after failures.
const MAX_DELAY: Duration = Duration::from_secs(60);
/// The limits of a fetch's time.
const TIMEOUTS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];
/// The number of jitter steps of a delay.
const JITTER: u32 = 1000;

/// Settings of the schedule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The time after which known keys are fetched again.
    pub refresh: Duration,
    /// How long keys are used that cannot be fetched again.
    pub keep: Duration,
    /// The maximum number of concurrent fetches.
    pub concurrent: usize,
    /// The maximum number of concurrent fetches for one namespace.
    pub concurrent_of_namespace: usize,
    /// The maximum number of sources of one namespace; further ones are not fetched.
    pub sources_of_namespace: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            refresh: Duration::from_secs(20 * 60),
            keep: Duration::from_secs(7 * 24 * 60 * 60),
            concurrent: 16,
            concurrent_of_namespace: 4,
            sources_of_namespace: 200,
        }
    }
}

/// The current time, in both forms.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic, for intervals.
    pub elapsed: Duration,
    /// Wall-clock time, for timestamps.
    pub wall: Timestamp,
}

/// A fetch to begin. Its outcome is reported to [`Schedule::finish`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// The source.
    pub source: KeySource,
    /// The time for all requests together.
    pub timeout: Duration,
}

/// What is known of a source after a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    /// The source.
    pub source: KeySource,
    /// Its keys.
    pub keys: Option<KeySet>,
    /// The last fetch, if it failed.
    pub failure: Option<KeyFailure>,
}

/// Keeps the state of each source.
#[derive(Debug)]
pub struct Schedule {
    settings: Settings,
    sources: BTreeMap<KeySource, State>,
    /// The number of fetches in progress, by namespace; also of sources that are not wanted any more.
    fetching: BTreeMap<KeySource, Arc<str>>,
}

#[derive(Debug)]
struct State {
    timeout: Duration,
    /// The namespace whose limits count.
    namespace: Arc<str>,
    due: Duration,
    /// Whether it was fetched once, with any outcome.
    tried: bool,
    /// The keys, and the time when they were fetched.
    keys: Option<(KeySet, Duration)>,
    failures: u32,
    failure: Option<KeyFailure>,
}

impl State {
    fn new(wanted: &WantedSource, now: Duration) -> State {
        let [shortest, longest] = TIMEOUTS;
        State {
            timeout: wanted.timeout.clamp(shortest, longest),
            namespace: wanted.namespaces.first().cloned().unwrap_or_default(),
            due: now,
            tried: false,
            keys: None,
            failures: 0,
            failure: None,
        }
    }

    fn change(&self, source: &KeySource) -> Change {
        let keys = self.keys.as_ref().map(|(keys, _)| keys.clone());
        Change { source: source.clone(), keys, failure: self.failure.clone() }
    }
}

impl Schedule {
    /// A schedule without sources.
    pub fn new(settings: Settings) -> Schedule {
        Schedule { settings, sources: BTreeMap::new(), fetching: BTreeMap::new() }
    }

    /// Replaces the sources to fetch. Returns the changes: of sources that are not wanted any more, and of those that exceed
    /// a limit.
    pub fn want(&mut self, wanted: &WantedKeys, now: Now) -> Vec<Change> {
        let mut changes = Vec::new();
        let gone = self.sources.extract_if(.., |source, _| !wanted.contains_key(source));
        changes.extend(gone.map(|(source, _)| Change { source, keys: None, failure: None }));
        for (source, wanted) in wanted {
            let new = State::new(wanted, now.elapsed);
            match self.sources.get_mut(source) {
                Some(state) => (state.timeout, state.namespace) = (new.timeout, new.namespace),
                None => {
                    self.sources.insert(source.clone(), new);
                }
            }
        }
        changes.extend(self.apply_limit(now));
        changes
    }

    /// The fetches to begin now, those that are due for the longest time first.
    pub fn begin(&mut self, now: Duration) -> Vec<Fetch> {
        let is_due = |(source, state): &(&KeySource, &State)| state.due <= now && !self.fetching.contains_key(*source);
        let mut due: Vec<(Duration, KeySource)> =
            self.sources.iter().filter(is_due).map(|(source, state)| (state.due, source.clone())).collect();
        due.sort();
        let mut begun = Vec::new();
        for (_, source) in due {
            if self.fetching.len() >= self.settings.concurrent {
                break;
            }
            let Some(state) = self.sources.get(&source) else { continue };
            let others = self.fetching.values().filter(|namespace| **namespace == state.namespace).count();
            if others >= self.settings.concurrent_of_namespace {
                continue;
            }
            self.fetching.insert(source.clone(), state.namespace.clone());
            begun.push(Fetch { source, timeout: state.timeout });
        }
        begun
    }

    /// Records the outcome of a fetch: the keys, or the reason of the failure. `random` spreads the next fetch. Returns the
    /// change, if there is one.
    pub fn finish(
        &mut self,
        source: &KeySource,
        outcome: Result<KeySet, String>,
        now: Now,
        random: u32,
    ) -> Option<Change> {
        self.fetching.remove(source);
        let state = self.sources.get_mut(source)?;
        state.tried = true;
        let before = state.change(source);
        match outcome {
            Ok(keys) => {
                state.keys = Some((keys, now.elapsed));
                (state.failures, state.failure) = (0, None);
                state.due = now.elapsed + spread(self.settings.refresh, random);
            }
            Err(reason) => {
                state.failures = state.failures.saturating_add(1);
                let doubled = FIRST_DELAY.saturating_mul(1 << (state.failures - 1).min(16));
                let delay = spread(doubled.min(MAX_DELAY).min(self.settings.refresh.max(FIRST_DELAY)), random);
                state.due = now.elapsed + delay;
                // Rounded up, so that the time is not over before the attempt.
                let seconds = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX).saturating_add(1);
                let next = Timestamp::from_unix(now.wall.unix_seconds().saturating_add(seconds));
                state.failure = Some(KeyFailure { reason: reason.into(), next });
                let keep = self.settings.keep;
                state.keys.take_if(|(_, fetched)| now.elapsed.saturating_sub(*fetched) >= keep);
            }
        }
        let after = state.change(source);
        (after != before).then_some(after)
    }

    /// The time of the next fetch; none while nothing but fetches in progress can change that.
    pub fn next_due(&self) -> Option<Duration> {
        let waiting = self.sources.iter().filter(|(source, _)| !self.fetching.contains_key(*source));
        let full = self.fetching.len() >= self.settings.concurrent;
        let has_room = |namespace: &Arc<str>| {
            self.fetching.values().filter(|other| *other == namespace).count() < self.settings.concurrent_of_namespace
        };
        let waiting = waiting.filter(|(_, state)| !full && has_room(&state.namespace));
        waiting.map(|(_, state)| state.due).min().filter(|due| *due != Duration::MAX)
    }

    /// Whether every source was fetched once, with any outcome.
    pub fn all_tried(&self) -> bool {
        self.sources.values().all(|state| state.tried)
    }

    /// Excludes the last sources of namespaces with too many, and includes them again when there is room.
    fn apply_limit(&mut self, now: Now) -> Vec<Change> {
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut changes = Vec::new();
        let limit = self.settings.sources_of_namespace;
        for (source, state) in &mut self.sources {
            let count = counts.entry(state.namespace.clone()).or_default();
            *count += 1;
            let excluded = state.due == Duration::MAX;
            if *count > limit && !excluded {
                let reason = format!("the namespace {} has more than {limit} sources of keys", state.namespace);
                let failure = KeyFailure { reason: reason.into(), next: now.wall };
                (state.due, state.tried) = (Duration::MAX, true);
                (state.keys, state.failure) = (None, Some(failure));
                changes.push(state.change(source));
            } else if *count <= limit && excluded {
                (state.due, state.tried, state.failures) = (now.elapsed, false, 0);
            }
        }
        changes
    }
}

/// Between 80 and 100 percent of a delay, so that replicas and sources do not fetch at the same time.
fn spread(delay: Duration, random: u32) -> Duration {
    delay * 4 / 5 + delay / 5 * (random % JITTER) / JITTER
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const KEYS: &str = r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"a","x":"axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY","y":"T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU"}]}"#;

    fn keys() -> KeySet {
        KeySet::fetched(KEYS.as_bytes()).expect("a key set")
    }

    fn source(name: &str) -> KeySource {
        KeySource::Uri(format!("https://{name}.example/keys").into())
    }

    fn wanted(names: &[(&str, &str)]) -> WantedKeys {
        let one = |(name, namespace): &(&str, &str)| {
            let namespaces = BTreeSet::from([Arc::from(*namespace)]);
            (source(name), WantedSource { timeout: Duration::from_secs(5), namespaces })
        };
        names.iter().map(one).collect()
    }

    fn at(seconds: u64) -> Now {
        let wall = Timestamp::from_unix(1_000_000 + i64::try_from(seconds).expect("small"));
        Now { elapsed: Duration::from_secs(seconds), wall }
    }

    fn begun(schedule: &mut Schedule, seconds: u64) -> Vec<KeySource> {
        schedule.begin(Duration::from_secs(seconds)).into_iter().map(|fetch| fetch.source).collect()
    }

    #[test]
    fn keys_are_fetched_at_once_and_again_after_the_interval() {
        let mut schedule = Schedule::new(Settings::default());
        assert!(schedule.want(&wanted(&[("a", "x")]), at(0)).is_empty());
        assert_eq!(begun(&mut schedule, 0), [source("a")]);
        assert_eq!(schedule.next_due(), None);
        assert!(!schedule.all_tried());
        let change = schedule.finish(&source("a"), Ok(keys()), at(1), JITTER - 1).expect("a change");
        assert_eq!((change.keys, change.failure), (Some(keys()), None));
        assert!(schedule.all_tried());
        let due = schedule.next_due().expect("a time").as_secs();
        assert!((1100..=1201).contains(&due), "{due}");
        assert!(begun(&mut schedule, due - 1).is_empty());
        assert_eq!(begun(&mut schedule, due + 1), [source("a")]);
        // Equal keys are no change.
        assert_eq!(schedule.finish(&source("a"), Ok(keys()), at(due + 2), 0), None);
        let gone = schedule.want(&wanted(&[]), at(due + 3));
        assert_eq!(gone, [Change { source: source("a"), keys: None, failure: None }]);
        assert_eq!(schedule.next_due(), None);
    }

    #[test]
    fn failures_keep_the_keys_for_a_time_and_are_retried_with_backoff() {
        let settings = Settings { keep: Duration::from_secs(1000), ..Settings::default() };
        let mut schedule = Schedule::new(settings);
        schedule.want(&wanted(&[("a", "x")]), at(0));
        begun(&mut schedule, 0);
        schedule.finish(&source("a"), Ok(keys()), at(0), 0);
        let mut now = schedule.next_due().expect("a time").as_secs() + 1;
        let mut delays = Vec::new();
        for attempt in 0..12 {
            assert_eq!(begun(&mut schedule, now), [source("a")], "attempt {attempt}");
            let change = schedule.finish(&source("a"), Err("no answer".into()), at(now), JITTER - 1);
            let change = change.expect("another next attempt");
            let failure = change.failure.expect("a failure");
            assert_eq!(&*failure.reason, "no answer");
            assert_eq!(change.keys.is_some(), now < 1000, "{now}");
            let next = schedule.next_due().expect("a time").as_secs() + 1;
            assert_eq!(failure.next.unix_seconds() - 1_000_000, i64::try_from(next).expect("small"));
            delays.push(next - now);
            now = next;
        }
        assert_eq!(delays[..3], [1, 2, 4]);
        assert!(delays.iter().all(|delay| *delay <= 60), "{delays:?}");
        assert_eq!(delays.last(), Some(&60));
    }

    #[test]
    fn a_source_that_never_had_keys_has_none() {
        let mut schedule = Schedule::new(Settings::default());
        schedule.want(&wanted(&[("a", "x")]), at(0));
        begun(&mut schedule, 0);
        let change = schedule.finish(&source("a"), Err("refused".into()), at(0), 0).expect("a change");
        assert_eq!(change.keys, None);
        assert!(schedule.all_tried());
    }

    #[test]
    fn no_namespace_delays_the_keys_of_others() {
        let settings = Settings { concurrent: 4, concurrent_of_namespace: 2, ..Settings::default() };
        let mut schedule = Schedule::new(settings);
        schedule.want(&wanted(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "y")]), at(0));
        assert_eq!(begun(&mut schedule, 0), [source("a"), source("b"), source("d")]);
        assert_eq!(schedule.next_due(), None);
        assert!(begun(&mut schedule, 1).is_empty());
        schedule.finish(&source("a"), Ok(keys()), at(1), 0);
        assert_eq!(begun(&mut schedule, 1), [source("c")]);
    }

    #[test]
    fn sources_beyond_the_limit_of_a_namespace_are_not_fetched() {
        let settings = Settings { sources_of_namespace: 1, ..Settings::default() };
        let mut schedule = Schedule::new(settings);
        let changes = schedule.want(&wanted(&[("a", "x"), ("b", "x"), ("c", "y")]), at(0));
        let [change] = &changes[..] else { panic!("{changes:?}") };
        assert_eq!(change.source, source("b"));
        assert_eq!(begun(&mut schedule, 0), [source("a"), source("c")]);
        schedule.finish(&source("a"), Ok(keys()), at(0), 0);
        schedule.finish(&source("c"), Ok(keys()), at(0), 0);
        assert!(schedule.next_due().is_some_and(|due| due < Duration::MAX));
        schedule.want(&wanted(&[("b", "x"), ("c", "y")]), at(1));
        assert_eq!(begun(&mut schedule, 1), [source("b")]);
    }

    proptest! {
        #[test]
        fn limits_hold_and_every_source_is_fetched(steps in prop::collection::vec((0_u8..6, 0_u8..3, 0_u8..4, any::<u32>()), 1..80)) {
            let settings = Settings { concurrent: 3, concurrent_of_namespace: 2, sources_of_namespace: 3, ..Settings::default() };
            let mut schedule = Schedule::new(settings);
            let mut names: BTreeSet<(String, String)> = BTreeSet::new();
            let mut open: Vec<KeySource> = Vec::new();
            let mut seconds = 0;
            for (name, namespace, action, random) in steps {
                seconds += u64::from(random % 5);
                match action {
                    0 => { names.insert((format!("s{name}"), format!("n{namespace}"))); }
                    1 => { names.retain(|(other, _)| *other != format!("s{name}")); }
                    _ if !open.is_empty() => {
                        let source = open.remove(random as usize % open.len());
                        let outcome = if action == 2 { Ok(keys()) } else { Err("failed".to_owned()) };
                        schedule.finish(&source, outcome, at(seconds), random);
                    }
                    _ => {}
                }
                if action < 2 {
                    let names: Vec<(&str, &str)> = names.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
                    schedule.want(&wanted(&names), at(seconds));
                }
                let fetches = begun(&mut schedule, seconds);
                for source in fetches {
                    prop_assert!(!open.contains(&source));
                    open.push(source);
                }
                prop_assert!(open.len() <= 3);
                // Whatever is due and has room has begun.
                prop_assert!(schedule.next_due().is_none_or(|due| due > Duration::from_secs(seconds)));
            }
        }
    }
}
