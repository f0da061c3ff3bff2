//! Workloads register at two replicas, whose clocks differ, over one simulated API. Reads, writes and observations come
//! in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controllers::registration::{
    Claim, Control, Found, Key, Nanos, Of, Options, Proof, Refusal, Registrations, Step, Stream, Written,
};
use controllers::{Body, Write};
use proptest::prelude::*;
use serde_json::{Value, json};

const SECOND: Nanos = 1_000_000_000;
const GRACE: Nanos = 10 * SECOND;
/// Some time in 2026.
const START: Nanos = 1_780_000_000 * SECOND;

/// The API: entries with their versions, and whether there is a group.
#[derive(Default)]
struct Server {
    entries: BTreeMap<Key, Value>,
    version: u64,
    no_group: bool,
    deletions: Vec<Key>,
    creations: u64,
}

fn group() -> Value {
    json!({
        "metadata": {"name": "vm", "namespace": "shop", "uid": "g"},
        "spec": {
            "metadata": {"labels": {"app": "group", "tier": "b"}, "annotations": {"note": "x"}},
            "template": {"serviceAccount": "cart", "labels": {"app": "template", "v": "1"}, "network": "n0", "ports": {"http": 80}},
        },
    })
}

impl Server {
    fn read(&self, key: &Key, group_wanted: bool) -> Found {
        let entry = self.entries.get(key).cloned();
        let group = (entry.is_none() && group_wanted && !self.no_group).then(group);
        Found { entry, group }
    }

    fn write(&mut self, key: &Key, write: &Write) -> Written {
        let there = self.entries.get(key);
        let versioned = |version: &Arc<str>| there.is_some_and(|one| one["metadata"]["resourceVersion"] == **version);
        match &write.body {
            Body::Create { .. } if there.is_some() => return Written::Changed,
            Body::Delete { version } | Body::Merge { version, .. } if !versioned(version) => return Written::Changed,
            Body::Create { fields, .. } => {
                self.creations += 1;
                self.entries.insert(key.clone(), fields.clone());
            }
            Body::Delete { .. } => {
                self.entries.remove(key);
                self.deletions.push(key.clone());
            }
            Body::Merge { patch, .. } => merge(self.entries.get_mut(key).unwrap(), patch),
            Body::Apply { .. } => panic!("{write:?}"),
        }
        self.version += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry["metadata"]["resourceVersion"] = self.version.to_string().into();
        }
        Written::Done
    }

    fn view(&self) -> BTreeMap<Key, Control> {
        self.entries.iter().map(|(key, entry)| (key.clone(), control(entry))).collect()
    }
}

fn control(entry: &Value) -> Control {
    Control::of(|name| entry["metadata"]["annotations"][name].as_str())
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *into = patch.clone() };
    for (name, value) in patch {
        match value {
            Value::Null => drop(into.as_object_mut().map(|fields| fields.remove(name))),
            value => merge(&mut into[name], value),
        }
    }
}

fn claim(host: u8) -> Claim {
    Claim {
        id: format!("vm-{host}.shop").into(),
        namespace: "shop".into(),
        of: Of::Group("vm".into()),
        address: [10, 0, 0, host].into(),
        network: "".into(),
        labels: BTreeMap::new(),
        locality: String::new(),
        probed: false,
        proof: Proof::Identity("shop".into(), "cart".into()),
    }
}

/// A replica with operations that are in flight.
struct Replica {
    machine: Registrations,
    /// The difference of its clock.
    skew: Nanos,
    pending: Vec<Pending>,
    replies: BTreeMap<Stream, Result<(), Refusal>>,
}

enum Pending {
    Step(Step),
    /// A read whose result has not arrived.
    Found(Key, Found),
    Written(Key, Written),
}

impl Replica {
    fn new(name: &str, skew: Nanos) -> Replica {
        let options =
            Options { instance: name.into(), grace: GRACE, longest: None, health: true, check: true, in_flight: 2 };
        Replica { machine: Registrations::new(options), skew, pending: Vec::new(), replies: BTreeMap::new() }
    }

    fn tick(&mut self, now: Nanos) {
        for step in self.machine.tick(now + self.skew) {
            match step {
                Step::Reply(stream, reply) => drop(self.replies.insert(stream, reply)),
                step => self.pending.push(Pending::Step(step)),
            }
        }
    }

    /// Executes one pending operation in part, or delivers its result. `fail`: it fails.
    fn advance(&mut self, place: usize, fail: bool, server: &mut Server, now: Nanos) {
        self.tick(now);
        if self.pending.is_empty() {
            return;
        }
        let place = place % self.pending.len();
        let local = now + self.skew;
        match self.pending.swap_remove(place) {
            Pending::Step(Step::Read { key, .. }) if fail => self.machine.found(&key, Err("down".into()), local),
            Pending::Step(Step::Read { key, group }) => {
                let found = server.read(&key, group.is_some());
                self.pending.push(Pending::Found(key, found));
            }
            Pending::Step(Step::Write(key, write)) => {
                let written = server.write(&key, &write);
                // A failure may hide a success.
                let written = if fail { Written::Failed("timed out".into()) } else { written };
                self.pending.push(Pending::Written(key, written));
            }
            Pending::Step(Step::Reply(..)) => {}
            Pending::Found(key, found) => self.machine.found(&key, Ok(found), local),
            Pending::Written(key, written) => self.machine.written(&key, written, local),
        }
        self.tick(now);
    }

    fn observe(&mut self, server: &Server, now: Nanos) {
        let groups = if server.no_group { BTreeSet::new() } else { BTreeSet::from([("shop".into(), "vm".into())]) };
        self.machine.observe(server.view(), groups, now + self.skew);
        self.tick(now);
    }

    fn drain(&mut self, server: &mut Server, now: Nanos) {
        self.tick(now);
        while !self.pending.is_empty() {
            self.advance(0, false, server, now);
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Connect(usize, u8),
    Disconnect(usize),
    Advance { replica: usize, place: usize, fail: bool },
    Pass(Nanos),
    Restart(usize),
    Delete(u8),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..2_usize, 1..4_u8).prop_map(|(replica, host)| Event::Connect(replica, host)),
        3 => (0..64_usize).prop_map(Event::Disconnect),
        12 => (0..2_usize, 0..4_usize, prop::bool::weighted(0.1))
            .prop_map(|(replica, place, fail)| Event::Advance { replica, place, fail }),
        3 => (0..2 * SECOND).prop_map(Event::Pass),
        1 => (0..2_usize).prop_map(Event::Restart),
        1 => (1..4_u8).prop_map(Event::Delete),
    ]
}

struct Model {
    server: Server,
    replicas: [Replica; 2],
    now: Nanos,
    next: Stream,
    /// The streams of proxies: replica and host.
    streams: BTreeMap<Stream, (usize, u8)>,
}

impl Model {
    fn new(skew: Nanos) -> Model {
        let replicas = [Replica::new("a", 0), Replica::new("b", skew)];
        Model { server: Server::default(), replicas, now: START, next: 0, streams: BTreeMap::new() }
    }

    fn connect(&mut self, replica: usize, host: u8) -> Stream {
        self.next += 1;
        self.streams.insert(self.next, (replica, host));
        let of = &mut self.replicas[replica];
        of.machine.connect(self.next, claim(host), self.now + of.skew);
        of.tick(self.now);
        self.next
    }

    fn disconnect(&mut self, stream: Stream) {
        let (replica, _) = self.streams.remove(&stream).unwrap();
        let of = &mut self.replicas[replica];
        of.machine.disconnect(stream, self.now + of.skew);
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Connect(replica, host) => drop(self.connect(replica, host)),
            Event::Disconnect(place) => {
                if let Some(stream) = self.streams.keys().nth(place % self.streams.len().max(1)).copied() {
                    self.disconnect(stream);
                }
            }
            Event::Advance { replica, place, fail } => {
                self.replicas[replica].advance(place, fail, &mut self.server, self.now);
            }
            Event::Pass(time) => self.pass(time),
            Event::Restart(replica) => {
                // Its streams end, and nobody learns of it.
                self.streams.retain(|_, (at, _)| *at != replica);
                let name = ["a", "b"][replica];
                self.replicas[replica] = Replica::new(name, self.replicas[replica].skew);
            }
            Event::Delete(host) => drop(self.server.entries.remove(&("shop".into(), claim(host).entry()))),
        }
        // Streams that were refused have ended.
        let replicas = &self.replicas;
        self.streams.retain(|stream, (replica, _)| !matches!(replicas[*replica].replies.get(stream), Some(Err(_))));
    }

    /// Time passes. Observations are late, but not by more than this.
    fn pass(&mut self, time: Nanos) {
        self.now += time;
        for replica in &mut self.replicas {
            replica.observe(&self.server, self.now);
        }
    }

    /// Everything is executed until nothing changes, with regular sweeps.
    fn settle(&mut self) {
        for second in 1..=60 * 5 {
            self.pass(SECOND / 5);
            for replica in &mut self.replicas {
                if second % 100 == 0 {
                    replica.machine.sweep(self.now + replica.skew);
                }
                replica.drain(&mut self.server, self.now);
            }
            self.check_deletions();
        }
    }

    /// No proxy whose registration succeeded is connected when its entry is deleted.
    fn check_deletions(&mut self) {
        let deleted = std::mem::take(&mut self.server.deletions);
        let registered = |(stream, (replica, host)): (&Stream, &(usize, u8))| {
            let key: Key = ("shop".into(), claim(*host).entry());
            self.replicas[*replica].replies.contains_key(stream).then_some(key)
        };
        let live: BTreeSet<Key> = self.streams.iter().filter_map(registered).collect();
        assert!(deleted.iter().all(|key| !live.contains(key)), "{deleted:?}");
    }

    fn connected(&self) -> BTreeSet<Key> {
        self.streams.values().map(|(_, host)| ("shop".into(), claim(*host).entry())).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn entries_exist_exactly_while_proxies_are_connected(
        skew in -3 * SECOND..3 * SECOND,
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut model = Model::new(skew);
        for event in &events {
            model.apply(event);
            model.check_deletions();
        }
        model.settle();
        let there: BTreeSet<Key> = model.server.entries.keys().cloned().collect();
        prop_assert_eq!(&there, &model.connected());
        prop_assert!(model.server.view().values().all(Control::is_connected));
        for (stream, (replica, _)) in &model.streams {
            prop_assert_eq!(model.replicas[*replica].replies.get(stream), Some(&Ok(())));
        }
        let now = model.now;
        prop_assert!(model.replicas.iter().all(|replica| replica.machine.is_idle(now + replica.skew)));
    }
}

#[test]
fn an_entry_is_made_from_template_group_and_proxy() {
    let mut model = Model::new(0);
    let mut claim = claim(1);
    claim.labels = [("app".into(), "proxy".into()), ("istio-locality".into(), "r.z".into())].into();
    (claim.network, claim.locality, claim.probed) = ("n1".into(), "r/z".into(), true);
    let key: Key = ("shop".into(), claim.entry());
    assert_eq!(&*key.1, "vm-10.0.0.1-n1");
    model.replicas[0].machine.connect(1, claim, START);
    model.replicas[0].drain(&mut model.server, START);
    let entry = &model.server.entries[&key];
    let spec = json!({
        "address": "10.0.0.1", "labels": {"app": "proxy", "tier": "b", "v": "1"}, "locality": "r/z", "network": "n1",
        "ports": {"http": 80}, "serviceAccount": "cart",
    });
    assert_eq!(entry["spec"], spec);
    let annotations = json!({
        "istio.io/autoRegistrationGroup": "vm", "istio.io/connectedAt": "2026-05-28T20:26:40Z",
        "istio.io/workloadController": "a", "note": "x", "proxy.istio.io/health-checks-enabled": "true",
    });
    assert_eq!(entry["metadata"]["annotations"], annotations);
    assert_eq!(entry["metadata"]["labels"], spec["labels"]);
    assert_eq!(entry["metadata"]["ownerReferences"][0]["uid"], "g");
}

#[test]
fn health_is_written_once_for_each_change() {
    let mut model = Model::new(0);
    let stream = model.connect(0, 1);
    let key: Key = ("shop".into(), claim(1).entry());
    let health = |model: &Model| model.server.entries[&key]["status"]["conditions"][0].clone();
    for (error, status) in [(None, "True"), (Some("refused"), "False"), (Some("refused"), "False"), (None, "True")] {
        model.now += SECOND;
        model.replicas[0].machine.report(stream, error.map(str::to_owned), model.now);
        model.replicas[0].drain(&mut model.server, model.now);
        assert_eq!(health(&model)["status"], status);
        assert_eq!(health(&model)["message"].as_str(), error);
    }
    assert_eq!(model.server.version, 4, "one registration and three changes");
}

#[test]
fn a_health_checked_entry_is_controlled_and_loses_its_condition() {
    let mut model = Model::new(0);
    let key: Key = ("shop".into(), "own".into());
    let of = |stream, model: &mut Model| {
        let claim = Claim { of: Of::Entry("own".into()), ..claim(1) };
        model.replicas[0].machine.connect(stream, claim, model.now);
        model.replicas[0].drain(&mut model.server, model.now);
        model.replicas[0].replies[&stream].clone()
    };
    assert_eq!(of(1, &mut model), Err(Refusal::NoEntry("shop/own".into())));
    model.server.entries.insert(key.clone(), json!({"metadata": {"resourceVersion": "0"}, "spec": {}}));
    assert_eq!(of(2, &mut model), Ok(()));
    assert_eq!(model.server.version, 0, "it has no annotation");
    let annotations = json!({"proxy.istio.io/health-checks-enabled": "false"});
    model.server.entries.get_mut(&key).unwrap()["metadata"]["annotations"] = annotations;
    assert_eq!(of(3, &mut model), Ok(()));
    model.replicas[0].machine.report(3, None, model.now);
    model.now += SECOND;
    model.replicas[0].drain(&mut model.server, model.now);
    assert_eq!(model.server.entries[&key]["status"]["conditions"][0]["status"], "True");
    [2, 3].into_iter().for_each(|stream| model.replicas[0].machine.disconnect(stream, model.now));
    model.settle();
    assert_eq!(model.server.entries[&key]["status"]["conditions"], json!([]));
}

#[test]
fn registrations_are_refused_and_late_groups_are_used() {
    let proofs = [
        (Proof::Nothing, Some("proves no identity")),
        (Proof::Local(None), None),
        (Proof::Local(Some("bank".into())), Some(r#"its namespace is "bank""#)),
        (Proof::Identity("bank".into(), "cart".into()), Some(r#"its namespace is "bank""#)),
        (Proof::Identity("shop".into(), "other".into()), Some(r#"its service account is "other", not "cart""#)),
        (Proof::Identity("shop".into(), "cart".into()), None),
    ];
    for (proof, refusal) in proofs {
        // With a new entry and with one that exists.
        for exists in [false, true] {
            let mut model = Model::new(0);
            if exists {
                let other = Claim { proof: Proof::Identity("shop".into(), "cart".into()), ..claim(1) };
                model.replicas[1].machine.connect(9, other, START);
                model.replicas[1].drain(&mut model.server, START);
            }
            model.replicas[0].machine.connect(1, Claim { proof: proof.clone(), ..claim(1) }, START);
            model.replicas[0].drain(&mut model.server, START);
            match (&model.replicas[0].replies[&1], refusal) {
                (Ok(()), None) => {}
                (Err(error), Some(text)) => assert!(error.to_string().contains(text), "{error}"),
                other => panic!("{proof:?}: {other:?}"),
            }
        }
    }
    let mut model = Model::new(0);
    model.connect(0, 1);
    model.replicas[0].drain(&mut model.server, START);
    // The group is deleted with its entries, and created again.
    model.server.no_group = true;
    model.pass(0);
    model.server.entries.clear();
    model.settle();
    assert!(model.server.entries.is_empty());
    let stream = model.connect(0, 2);
    model.settle();
    let refusal = model.replicas[0].replies[&stream].clone().unwrap_err();
    assert!(refusal.to_string().contains("WorkloadGroup shop/vm does not exist"), "{refusal}");
    model.server.no_group = false;
    model.settle();
    assert_eq!(model.server.entries.len(), 1, "only the first one is still connected");
    assert_eq!(model.replicas[0].machine.counters().success, 2);
}

#[test]
fn thousands_that_connect_at_once_are_registered_a_few_at_a_time() {
    let mut model = Model::new(0);
    for stream in 0..2_000 {
        let address = [10, 0, u8::try_from(stream / 250).unwrap(), u8::try_from(stream % 250).unwrap()].into();
        let at = model.now;
        model.replicas[0].machine.connect(stream, Claim { address, ..claim(1) }, at);
    }
    model.replicas[0].tick(START);
    assert_eq!(model.replicas[0].pending.len(), 2);
    model.replicas[0].drain(&mut model.server, START);
    assert_eq!((model.server.entries.len(), model.server.creations), (2_000, 2_000));
}
