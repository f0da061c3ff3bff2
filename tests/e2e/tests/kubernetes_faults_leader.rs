//! Two replicas of `rutter serve --store kubernetes`: both serve equal resources, one writes. The leader is killed,
//! disconnected during a write, or its clock jumps.

// The helpers fail the test if they cannot continue.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::cluster::{Namespace, shared_with_crds};
use e2e::home::{PATIENCE, Rutter, client};
use e2e::observer::Observer;
use e2e::steady::Steady;
use serde_json::Value;
use test_harness::kubernetes::{ControlPlane, FaultPlan, Link};
use test_harness::run::{Result, wait_for};

/// The number of services in the population.
const HOSTS: usize = 3;
/// The Lease of the replica that writes statuses.
const LEASE: &str = "istio-status-leader";

/// A namespace with two replicas, each behind a link and with a proxy. The first replica leads.
struct Pair<'a> {
    plane: &'a ControlPlane,
    space: Namespace<'a>,
    steady: Steady<'a>,
    links: [Link; 2],
    replicas: [Rutter; 2],
    proxies: [Observer; 2],
}

async fn replica(plane: &ControlPlane, space: &str, user: &str, name: &str) -> Result<Rutter> {
    let mut rutter = Rutter::idle(plane, space, Some(user), &["--pod-name", name])?;
    rutter.control.begin().await?;
    Ok(rutter)
}

impl<'a> Pair<'a> {
    async fn start(prefix: &str) -> Result<Pair<'a>> {
        let plane = shared_with_crds().await?;
        let space = Namespace::create(plane, prefix).await?;
        let steady = Steady::create(plane, &space, HOSTS).await?;
        let links = [Link::start(plane, 1).await?, Link::start(plane, 2).await?];
        let one = replica(plane, space.name(), &links[0].kubeconfig(), "one").await?;
        holder(plane, space.name(), "one_").await?;
        let two = replica(plane, space.name(), &links[1].kubeconfig(), "two").await?;
        let connect = |rutter: &Rutter| Observer::start(rutter.control.grpc(), &client(space.name()));
        let proxies = [connect(&one), connect(&two)];
        let pair = Pair { plane, space, steady, links, replicas: [one, two], proxies };
        pair.both(1).await?;
        Ok(pair)
    }

    /// Waits until both proxies have this generation, and checks that they have equal resources.
    async fn both(&self, generation: u64) -> Result<()> {
        for (rutter, proxy) in self.replicas.iter().zip(&self.proxies) {
            rutter.explained(proxy.settled(HOSTS, generation).await)?;
        }
        let same = || async { (self.proxies[0].versions() == self.proxies[1].versions()).then_some(()) };
        wait_for("two proxies with the same versions", PATIENCE, same).await
    }

    /// Waits until the statuses of the VirtualServices have this generation, and returns them.
    async fn told(&self, generation: u64) -> Result<Vec<Value>> {
        let mut told = Vec::new();
        for host in 0..HOSTS {
            told.push(status(self.plane, self.space.name(), host, generation).await?);
        }
        Ok(told)
    }
}

async fn object(plane: &ControlPlane, space: &str, what: &[&str]) -> Option<Value> {
    let text = plane.kubectl(&[&["get", "-n", space, "-o", "json"], what].concat(), "").await;
    serde_json::from_str(&text.ok()?).ok()
}

async fn status(plane: &ControlPlane, space: &str, host: usize, generation: u64) -> Result<Value> {
    let name = format!("h{host}");
    let told = || async {
        let found = object(plane, space, &["virtualservice", &name]).await?;
        (found["status"]["observedGeneration"] == generation).then(|| found["status"].clone())
    };
    wait_for(&format!("a status of generation {generation}"), PATIENCE, told).await
}

/// Waits until the holder's name has this prefix, and returns the `spec` of the Lease.
async fn holder(plane: &ControlPlane, space: &str, name: &str) -> Result<Value> {
    let held = || async {
        let spec = object(plane, space, &["lease", LEASE]).await?["spec"].take();
        let holds = spec["holderIdentity"].as_str().is_some_and(|holder| holder.starts_with(name));
        holds.then_some(spec)
    };
    wait_for(&format!("{name} to lead"), PATIENCE, held).await
}

/// Both serve equal bytes; only the leader writes; when it is killed, the other replica takes over.
async fn hand_over() -> Result<()> {
    let mut pair = Pair::start("pair").await?;
    for generation in [2, 3] {
        pair.steady.move_to(generation).await?;
        pair.both(generation).await?;
        pair.told(generation).await?;
    }
    let of_counts = |line: &String| line.contains("/configmaps/rutter-proxy-counts-");
    let written =
        |link: &Link| -> Vec<String> { link.seen().writes.into_iter().filter(|line| !of_counts(line)).collect() };
    assert!(written(&pair.links[0]).iter().any(|line| line.contains("/status?")));
    assert_eq!(written(&pair.links[1]), Vec::<String>::new(), "who does not lead writes nothing but its counts");

    pair.replicas[0].control.kill().await?;
    pair.steady.move_to(4).await?;
    pair.replicas[1].explained(pair.proxies[1].settled(HOSTS, 4).await)?;
    let lease = holder(pair.plane, pair.space.name(), "two_").await?;
    assert_eq!(lease["leaseTransitions"], 1);
    pair.told(4).await?;
    pair.proxies[1].check()?;
    // The first replica starts again as a follower.
    pair.replicas[0].control.begin().await?;
    let before = written(&pair.links[0]).len();
    let proxy = Observer::start(pair.replicas[0].control.grpc(), &client(pair.space.name()));
    pair.proxies[0] = proxy;
    pair.steady.move_to(5).await?;
    pair.both(5).await?;
    pair.told(5).await?;
    assert_eq!(written(&pair.links[0]).len(), before, "it does not lead");
    pair.proxies[1].check()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_serve_equal_resources_and_one_writes() {
    hand_over().await.unwrap_or_else(|error| panic!("{error}"));
}

/// The leader is disconnected during a write, which reaches the server long after another replica has become the
/// leader.
async fn cut_off() -> Result<()> {
    let pair = Pair::start("cut-off").await?;
    pair.told(1).await?;
    let link = &pair.links[0];
    let hold = Some(("PATCH ".to_owned(), "/virtualservices/".to_owned()));
    link.set(FaultPlan { hold: hold.clone(), ..FaultPlan::default() });
    pair.steady.move_to(2).await?;
    let held = || async { (link.held() > 0).then_some(()) };
    pair.replicas[0].explained(wait_for("a write under way", PATIENCE, held).await)?;
    link.set(FaultPlan { hold, down: true, ..FaultPlan::default() });
    link.cut();
    holder(pair.plane, pair.space.name(), "two_").await?;
    pair.told(2).await?;
    // Applying the existing content again would be neither a write nor a conflict.
    pair.steady.move_to(3).await?;
    let after = pair.told(3).await?;
    pair.replicas[0].control.wait_for_log("leading=false").await?;
    // Now the network delivers the old leader's request.
    let late = link.held();
    link.release();
    let delivered = || async { (link.seen().late.len() as u64 >= late).then_some(()) };
    wait_for("the late writes", PATIENCE, delivered).await?;
    let codes = link.seen().late;
    assert!(codes.iter().all(|code| *code == 409), "{codes:?}");
    let observed =
        |statuses: &[Value]| -> Vec<Value> { statuses.iter().map(|one| one["observedGeneration"].clone()).collect() };
    assert_eq!(observed(&pair.told(3).await?), observed(&after), "what the new leader wrote stays");
    // The old leader kept its proxy connected, and is a follower now.
    pair.proxies[0].check()?;
    link.set(FaultPlan::default());
    pair.steady.move_to(4).await?;
    pair.both(4).await?;
    pair.told(4).await?;
    holder(pair.plane, pair.space.name(), "two_").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_write_of_a_former_leader_overwrites_nothing() {
    cut_off().await.unwrap_or_else(|error| panic!("{error}"));
}

/// A library that reads the clock from a file; `None` if there is no C compiler.
fn clock(directory: &Path) -> Option<PathBuf> {
    let library = directory.join("clock.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clock/clock.c");
    let mut compiler = Command::new("cc");
    let compiler = compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source);
    match compiler.status() {
        Ok(status) => assert!(status.success(), "cc: {status}"),
        Err(error) => {
            eprintln!("skipped: no C compiler (`cc`): {error}");
            return None;
        }
    }
    Some(library)
}

/// The leader's wall clock jumps forwards and backwards: it continues to lead and to serve, and no replica takes its
/// Lease.
async fn jumps() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let Some(library) = clock(directory.path()) else {
        return Ok(());
    };
    let plane = shared_with_crds().await?;
    let space = Namespace::create(plane, "clock").await?;
    let steady = Steady::create(plane, &space, HOSTS).await?;
    let offset = directory.path().join("offset");
    // Written in place, because a process that has mapped the file must never read it empty.
    let jump = |seconds: i64| {
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(false).open(&offset)?;
        file.write_all(&seconds.to_ne_bytes())
    };
    jump(0)?;
    let environment = [("LD_PRELOAD", library.as_path()), ("RUTTER_TEST_CLOCK", offset.as_path())];
    let mut leader = Rutter::idle_with(plane, space.name(), None, &["--pod-name", "one"], &environment)?;
    leader.control.begin().await?;
    let first = holder(plane, space.name(), "one_").await?;
    let mut other = Rutter::idle(plane, space.name(), None, &["--pod-name", "two"])?;
    other.control.begin().await?;
    let proxy = Observer::start(leader.control.grpc(), &client(space.name()));
    leader.explained(proxy.settled(HOSTS, 1).await)?;
    for (generation, hours) in [(2, 3), (3, -3), (4, 0)] {
        let time = |spec: &Value| spec["renewTime"].as_str().map(str::to_owned).unwrap_or_default();
        let mut last = time(&holder(plane, space.name(), "one_").await?);
        jump(hours * 3600)?;
        steady.move_to(generation).await?;
        leader.explained(proxy.settled(HOSTS, generation).await)?;
        status(plane, space.name(), 0, generation).await?;
        // It continues to renew the Lease by its own clock, which went backwards in one case.
        for _ in 0..2 {
            let renewed = || async {
                let spec = object(plane, space.name(), &["lease", LEASE]).await?["spec"].take();
                (time(&spec) != last).then_some(spec)
            };
            let spec = leader.explained(wait_for("a renewal", PATIENCE, renewed).await)?;
            assert_eq!(spec["holderIdentity"], first["holderIdentity"]);
            assert_eq!(spec["leaseTransitions"], first["leaseTransitions"]);
            last = time(&spec);
        }
        assert_eq!(hours_ahead(&last)?, hours, "the clock jumped: {last}");
    }
    proxy.check()
}

/// The number of hours by which a time is ahead of now.
fn hours_ahead(time: &str) -> Result<i64> {
    let output = Command::new("date").args(["-d", time, "+%s"]).output()?;
    let shown: i64 = String::from_utf8(output.stdout)?.trim().parse()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok((shown - now.as_secs().cast_signed() + 1800).div_euclid(3600))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_jump_has_no_effect() {
    jumps().await.unwrap_or_else(|error| panic!("{error}"));
}
