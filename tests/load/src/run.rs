//! The measurements, one after the other.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use test_harness::run::{Control, Protocol};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{self, Seen};
use crate::mesh::{Mesh, Size};
use crate::probe::{self, Usage};
use crate::report::{Measured, Report, Stall};
use crate::wire;

/// If nothing arrives for this time, a change has arrived at all proxies.
const QUIET: Duration = Duration::from_millis(700);
/// The maximum time of a measurement.
const PATIENCE: Duration = Duration::from_secs(300);
/// Counts are written when nothing has changed for ten seconds.
const CALM: Duration = Duration::from_secs(11);
/// The number of measurements of a single change; the median is reported.
const ROUNDS: usize = 5;
/// The number of proxies that connect at the same time.
const KNOCKING: usize = 50;
/// The number of endpoints that change in the burst.
const BURST: usize = 500;
/// The time within which as many endpoints change one after the other.
const STREAM: Duration = Duration::from_millis(4500);
/// The number of pods that are added to measure the memory of one.
const PODS: usize = 20_000;

/// The configuration of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The mesh.
    pub size: Size,
    /// The proxies.
    pub proxies: usize,
    /// The protocol variant.
    pub protocol: Protocol,
    /// Whether the mesh is in a real Kubernetes instead of files.
    pub kubernetes: bool,
}

/// Runs all measurements with this `rutter`.
pub async fn run(binary: &Path, flags: &[&str], plan: Plan) -> Result<Report> {
    probe::raise_file_limit();
    eprintln!("writing {} services", plan.size.services);
    let mesh = match plan.kubernetes {
        true => Mesh::fill(plan.size).await?,
        false => Mesh::write(plan.size)?,
    };
    let data = tempfile::tempdir()?;
    let reads = mesh.flags(data.path());
    let all: Vec<&str> = reads.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let begin = Instant::now();
    let mut control = started(binary, &all).await?;
    let began = begin.elapsed();
    let pid = control.pid().context("the control plane has ended")?;
    let start = Measured {
        work: "start and read the mesh".into(),
        told: None,
        first: began,
        last: began,
        processor: Usage::of(pid)?.since(&Usage::default()),
        bytes: 0,
        responses: 0,
    };
    let mut report =
        Report { plan, rows: vec![start], resident_idle: probe::memory(pid)?.0, ..Report::default_for(plan) };
    let mut fleet = Fleet {
        address: control.grpc(),
        protocol: plan.protocol,
        pid,
        mesh: &mesh,
        seen: Vec::new(),
        tasks: JoinSet::new(),
    };

    eprintln!("connecting {} proxies", plan.proxies);
    let row = fleet
        .measure(Whom::AllFrom(0), "first configuration of all proxies", async |fleet| fleet.connect(plan.proxies))
        .await?;
    report.rows.push(row);
    (report.resident, report.peak) = probe::memory(pid)?;
    if plan.kubernetes {
        eprintln!("waiting for what is written back");
        report.rows.push(written_back(pid).await?);
    }

    let whom = match plan.size.rules {
        true => Whom::Some,
        false => Whom::AllFrom(0),
    };
    let single = [
        ("one endpoint changes", Edit::Endpoint),
        ("one route changes", Edit::Route),
        ("one service is added", Edit::Service),
    ];
    for (work, edit) in single {
        eprintln!("{work}");
        let mut rows = Vec::new();
        for round in 0..ROUNDS {
            rows.push(fleet.measure(whom, work, async |_| edit.make(&mesh, plan.size, round).await).await?);
        }
        report.rows.push(Measured::median(rows));
    }
    eprintln!("{BURST} endpoints change");
    let burst = async |_: &mut Fleet<'_>| {
        let changes = (0..BURST).map(|n| (n % plan.size.services, 20 + n / plan.size.services));
        mesh.change_endpoints(changes).await
    };
    report.rows.push(fleet.measure(whom, &format!("{BURST} endpoint changes back to back"), burst).await?);
    eprintln!("{BURST} endpoints change, one after the other");
    let stream = async |_: &mut Fleet<'_>| {
        let mut ticks = tokio::time::interval(STREAM / BURST as u32);
        for n in 0..BURST {
            ticks.tick().await;
            mesh.change_endpoints(std::iter::once((n % plan.size.services, 65 + n / plan.size.services))).await?;
        }
        Ok(())
    };
    let work = format!("{BURST} endpoint changes within {STREAM:?}");
    report.rows.push(fleet.measure(whom, &work, stream).await?);

    let more = (plan.proxies / 4).max(1);
    eprintln!("connecting {more} more proxies");
    // For the first proxies, whole responses are composed and kept for the next ones of their audience, which is a cost
    // of the audience. The memory that the second group adds is the cost of proxies.
    fleet.measure(Whom::AllFrom(plan.proxies), "more proxies", async |fleet| fleet.connect(more)).await?;
    let (before, _) = probe::memory(pid)?;
    fleet.measure(Whom::AllFrom(plan.proxies + more), "still more proxies", async |fleet| fleet.connect(more)).await?;
    let (after, _) = probe::memory(pid)?;
    report.per_proxy = after.saturating_sub(before) / more as u64;
    for (work, edit) in
        [("one node-local service is added", Edit::NodeLocal), ("one EnvoyFilter is added", Edit::Filter)]
    {
        eprintln!("{work}");
        report.rows.push(fleet.measure(whom, work, async |_| edit.make(&mesh, plan.size, ROUNDS).await).await?);
    }
    Stall::merge(&mut report.stalls, stalls(&control).await?);
    if plan.protocol == Protocol::Delta {
        eprintln!("restarting the control plane");
        fleet.tasks.shutdown().await;
        control.kill().await.map_err(anyhow::Error::from_boxed)?;
        launched(&mut control).await?;
        fleet.pid = control.pid().context("the control plane has ended")?;
        report.rows.push(fleet.reconnect().await?);
    }
    eprintln!("disconnecting all proxies");
    report.rows.push(fleet.leave().await?);
    Stall::merge(&mut report.stalls, stalls(&control).await?);
    if plan.kubernetes {
        // In a process that had no proxies yet, so that no freed memory is reused.
        drop((fleet, control));
        let control = started(binary, &all).await?;
        let pid = control.pid().context("the control plane has ended")?;
        report.per_pod = Some(per_pod(&mesh, pid).await?);
    }
    Ok(report)
}

/// Starts a control plane and waits until it is ready.
async fn started(binary: &Path, flags: &[&str]) -> Result<Control> {
    let mut control = Control::idle(binary, flags, &[]).map_err(anyhow::Error::from_boxed)?;
    launched(&mut control).await?;
    Ok(control)
}

/// How long work held up other work since the control plane started.
async fn stalls(control: &Control) -> Result<Vec<Stall>> {
    let metrics = control.debug("/metrics").await.map_err(anyhow::Error::from_boxed)?;
    Ok(Stall::read(&metrics.text()))
}

async fn launched(control: &mut Control) -> Result<()> {
    control.launch().map_err(anyhow::Error::from_boxed)?;
    let begin = Instant::now();
    while !control.readiness().await.is_ok_and(|answer| answer.status.is_success()) {
        if begin.elapsed() > PATIENCE || control.pid().is_none() {
            let log = control.log_end().map_err(anyhow::Error::from_boxed)?;
            bail!("the control plane did not become ready; its log ends:\n{log}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// The resident memory that one more pod adds.
async fn per_pod(mesh: &Mesh, pid: u32) -> Result<u64> {
    eprintln!("adding {PODS} pods");
    let (before, _) = probe::memory(pid)?;
    mesh.add_pods(PODS).await?;
    // Measured when the control plane is idle.
    idle(pid).await?;
    let (after, _) = probe::memory(pid)?;
    Ok(after.saturating_sub(before) / PODS as u64)
}

/// Waits until the control plane is idle. Returns since when.
async fn idle(pid: u32) -> Result<Instant> {
    let begin = Instant::now();
    let (mut used, mut since) = (Usage::of(pid)?, begin);
    while since.elapsed() < 3 * QUIET {
        if begin.elapsed() > PATIENCE {
            bail!("the control plane still works after {PATIENCE:?}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = Usage::of(pid)?;
        if now.since(&used) > Duration::from_millis(5) {
            since = Instant::now();
        }
        used = now;
    }
    Ok(since)
}

/// After all proxies have their first configuration, acknowledgements are counted, and statuses are written and read
/// back. This must not count as the cost of the first change.
async fn written_back(pid: u32) -> Result<Measured> {
    let (begin, used) = (Instant::now(), Usage::of(pid)?);
    tokio::time::sleep(CALM).await;
    let took = idle(pid).await? - begin;
    Ok(Measured {
        work: "statuses counted and written".into(),
        told: None,
        first: took,
        last: took,
        processor: Usage::of(pid)?.since(&used),
        bytes: 0,
        responses: 0,
    })
}

#[derive(Clone, Copy)]
enum Edit {
    Endpoint,
    Route,
    Service,
    NodeLocal,
    Filter,
}

impl Edit {
    async fn make(self, mesh: &Mesh, size: Size, round: usize) -> Result<()> {
        match self {
            Edit::Endpoint => {
                let change = (size.services / 2, round + 1);
                mesh.change_endpoints(std::iter::once(change)).await
            }
            Edit::Route => mesh.route(80 - round).await,
            Edit::Service => mesh.add_service(size.services + round, false).await,
            Edit::NodeLocal => mesh.add_service(size.services + round, true).await,
            Edit::Filter => mesh.add_filter().await,
        }
    }
}

/// The proxies that a change affects.
#[derive(Clone, Copy)]
enum Whom {
    /// Every proxy from this number on.
    AllFrom(usize),
    /// Some proxies; the number is not known in advance, because Sidecars limit what they see.
    Some,
}

/// The proxies, and their control plane.
struct Fleet<'m> {
    mesh: &'m Mesh,
    address: SocketAddr,
    protocol: Protocol,
    pid: u32,
    seen: Vec<Arc<Seen>>,
    tasks: JoinSet<Result<()>>,
}

impl Fleet<'_> {
    fn connect(&mut self, count: usize) -> Result<()> {
        let from = self.seen.len();
        self.seen.extend((0..count).map(|_| Arc::new(Seen::default())));
        self.open_streams(from);
        Ok(())
    }

    fn open_streams(&mut self, from: usize) {
        let door = Arc::new(Semaphore::new(KNOCKING));
        for (number, seen) in self.seen.iter().enumerate().skip(from) {
            let node = wire::node(&self.mesh.workload(number));
            self.tasks.spawn(client::run(self.address, node, self.protocol, Arc::clone(seen), Arc::clone(&door)));
        }
    }

    /// Opens a new stream for each proxy, which reports the resources that it has.
    async fn reconnect(&mut self) -> Result<Measured> {
        let resources =
            |fleet: &Self| fleet.seen.iter().map(|seen| seen.resources.load(Ordering::Relaxed)).sum::<u64>();
        let before = resources(self);
        let row = self
            .measure(Whom::AllFrom(0), "", async |fleet| {
                fleet.open_streams(0);
                Ok(())
            })
            .await?;
        let work = format!("all proxies reconnect after a restart ({} resources sent)", resources(self) - before);
        Ok(Measured { work, ..row })
    }

    /// Disconnects all proxies at the same time, and waits until the control plane is idle.
    async fn leave(&mut self) -> Result<Measured> {
        let (begin, used) = (Instant::now(), Usage::of(self.pid)?);
        self.tasks.shutdown().await;
        let took = idle(self.pid).await?.saturating_duration_since(begin);
        Ok(Measured {
            work: "all proxies disconnect".into(),
            told: None,
            first: took,
            last: took,
            processor: Usage::of(self.pid)?.since(&used),
            bytes: 0,
            responses: 0,
        })
    }

    /// Makes `change`, waits until no response arrives any more, and reports the cost.
    async fn measure(
        &mut self,
        whom: Whom,
        work: &str,
        change: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<Measured> {
        let (bytes, responses) = self.totals();
        let used = Usage::of(self.pid)?;
        self.seen.iter().for_each(|seen| seen.forget());
        self.mesh.told();
        let begin = Instant::now();
        change(self).await?;
        self.settle(begin, whom).await?;
        let processor = Usage::of(self.pid)?.since(&used);
        // A proxy has a change when the last response with it has arrived.
        let mut arrived: Vec<Instant> =
            self.seen.iter().filter_map(|seen| seen.times()).map(|(_, last)| last).collect();
        arrived.sort();
        let (Some(first), Some(last)) = (arrived.first(), arrived.last()) else { bail!("{work}: nobody heard of it") };
        let (bytes_after, responses_after) = self.totals();
        Ok(Measured {
            work: work.to_owned(),
            told: self.mesh.told().map(|told| told - begin),
            first: *first - begin,
            last: *last - begin,
            processor,
            bytes: bytes_after - bytes,
            responses: responses_after - responses,
        })
    }

    /// Waits until the affected proxies have got a response, and then until no proxy gets one for a while.
    async fn settle(&mut self, begin: Instant, whom: Whom) -> Result<()> {
        let mut before = self.totals();
        let mut since = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if let Some(ended) = self.tasks.try_join_next() {
                ended??;
            }
            let now = self.totals();
            if now != before {
                (before, since) = (now, Instant::now());
            }
            let (from, least) = match whom {
                Whom::AllFrom(from) => (from, self.seen.len() - from),
                Whom::Some => (0, 1),
            };
            let concerned = &self.seen[from..];
            let heard = concerned.iter().filter(|seen| seen.times().is_some()).count();
            let settled = self.seen.iter().all(|seen| seen.is_settled());
            if heard >= least && settled && since.elapsed() > QUIET {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("{heard} of {} proxies heard of it in {PATIENCE:?}", concerned.len());
            }
        }
    }

    fn totals(&self) -> (u64, u64) {
        let sum = |value: fn(&Seen) -> u64| self.seen.iter().map(|seen| value(seen)).sum();
        (sum(|s| s.bytes.load(Ordering::Relaxed)), sum(|s| s.responses.load(Ordering::Relaxed)))
    }
}
