//! The measurements, one after the other.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parts::run::{Control, Protocol};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::client::{self, Seen};
use crate::mesh::{Mesh, Size};
use crate::probe::{self, Usage};
use crate::report::{Measured, Report};
use crate::wire;

/// When nothing has come for so long, a change has arrived everywhere.
const QUIET: Duration = Duration::from_millis(700);
/// No measurement takes longer.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a single change is measured; the median is reported.
const ROUNDS: usize = 5;
/// How many proxies connect at the same time.
const KNOCKING: usize = 50;
/// How many endpoints change in the burst.
const BURST: usize = 500;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The mesh.
    pub size: Size,
    /// The proxies.
    pub proxies: usize,
    /// What they speak.
    pub protocol: Protocol,
}

/// Runs everything against this `rutter`.
pub async fn run(binary: &Path, flags: &[&str], plan: Plan) -> Result<Report> {
    probe::raise_file_limit();
    eprintln!("writing {} services", plan.size.services);
    let mesh = Mesh::write(plan.size)?;
    let begin = Instant::now();
    let control = Control::start(binary, mesh.path(), flags)
        .await
        .map_err(anyhow::Error::from_boxed)?;
    let pid = control.pid().context("the control plane has ended")?;
    let (resident, _) = probe::memory(pid)?;
    let start = Measured {
        work: "the control plane starts and reads the mesh".into(),
        first: begin.elapsed(),
        last: begin.elapsed(),
        processor: Usage::of(pid)?.since(&Usage::default()),
        bytes: 0,
        responses: 0,
    };
    let mut report = Report {
        plan,
        rows: vec![start],
        resident_idle: resident,
        ..Report::default_for(plan)
    };
    let mut fleet = Fleet {
        address: control.grpc(),
        protocol: plan.protocol,
        pid,
        seen: Vec::new(),
        tasks: JoinSet::new(),
    };

    eprintln!("connecting {} proxies", plan.proxies);
    let row = fleet
        .measure("all proxies get their first configuration", async |fleet| {
            fleet.connect(&mesh, plan.proxies)
        })
        .await?;
    report.rows.push(row);
    (report.resident, report.peak) = probe::memory(pid)?;

    let single = [
        ("one endpoint changes", Edit::Endpoint),
        ("one route changes", Edit::Route),
        ("one service is added", Edit::Service),
    ];
    for (work, edit) in single {
        eprintln!("{work}");
        let mut rows = Vec::new();
        for round in 0..ROUNDS {
            rows.push(
                fleet
                    .measure(work, async |_| edit.make(&mesh, plan.size, round))
                    .await?,
            );
        }
        report.rows.push(Measured::median(rows));
    }
    eprintln!("{BURST} endpoints change");
    let burst = async |_: &mut Fleet| {
        (0..BURST).try_for_each(|n| mesh.change_endpoint(n % plan.size.services, 20 + n / plan.size.services))
    };
    report.rows.push(
        fleet
            .measure(&format!("{BURST} endpoint changes back to back"), burst)
            .await?,
    );

    let more = (plan.proxies / 4).max(1);
    eprintln!("connecting {more} more proxies");
    // The first of them have whole responses composed anew, which are kept for the next ones of their audience: that is
    // a cost of the audience. What the second lot adds is a cost of proxies.
    fleet
        .measure_from(plan.proxies, "more proxies", async |fleet| fleet.connect(&mesh, more))
        .await?;
    let (before, _) = probe::memory(pid)?;
    fleet
        .measure_from(plan.proxies + more, "still more proxies", async |fleet| {
            fleet.connect(&mesh, more)
        })
        .await?;
    let (after, _) = probe::memory(pid)?;
    report.per_proxy = after.saturating_sub(before) / more as u64;
    Ok(report)
}

#[derive(Clone, Copy)]
enum Edit {
    Endpoint,
    Route,
    Service,
}

impl Edit {
    fn make(self, mesh: &Mesh, size: Size, round: usize) -> Result<()> {
        match self {
            Edit::Endpoint => mesh.change_endpoint(size.services / 2, round + 1),
            Edit::Route => mesh.route(80 - round),
            Edit::Service => mesh.add_service(size.services + round),
        }
    }
}

/// The proxies, and the process that they are connected to.
struct Fleet {
    address: SocketAddr,
    protocol: Protocol,
    pid: u32,
    seen: Vec<Arc<Seen>>,
    tasks: JoinSet<Result<()>>,
}

impl Fleet {
    fn connect(&mut self, mesh: &Mesh, count: usize) -> Result<()> {
        let door = Arc::new(Semaphore::new(KNOCKING));
        for number in self.seen.len()..self.seen.len() + count {
            let seen = Arc::new(Seen::default());
            let ip = format!(
                "10.{}.{}.{}",
                200 + number / 62_500,
                number / 250 % 250,
                number % 250 + 1
            );
            let node = wire::node(&format!("load-{number}"), &mesh.namespace(number), &ip);
            self.seen.push(Arc::clone(&seen));
            self.tasks
                .spawn(client::run(self.address, node, self.protocol, seen, Arc::clone(&door)));
        }
        Ok(())
    }

    /// Does `change`, waits until nothing comes any more, and reports what happened meanwhile.
    async fn measure(&mut self, work: &str, change: impl AsyncFnOnce(&mut Fleet) -> Result<()>) -> Result<Measured> {
        self.measure_from(0, work, change).await
    }

    /// The same where only the proxies from this one on are concerned.
    async fn measure_from(
        &mut self,
        from: usize,
        work: &str,
        change: impl AsyncFnOnce(&mut Fleet) -> Result<()>,
    ) -> Result<Measured> {
        let (bytes, responses) = self.totals();
        let used = Usage::of(self.pid)?;
        self.seen.iter().for_each(|seen| seen.forget());
        let begin = Instant::now();
        change(self).await?;
        self.settle(begin, from).await?;
        let processor = Usage::of(self.pid)?.since(&used);
        // A proxy has a change when the last response of it has come.
        let mut arrived: Vec<Instant> = self
            .seen
            .iter()
            .filter_map(|seen| seen.times())
            .map(|(_, last)| last)
            .collect();
        arrived.sort();
        let (Some(first), Some(last)) = (arrived.first(), arrived.last()) else {
            bail!("{work}: nobody heard of it")
        };
        let (bytes_after, responses_after) = self.totals();
        Ok(Measured {
            work: work.to_owned(),
            first: *first - begin,
            last: *last - begin,
            processor,
            bytes: bytes_after - bytes,
            responses: responses_after - responses,
        })
    }

    /// Waits until every proxy from this one on got something, and then nobody anything for a while.
    async fn settle(&mut self, begin: Instant, from: usize) -> Result<()> {
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
            let concerned = &self.seen[from..];
            let heard = concerned.iter().filter(|seen| seen.times().is_some()).count();
            if heard == concerned.len() && since.elapsed() > QUIET {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                bail!("{heard} of {} proxies heard of it in {PATIENCE:?}", concerned.len());
            }
        }
    }

    fn totals(&self) -> (u64, u64) {
        let sum = |value: fn(&Seen) -> u64| self.seen.iter().map(|seen| value(seen)).sum();
        (
            sum(|s| s.bytes.load(Ordering::Relaxed)),
            sum(|s| s.responses.load(Ordering::Relaxed)),
        )
    }
}
