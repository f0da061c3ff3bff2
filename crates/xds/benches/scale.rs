//! The costs of streams: time per response and memory per stream.
//!
//! `cargo bench -p xds [SERVICES] [STREAMS]`. The world is synthetic and derives nothing, so this measures only the
//! state machine.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a measurement that fails should say so")]

#[path = "../tests/machine/world.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod world;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use envoy::types::{CLUSTER, ENDPOINTS, LISTENER, ROUTE};
use model::proxy::{Capabilities, InterceptionMode, Locality, Proxy, ProxyKind};
use model::xds::{Resource, ResourceType};
use xds::decode::Body;
use xds::{Hub, Limits, Moment, Next, Progress, Question, Request, Response, StreamId, Variant};

use world::{World, plain};

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|argument| argument.parse().ok()).collect();
    let services = numbers.first().copied().unwrap_or(1000);
    let streams = numbers.get(1).copied().unwrap_or(1000);
    let mut bench = Bench::new(services);
    println!("{services} services, {streams} streams, delta");

    // The first stream pays for shared state.
    let begun = Instant::now();
    bench.join();
    println!("first stream          {:>10.1} µs", micros(begun));
    bench.print_longest();
    let (begun, resident) = (Instant::now(), resident_bytes());
    (1..streams).for_each(|_| bench.join());
    let more = (streams - 1).max(1) as f64;
    println!("each further stream   {:>10.1} µs", micros(begun) / more);
    println!("each further stream   {:>10.0} bytes resident", resident_bytes().saturating_sub(resident) as f64 / more);

    for (what, kind) in [("one endpoint changes", ENDPOINTS), ("one route changes   ", ROUTE)] {
        let name = if kind == ROUTE { "routes" } else { "s1" };
        bench.world.put(kind, "a", name, plain(2));
        let begun = Instant::now();
        bench.commit();
        let committed = micros(begun);
        let sent = bench.answer_all();
        let each = (micros(begun) - committed) / streams as f64;
        println!("{what}  {committed:>10.1} µs to commit, {each:.2} µs a stream ({sent} responses)");
    }

    bench.world.put(CLUSTER, "a", "new", plain(1));
    bench.world.put(ENDPOINTS, "a", "new", plain(1));
    let begun = Instant::now();
    bench.commit();
    let committed = micros(begun);
    let mut sent = bench.answer_all();
    for id in bench.streams.clone() {
        bench.subscribe(id, ENDPOINTS, &["new"]);
    }
    sent += bench.answer_all();
    let each = (micros(begun) - committed) / streams as f64;
    println!("one service is added  {committed:>10.1} µs to commit, {each:.2} µs a stream ({sent} responses)");
    bench.count_answers(services);

    // Without the NACKs from above, which divide the streams.
    let mut bench = Bench::new(services);
    (0..streams).for_each(|_| bench.join());
    let moved = bench.move_all();
    println!("all move              {:>10.2} µs a stream", moved / streams as f64);
    layered(services, streams);
}

/// Streams that each have a small list of their own beside the shared one.
fn layered(services: usize, streams: usize) {
    let mut bench = Bench::new(services);
    // Audiences of the synthetic world are static.
    let own: Vec<&'static str> = (0..streams).map(|n| &*Box::leak(format!("own-{n}").into_boxed_str())).collect();
    for audience in &own {
        // The last one replaces a shared cluster.
        for name in ["inbound", "passthrough", "s0"] {
            bench.world.put(CLUSTER, audience, name, plain(7));
        }
    }
    bench.commit();
    bench.join_with_own(own[0]);
    let (begun, resident) = (Instant::now(), resident_bytes());
    own[1..].iter().for_each(|audience| bench.join_with_own(audience));
    let more = (streams - 1).max(1) as f64;
    println!("with a list of its own: {:>8.1} µs, {:.0} bytes resident each", micros(begun) / more, {
        resident_bytes().saturating_sub(resident) as f64 / more
    });
    for (what, audiences, name) in [
        ("a shared cluster changes", &["a"][..], "s1"),
        ("an own cluster changes  ", &own[..1], "inbound"),
        ("all own clusters change ", &own, "inbound"),
    ] {
        audiences
            .iter()
            .for_each(|audience| bench.world.put(CLUSTER, audience, name, plain(audiences.len() as u32 + 1)));
        let begun = Instant::now();
        bench.commit();
        let committed = micros(begun);
        let sent = bench.answer_all();
        println!("{what} {committed:>10.1} µs to commit, {:.1} µs in all ({sent} responses)", micros(begun));
    }
    for (what, number) in [("the same endpoints", 1), ("old endpoints     ", 2)] {
        bench.world.put(ENDPOINTS, "a", "s1", plain(number));
        let (first, rest) = bench.return_all();
        println!("back with {what} {first:>10.1} µs for the first, {rest:.1} µs for each further stream");
        bench.print_longest();
    }
}

struct Bench {
    hub: Hub<World>,
    world: World,
    names: Vec<String>,
    streams: Vec<StreamId>,
    /// The longest step of each kind since they were printed, in microseconds.
    longest: BTreeMap<&'static str, f64>,
}

impl Bench {
    fn new(services: usize) -> Bench {
        let mut world = World::default();
        let names: Vec<String> = (0..services).map(|n| format!("s{n}")).collect();
        for name in &names {
            world.put(CLUSTER, "a", name, plain(1));
            world.put(ENDPOINTS, "a", name, plain(1));
        }
        world.put(LISTENER, "a", "listener", plain(1));
        world.put(ROUTE, "a", "routes", plain(1));
        world.commit();
        let hub = Hub::new(Limits::default(), world::types());
        Bench { hub, world, names, streams: Vec::new(), longest: BTreeMap::new() }
    }

    /// Adds a stream that subscribes to everything and accepts it.
    fn join(&mut self) {
        let id = self.hub.connect(&mut self.world, proxy(), Variant::Delta, Moment::ZERO).unwrap();
        let names = std::mem::take(&mut self.names);
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        for (kind, names) in [(CLUSTER, &[][..]), (ENDPOINTS, &all), (LISTENER, &[]), (ROUTE, &["routes"])] {
            self.subscribe(id, kind, names);
            assert_eq!(self.answer(id), 1);
        }
        self.names = names;
        self.streams.push(id);
        self.hub.take_woken();
    }

    /// Adds a stream with clusters of its own.
    fn join_with_own(&mut self, audience: &'static str) {
        self.world.own_of_newcomers = Some(audience);
        self.join();
    }

    /// Commits, and connects the clients of all streams again with the endpoints that they have. Returns the times of the
    /// requests for these: of the first client, and of each further one.
    fn return_all(&mut self) -> (f64, f64) {
        let text = |resource: &Resource| (resource.name().to_string(), resource.version().to_string());
        let had: Vec<(String, String)> = self.hub.resources(self.streams[0], ENDPOINTS).iter().map(text).collect();
        self.commit();
        self.answer_all();
        let mut times = Vec::new();
        for old in std::mem::take(&mut self.streams) {
            let id = self.hub.connect(&mut self.world, proxy(), Variant::Delta, Moment::ZERO).unwrap();
            let subscribe = had.iter().map(|(name, _)| &**name).collect();
            let initial = had.iter().map(|(name, version)| (&**name, &**version)).collect();
            let body = Body::Delta { subscribe, unsubscribe: Default::default(), initial };
            let begun = Instant::now();
            self.request(id, Request { type_url: ENDPOINTS.type_url.to_owned(), body, ..Request::default() });
            times.push(micros(begun));
            self.answer(id);
            self.leave(old);
            self.streams.push(id);
        }
        let more = (times.len() - 1).max(1) as f64;
        (times[0], times[1..].iter().sum::<f64>() / more)
    }

    /// The time in which all streams move to lists in which one cluster differs.
    fn move_all(&mut self) -> f64 {
        for kind in [CLUSTER, ENDPOINTS, LISTENER, ROUTE] {
            let same = self.world.table(kind, "a").clone();
            *self.world.table(kind, "b") = same;
        }
        self.world.put(CLUSTER, "b", "s0", plain(9));
        (1..=self.world.last_token()).for_each(|token| self.world.relocate(token, "b"));
        let changes = self.world.commit();
        let begun = Instant::now();
        self.hub.apply(&mut self.world, changes, Moment::ZERO);
        micros(begun)
    }

    /// Commits in steps, as the server does.
    fn commit(&mut self) {
        let changes = self.world.commit();
        let mut left = self.hub.application(changes, Default::default());
        while let Some(application) = left {
            let begun = Instant::now();
            let goes_on = || begun.elapsed() < Duration::from_millis(10);
            left = self.step("commit", |hub, world| hub.apply_some(world, application, goes_on, Moment::ZERO));
        }
    }

    /// The time to count the clients of every service: when all have acknowledged, when none has answered, and when
    /// every tenth client sent a NACK.
    fn count_answers(&mut self, services: usize) {
        self.count("all run it     ");
        for n in 0..services {
            self.world.put(ENDPOINTS, "a", &format!("s{n}"), plain(3));
        }
        self.commit();
        self.count("none has answered");
        for (n, id) in self.streams.clone().into_iter().enumerate() {
            while let Some(response) = self.next(id) {
                let error = (n % 10 == 0).then(|| "I do not want this".to_owned());
                self.reply(id, response.kind, response.nonce.to_string(), error);
            }
        }
        print!("a tenth refuses, ");
        self.hub.take_woken();
        self.print_longest();
        self.count("a tenth refuses");
        for n in 0..services {
            self.world.put(ENDPOINTS, "a", &format!("s{n}"), plain(4));
        }
        self.commit();
        self.answer_all();
    }

    fn count(&self, what: &str) {
        let mut questions: BTreeMap<String, Question<u32>> = BTreeMap::new();
        for (cell, (_, _, name), _) in self.world.open_resources() {
            let question = questions.entry(name.to_string()).or_insert_with(|| Question {
                resources: Vec::new(),
                catalogues: Vec::new(),
                maybe: Vec::new(),
                since: self.hub.epoch(),
                parts: Vec::new(),
            });
            question.resources.push(cell);
        }
        let questions: Vec<Question<u32>> = questions.into_values().collect();
        let begun = Instant::now();
        let mut counting = self.hub.tallies();
        let tallies: Vec<_> = questions.iter().map(|question| counting.answer(question)).collect();
        let took = micros(begun);
        let sum = |pick: fn(&xds::Tally) -> usize| tallies.iter().map(pick).sum::<usize>();
        let (running, rejected, pending) = (sum(|t| t.running), sum(|t| t.rejected), sum(|t| t.pending));
        let objects = questions.len();
        println!(
            "counting, {what} {took:>10.1} µs for {objects} objects ({running} running, {rejected} rejected, {pending} pending)"
        );
    }

    fn subscribe(&mut self, id: StreamId, kind: ResourceType, names: &[&str]) {
        let subscribe = names.iter().copied().collect();
        let body = Body::Delta { subscribe, unsubscribe: Default::default(), initial: Default::default() };
        self.request(id, Request { type_url: kind.type_url.to_owned(), body, ..Request::default() });
    }

    /// Lets all clients receive and accept pending responses. Returns the number of responses.
    fn answer_all(&mut self) -> usize {
        self.hub.take_woken().into_iter().map(|id| self.answer(id)).sum()
    }

    fn answer(&mut self, id: StreamId) -> usize {
        let mut count = 0;
        while let Some(response) = self.next(id) {
            count += 1;
            self.reply(id, response.kind, response.nonce.to_string(), None);
        }
        count
    }

    /// The next response of a stream. Notes the longest step.
    fn next(&mut self, id: StreamId) -> Option<Response> {
        loop {
            match self.step("response", |hub, _| hub.next(id, Moment::ZERO)) {
                Next::More => {}
                Next::Send(response) => return Some(response),
                Next::Idle => return None,
                Next::End(status) => panic!("{status}"),
            }
        }
    }

    fn reply(&mut self, id: StreamId, kind: ResourceType, nonce: String, error: Option<String>) {
        let body =
            Body::Delta { subscribe: Default::default(), unsubscribe: Default::default(), initial: Default::default() };
        let name = if error.is_some() { "NACK" } else { "ACK" };
        let request = Request { type_url: kind.type_url.to_owned(), nonce, error, body, ..Request::default() };
        self.step(name, |hub, world| hub.request(world, id, request, Moment::ZERO).unwrap());
        while self.hub.has_moving() {
            self.step("move", |hub, world| hub.move_some(world, 1, Moment::ZERO));
        }
    }

    fn request(&mut self, id: StreamId, request: Request) {
        let mut progress = self.step("request", |hub, world| hub.request(world, id, request, Moment::ZERO).unwrap());
        while progress == Progress::More {
            progress = self.step("request", |hub, world| hub.proceed(world, id, Moment::ZERO).unwrap());
        }
    }

    /// Removes a stream, and closes what only it used.
    fn leave(&mut self, id: StreamId) {
        self.step("disconnect", |hub, world| hub.disconnect(world, id));
        // The server drops it on another thread.
        drop(self.hub.take_garbage());
        while self.step("close", |hub, world| hub.close_unused(world, 8)) {}
    }

    /// Does one step, and notes its time.
    fn step<T>(&mut self, kind: &'static str, work: impl FnOnce(&mut Hub<World>, &mut World) -> T) -> T {
        let begun = Instant::now();
        let done = work(&mut self.hub, &mut self.world);
        let longest = self.longest.entry(kind).or_default();
        *longest = longest.max(micros(begun));
        done
    }

    fn print_longest(&mut self) {
        let longest = std::mem::take(&mut self.longest);
        let longest: Vec<String> = longest.into_iter().map(|(kind, micros)| format!("{kind} {micros:.1} µs")).collect();
        println!("longest steps: {}", longest.join(", "));
    }
}

fn proxy() -> Proxy {
    Proxy {
        kind: ProxyKind::Sidecar,
        id: "pod.ns".into(),
        namespace: "ns".into(),
        dns_domain: "ns.svc.cluster.local".into(),
        vhds: false,
        addresses: Vec::new(),
        labels: BTreeMap::new(),
        locality: Locality::default(),
        network: "".into(),
        network_view: Vec::new(),
        node: "".into(),
        cluster_id: "".into(),
        service_account: "".into(),
        interception: InterceptionMode::None,
        capabilities: Capabilities::default(),
        accepts_http10: false,
        static_ports: model::proxy::STATIC_PORTS,
        unprivileged: false,
        own_workload: None,
        settings: None,
        resolver: None,
        ports: BTreeMap::new(),
        secrets: Default::default(),
        version: "".into(),
        span_names: Default::default(),
        metadata: Default::default(),
    }
}

fn micros(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e6
}

/// Memory in use by this process; 0 where the system does not report it.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
