//! The planner, step by step, with a simulated clock.

#![allow(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use config::Observed;
use config::{Diagnostic, FieldPath, Kind, ObjectKey, Severity, Timestamp};
use proptest::prelude::*;
use status::{Counts, Elapsed, Intent, Nack, Now, Planner, ProxyActivity, Settings, Status, Truth};

use support::{key, subject};

fn error(path: FieldPath, message: &str) -> Diagnostic {
    Diagnostic {
        file: None,
        line: 0,
        column: 0,
        object: None,
        path,
        severity: Severity::Error,
        code: "bad-value",
        message: message.into(),
        hint: None,
    }
}

fn counts(running: usize, rejected: usize, pending: usize) -> Counts {
    let nack = (rejected > 0).then(|| Nack {
        proxy: "a.default".into(),
        kind: "RDS".into(),
        resource: "80".into(),
        message: "no such cluster".into(),
    });
    Counts { total: running + rejected + pending, running, rejected, pending, nack, unmade: Vec::new() }
}

/// A planner, a clock, and the counts of each object.
struct Bench {
    planner: Planner,
    now: Elapsed,
    counts: BTreeMap<ObjectKey, Counts>,
    written: Vec<(Elapsed, Intent)>,
    /// The number of count requests.
    requested: usize,
}

impl Bench {
    fn new(leading: bool) -> Bench {
        let mut planner = Planner::new(Settings::default());
        planner.lead(leading, Elapsed::ZERO);
        Bench { planner, now: Elapsed::from_secs(100), counts: BTreeMap::new(), written: Vec::new(), requested: 0 }
    }

    fn saw(&mut self, subject: Observed) {
        self.planner.saw(subject, 7, self.now);
        self.flush();
    }

    fn count(&mut self, name: &str, counts: Counts) {
        let rejected = counts.rejected > 0;
        self.counts.insert(key(name), counts);
        let activity = ProxyActivity { answered: !rejected, rejected, members: false };
        self.planner.proxies_changed(activity, self.now);
        self.flush();
    }

    fn after(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while let Some(at) = self.planner.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.flush();
        }
        self.now = end;
    }

    fn flush(&mut self) {
        let requests = self.planner.due(self.now);
        self.requested += requests.len();
        let counted = requests.into_iter().map(|request| {
            let counts = self.counts.get(&request.key).filter(|_| request.since.is_some());
            (request.key, counts.cloned().unwrap_or_default())
        });
        let counted: Vec<_> = counted.collect();
        let now = Now { elapsed: self.now, wall: wall(self.now) };
        let intents = self.planner.plan(counted, now);
        self.written.extend(intents.into_iter().map(|intent| (self.now, intent)));
    }

    /// The statuses written since the last call, as `MILLIS ACCEPTED/PROGRAMMED RUNNING/TOTAL of GENERATION`.
    fn written(&mut self) -> Vec<String> {
        let all = std::mem::take(&mut self.written);
        all.iter()
            .map(|(at, intent)| {
                let (status, millis) = (&intent.status, at.as_millis() - 100_000);
                let (accepted, programmed) = (&status.accepted.reason, &status.programmed.reason);
                let (counts, generation) = (&status.proxies.counts, status.proxies.generation);
                let (running, total) = (counts.running, counts.total);
                format!("{millis} {accepted}/{programmed} {running}/{total} of {generation}")
            })
            .collect()
    }
}

fn wall(now: Elapsed) -> Timestamp {
    Timestamp::from_unix(1_800_000_000 + i64::try_from(now.as_secs()).unwrap())
}

#[test]
fn quick_acks_cause_one_write_and_slow_ones_one_per_second() {
    let mut bench = Bench::new(true);
    bench.counts.insert(key("a"), counts(0, 0, 3));
    bench.saw(subject("a", 1));
    bench.after(100);
    bench.count("a", counts(3, 0, 0));
    bench.after(5_000);
    assert_eq!(bench.written(), ["100 Accepted/Programmed 3/3 of 1"]);

    bench.counts.insert(key("a"), counts(0, 0, 3));
    bench.saw(subject("a", 2));
    bench.after(1_000);
    assert_eq!(bench.written(), ["5300 Accepted/Pending 0/3 of 2"]);
    bench.count("a", counts(1, 0, 2));
    bench.count("a", counts(2, 0, 1));
    bench.after(100);
    assert_eq!(bench.written(), [""; 0], "at most once per second");
    bench.after(900);
    assert_eq!(bench.written(), ["6300 Accepted/Pending 2/3 of 2"]);
    bench.count("a", counts(3, 0, 0));
    bench.after(60_000);
    assert_eq!(bench.written(), ["7300 Accepted/Programmed 3/3 of 2"]);
}

#[test]
fn a_nack_is_written_at_once_with_its_message() {
    let mut bench = Bench::new(true);
    bench.counts.insert(key("a"), counts(0, 0, 2));
    bench.saw(subject("a", 4));
    bench.after(60);
    bench.count("a", counts(1, 1, 0));
    let (at, intent) = bench.written[0].clone();
    assert_eq!(at, bench.now);
    let json = intent.status.to_json();
    assert_eq!(json["observedGeneration"], 4);
    let programmed = &json["conditions"][1];
    assert_eq!(programmed["status"], "False");
    assert_eq!(programmed["reason"], "Rejected");
    assert_eq!(programmed["message"], "1 of 2 proxies rejects it; a.default: no such cluster");
    let nack = serde_json::json!({
        "proxy": "a.default", "type": "RDS", "resource": "80", "message": "no such cluster"
    });
    assert_eq!(json["proxies"]["rejection"], nack);
    assert_eq!(Status::from_json(Kind::VirtualService, &json), Some(intent.status));
}

#[test]
fn a_nack_is_written_within_an_interval() {
    for (after, expected) in [
        // The first flush after the NACK.
        (0, 50),
        (150, 150),
        (201, 1_200),
        (700, 1_200),
        (1_199, 1_200),
        (1_300, 1_300),
    ] {
        let mut bench = Bench::new(true);
        bench.counts.insert(key("a"), counts(0, 0, 2));
        bench.saw(subject("a", 4));
        bench.after(after);
        bench.count("a", counts(1, 1, 0));
        bench.after(2_000);
        let written = bench.written();
        let last = written.last().unwrap();
        assert_eq!(*last, format!("{expected} Accepted/Rejected 1/2 of 4"), "{written:?}");
        assert!(expected - after <= 1_000);
    }
}

#[test]
fn acks_of_ten_thousand_proxies_cause_few_writes() {
    const OBJECTS: usize = 20;
    const PROXIES: usize = 10_000;
    // All proxies answer one after another within five seconds.
    const STEP: Duration = Duration::from_micros(500);
    let mut bench = Bench::new(true);
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("o{n}")).collect();
    for name in &names {
        bench.counts.insert(key(name), counts(0, 0, PROXIES));
        bench.planner.saw(subject(name, 1), 7, bench.now);
    }
    bench.flush();
    let answered = ProxyActivity { answered: true, ..ProxyActivity::default() };
    for proxy in 1..=PROXIES {
        for name in &names {
            bench.counts.insert(key(name), counts(proxy, 0, PROXIES - proxy));
        }
        bench.planner.proxies_changed(answered, bench.now);
        bench.flush();
        bench.now += STEP;
    }
    bench.after(60_000);
    // One write per second and one at the end. Counting costs something, so that is bounded too.
    let (written, requested) = (bench.written.len(), bench.requested);
    assert!(written <= OBJECTS * 7, "{written} writes");
    assert!(requested <= OBJECTS * 5_000 / 50 + OBJECTS, "{requested} times counted");
    for name in &names {
        let last = bench.written.iter().rfind(|(_, intent)| intent.key == key(name)).unwrap();
        assert_eq!(last.1.status.proxies.counts, counts(PROXIES, 0, 0));
    }
}

#[test]
fn an_invalid_object_reports_its_errors_and_the_generation_in_effect() {
    let mut bench = Bench::new(true);
    let path = FieldPath::spec().field("http").index(0);
    let bad = Observed { diagnostics: vec![error(path, "has no route")], ..subject("a", 1) };
    bench.saw(bad.clone());
    let accepted = bench.written[0].1.status.accepted.clone();
    assert_eq!(accepted.message, "spec.http[0]: has no route");
    assert_eq!(bench.written(), ["0 Invalid/Invalid 0/0 of 0"]);

    bench.counts.insert(key("a"), counts(2, 0, 0));
    bench.saw(subject("a", 2));
    bench.after(1_000);
    assert_eq!(bench.written(), ["1000 Accepted/Programmed 2/2 of 2"]);
    bench.saw(Observed { generation: 3, ..bad });
    bench.after(1_000);
    assert_eq!(bench.written(), ["2000 Invalid/Invalid 2/2 of 2"]);
}

#[test]
fn timestamps_change_only_with_their_conditions() {
    let mut bench = Bench::new(true);
    bench.counts.insert(key("a"), counts(1, 0, 0));
    bench.saw(subject("a", 1));
    let first = bench.written[0].1.status.clone();
    bench.after(20_000);
    bench.counts.insert(key("a"), counts(1, 1, 0));
    bench.saw(subject("a", 2));
    let second = bench.written[1].1.status.clone();
    assert_eq!(second.accepted.since, first.accepted.since);
    assert_eq!(second.programmed.since, wall(bench.now));
    assert_eq!(second.proxies.since, wall(bench.now));
    bench.after(20_000);
    let moved = bench.now;
    bench.counts.insert(key("a"), counts(1, 2, 0));
    bench.saw(subject("a", 3));
    let third = bench.written[2].1.status.clone();
    assert_eq!(third.programmed.since, second.programmed.since);
    assert_eq!(third.proxies.since, wall(moved));
}

#[test]
fn connects_and_disconnects_are_written_rarely() {
    let mut bench = Bench::new(true);
    bench.counts.insert(key("a"), counts(1, 0, 0));
    bench.saw(subject("a", 1));
    bench.written.clear();
    for number in 2..200 {
        bench.counts.insert(key("a"), counts(number, 0, 0));
        let members = ProxyActivity { members: true, ..ProxyActivity::default() };
        bench.planner.proxies_changed(members, bench.now);
        bench.after(100);
    }
    bench.after(60_000);
    let written = bench.written();
    assert!(written.len() <= 4, "{written:?}");
    assert!(written.last().unwrap().ends_with("199/199 of 1"), "{written:?}");
}

#[test]
fn only_the_leader_writes_and_a_new_leader_writes_what_differs() {
    let mut bench = Bench::new(false);
    for name in ["a", "b"] {
        bench.counts.insert(key(name), counts(1, 0, 0));
        bench.saw(subject(name, 1));
        bench.after(100);
    }
    assert_eq!(bench.written(), [""; 0]);
    let states: Vec<_> = bench.planner.reports(None).map(|r| r.status.cloned().unwrap()).collect();
    assert_eq!(states.len(), 2);
    // Another leader wrote `a`.
    bench.saw(Observed { status: Some(states[0].to_json()), ..subject("a", 1) });
    bench.planner.lead(true, bench.now);
    bench.after(20_000);
    let keys: Vec<_> = bench.written.iter().map(|(_, intent)| intent.key.clone()).collect();
    assert_eq!(keys, [key("b")]);
}

#[test]
fn many_objects_are_examined_a_part_at_a_time() {
    const COUNT: usize = 3000;
    let waiting = |bench: &Bench| bench.planner.sizes()[2].1;
    let mut bench = Bench::new(true);
    for number in 0..COUNT {
        bench.planner.saw(subject(&number.to_string(), 1), 7, bench.now);
    }
    bench.after(200_000);
    assert_eq!((waiting(&bench), bench.written.len()), (0, COUNT));
    // All have other counts now: a proxy connected.
    bench.counts = (0..COUNT).map(|number| (key(&number.to_string()), counts(1, 0, 0))).collect();
    bench.planner.proxies_changed(ProxyActivity { members: true, ..ProxyActivity::default() }, bench.now);
    let mut parts = 0;
    while bench.written.len() < 2 * COUNT {
        let before = waiting(&bench);
        bench.now = bench.now.max(bench.planner.deadline().expect("objects are left"));
        bench.flush();
        assert!(waiting(&bench) < before + 1024, "{before} {}", waiting(&bench));
        parts += usize::from(waiting(&bench) > before);
    }
    assert_eq!(parts, 3);
}

#[test]
fn after_a_restart_proxies_have_time_to_reconnect() {
    let written = {
        let mut bench = Bench::new(true);
        bench.counts.insert(key("a"), counts(5, 0, 0));
        bench.saw(subject("a", 1));
        bench.written[0].1.status.to_json()
    };
    let mut bench = Bench::new(false);
    bench.planner.lead(true, bench.now);
    bench.saw(Observed { status: Some(written.clone()), ..subject("a", 1) });
    bench.after(3_000);
    assert_eq!(bench.written(), [""; 0]);
    bench.counts.insert(key("a"), counts(5, 0, 0));
    bench.after(60_000);
    assert_eq!(bench.written(), [""; 0], "the status is unchanged");
}

#[test]
fn a_status_overwritten_by_another_client_is_restored() {
    let mut bench = Bench::new(true);
    bench.counts.insert(key("a"), counts(1, 0, 0));
    bench.saw(subject("a", 1));
    let mut json = bench.written[0].1.status.to_json();
    bench.written.clear();
    bench.after(30_000);
    json["proxies"]["running"] = 100.into();
    bench.saw(Observed { status: Some(json), ..subject("a", 1) });
    bench.after(30_000);
    assert_eq!(bench.written().len(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Saw { object: usize, bad: bool },
    Again { object: usize },
    Gone { object: usize },
    Count { object: usize, counts: (usize, usize, usize) },
    Lead(bool),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let object = 0..8usize;
    prop_oneof![
        3 => (object.clone(), prop::bool::weighted(0.2)).prop_map(|(object, bad)| Step::Saw { object, bad }),
        1 => object.clone().prop_map(|object| Step::Again { object }),
        1 => object.clone().prop_map(|object| Step::Gone { object }),
        6 => (object, (0..4usize, 0..3usize, 0..3usize)).prop_map(|(object, counts)| Step::Count { object, counts }),
        1 => any::<bool>().prop_map(Step::Lead),
        6 => (0..1500u64).prop_map(Step::Wait),
    ]
}

/// Executes steps. Returns the written statuses and the expected final generations.
fn run(steps: &[Step], settings: &Settings) -> (Bench, BTreeMap<ObjectKey, i64>) {
    let mut bench = Bench::new(true);
    bench.planner.set(settings.clone());
    let mut generations: BTreeMap<ObjectKey, i64> = BTreeMap::new();
    let mut next = 0;
    for step in steps {
        match *step {
            Step::Saw { object, bad } => {
                next += 1;
                let mut subject = subject(&format!("o{object}"), next);
                generations.insert(subject.key.clone(), next);
                if bad {
                    subject.diagnostics.push(error(FieldPath::spec(), "is not good"));
                }
                bench.saw(subject);
            }
            Step::Again { object } => {
                let name = format!("o{object}");
                if let Some(generation) = generations.get(&key(&name)) {
                    // A valid new version, or an unchanged object.
                    bench.saw(subject(&name, *generation));
                }
            }
            Step::Gone { object } => {
                let key = key(&format!("o{object}"));
                generations.remove(&key);
                bench.planner.gone(&key);
            }
            Step::Count { object, counts: (a, b, c) } => {
                let members = ProxyActivity { members: true, ..ProxyActivity::default() };
                bench.planner.proxies_changed(members, bench.now);
                bench.count(&format!("o{object}"), counts(a, b, c));
            }
            Step::Lead(leading) => bench.planner.lead(leading, bench.now),
            Step::Wait(millis) => bench.after(millis),
        }
    }
    (bench, generations)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn writes_are_rare_and_the_last_one_is_correct(steps in prop::collection::vec(step(), 1..80), batch in 1..5usize) {
        let settings = Settings { batch, ..Settings::default() };
        let (mut bench, generations) = run(&steps, &settings);
        bench.planner.lead(true, bench.now);
        let members = ProxyActivity { members: true, ..ProxyActivity::default() };
        bench.planner.proxies_changed(members, bench.now);
        bench.after(300_000);
        prop_assert_eq!(bench.planner.deadline(), None, "nothing is scheduled");

        let mut last: BTreeMap<&ObjectKey, (Elapsed, &Intent)> = BTreeMap::new();
        let mut flushes: BTreeMap<Elapsed, usize> = BTreeMap::new();
        for (at, intent) in &bench.written {
            *flushes.entry(*at).or_default() += 1;
            if let Some((before, earlier)) = last.insert(&intent.key, (*at, intent))
                && generations.get(&intent.key).is_some_and(|g| *g == intent.generation)
                && earlier.generation == intent.generation
            {
                prop_assert!(*at >= before + settings.interval, "{} after {:?}", intent.key, *at - before);
                prop_assert!(!earlier.status.says_the_same(&intent.status), "{} twice", intent.key);
            }
        }
        prop_assert!(flushes.values().all(|count| *count <= batch));
        let times: Vec<Elapsed> = flushes.keys().copied().collect();
        prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= settings.floor));

        for (key, generation) in &generations {
            let (_, intent) = last.get(key).unwrap();
            prop_assert_eq!(intent.status.observed, *generation);
            let counted = bench.counts.get(key).cloned().unwrap_or_default();
            if intent.status.proxies.generation > 0 {
                prop_assert_eq!(&intent.status.proxies.counts, &counted);
            }
        }
    }

    #[test]
    fn a_status_survives_a_round_trip(running in 0..9usize, rejected in 0..9usize, pending in 0..9usize, words in ".*") {
        let mut bench = Bench::new(true);
        let mut counts = counts(running, rejected, pending);
        if let Some(nack) = &mut counts.nack {
            nack.message = words;
        }
        bench.counts.insert(key("a"), counts);
        bench.saw(subject("a", 1));
        bench.after(1_000);
        let status = &bench.written[0].1.status;
        let read = Status::from_json(Kind::VirtualService, &status.to_json());
        prop_assert_eq!(read.as_ref(), Some(status));
    }
}

#[test]
fn conflicts_are_reported_while_they_exist() {
    let mut bench = Bench::new(true);
    bench.saw(subject("a", 1));
    let conflict = |code: &'static str, message: &str| Diagnostic {
        severity: Severity::Warning,
        code,
        ..error(FieldPath::spec().field("hosts").index(0), message)
    };
    let set_conflicts = |bench: &mut Bench, conflicts: &[Diagnostic]| {
        bench.planner.conflicted(&key("a"), conflicts, bench.now);
        bench.after(2_000);
    };
    let conditions = |bench: &Bench| {
        let status = bench.written.last().unwrap().1.status.to_json();
        assert_eq!(Status::from_json(Kind::VirtualService, &status).unwrap().to_json(), status);
        let conditions = status["conditions"].as_array().unwrap().clone();
        let short =
            |one: &serde_json::Value| format!("{}={}: {}", one["type"], one["status"], one["message"]).replace('"', "");
        conditions[2..].iter().map(short).collect::<Vec<_>>()
    };
    set_conflicts(
        &mut bench,
        &[conflict(Diagnostic::CONFLICT, "b goes first"), conflict(Diagnostic::MISSING_REFERENCE, "no c")],
    );
    let both = ["Conflicted=True: spec.hosts[0]: b goes first", "ResolvedRefs=False: spec.hosts[0]: no c"];
    assert_eq!(conditions(&bench), both);
    let written = bench.written.len();
    set_conflicts(
        &mut bench,
        &[conflict(Diagnostic::CONFLICT, "b goes first"), conflict(Diagnostic::MISSING_REFERENCE, "no c")],
    );
    assert_eq!(bench.written.len(), written, "nothing changed");
    set_conflicts(&mut bench, &[conflict(Diagnostic::MISSING_REFERENCE, "no c")]);
    assert_eq!(conditions(&bench), &both[1..]);
    set_conflicts(&mut bench, &[]);
    assert_eq!(conditions(&bench), [""; 0]);
}

#[test]
fn an_object_with_parts_that_are_not_implemented_is_not_programmed() {
    let mut bench = Bench::new(true);
    let idle = Diagnostic {
        severity: Severity::Warning,
        code: config::effects::CODE,
        ..error(FieldPath::root(), "the kind is not implemented yet and has no effect")
    };
    bench.saw(Observed { diagnostics: vec![idle], ..subject("a", 1) });
    bench.after(2_000);
    let programmed = |bench: &Bench| {
        let programmed = bench.written.last().unwrap().1.status.programmed.clone();
        (programmed.truth, programmed.reason, programmed.message)
    };
    let message = "the kind is not implemented yet and has no effect".to_owned();
    assert_eq!(programmed(&bench), (Truth::False, "NotImplemented".to_owned(), message));
    bench.saw(subject("a", 2));
    bench.after(2_000);
    assert_eq!(programmed(&bench).0, Truth::True);
}

#[test]
fn a_policy_that_nobody_enforces_is_not_programmed() {
    let mut bench = Bench::new(true);
    let policy = ObjectKey::new(Kind::AuthorizationPolicy, "default", "a");
    bench.saw(Observed { key: policy.clone(), ..subject("a", 1) });
    bench.after(2_000);
    let status = |bench: &Bench| {
        let status = &bench.written.last().unwrap().1.status;
        (status.programmed.truth, status.programmed.reason.clone(), status.accepted.message.clone())
    };
    let valid = "the object is valid".to_owned();
    assert_eq!(status(&bench), (Truth::False, "NoProxies".to_owned(), valid.clone()));
    bench.counts.insert(policy.clone(), counts(2, 0, 0));
    bench.saw(Observed { key: policy.clone(), ..subject("a", 2) });
    bench.after(2_000);
    assert_eq!(status(&bench), (Truth::True, "Programmed".to_owned(), valid));
    // A remark is no problem; a reason why it has no effect is one.
    let remark = |severity, code| Diagnostic { severity, code, ..error(FieldPath::spec().field("rules"), "so it is") };
    let remarks = [remark(Severity::Info, "http-only")];
    bench.planner.conflicted(&policy, &remarks, bench.now);
    bench.after(2_000);
    let noted = "the object is valid; remarks: spec.rules: so it is".to_owned();
    assert_eq!(status(&bench), (Truth::True, "Programmed".to_owned(), noted.clone()));
    let reasons = [remarks[0].clone(), remark(Severity::Warning, Diagnostic::WITHOUT_EFFECT)];
    bench.planner.conflicted(&policy, &reasons, bench.now);
    bench.after(2_000);
    assert_eq!(status(&bench), (Truth::False, "NoEffect".to_owned(), noted));
    assert!(bench.written.last().unwrap().1.status.conflicted.is_none());
}
