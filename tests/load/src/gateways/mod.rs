//! A Gateway with very many routes or ListenerSets: the scenarios of gateway-api-bench, with one simulated gateway proxy.

mod objects;
mod statuses;

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use test_harness::run::Protocol;

use crate::api::Api;
use crate::fleet::Fleet;
use crate::mesh::{Location, Mesh};
use crate::objects::{Size, namespace};
use crate::probe::{self, Usage};
use crate::process::{PATIENCE, idle, pid_of, started, with_log};
use crate::report::{shown, size as bytes};
use objects::Parent;

/// The number of single routes that are measured while nothing else happens.
const ROUNDS: usize = 11;
/// The time for which routes and endpoints change steadily.
const CHURNING: Duration = Duration::from_secs(10);
/// The time between two changes of routes, of which every second one also moves an endpoint.
const BETWEEN: Duration = Duration::from_millis(100);

/// A number of objects.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// Services, each with one endpoint.
    pub services: usize,
    /// Routes of each.
    pub routes: usize,
    /// Whether each service has a ListenerSet, with one listener for HTTPS, to which its routes attach.
    pub sets: bool,
}

/// The figures of a scenario.
struct Row {
    wrote: Duration,
    status: Duration,
    processor: Duration,
    resident: u64,
    sent: u64,
    writes: u64,
    alone: Times,
    alone_processor: Duration,
    churn: Times,
    /// The share of one processor.
    churn_processor: f64,
    removed: Duration,
    removed_processor: Duration,
}

/// Times of several rounds.
struct Times(Vec<Duration>);

impl Times {
    fn shown(&self) -> String {
        let mut times = self.0.clone();
        times.sort_unstable();
        match (times.get(times.len() / 2), times.last()) {
            (Some(median), Some(last)) => format!("{} (most: {})", shown(*median), shown(*last)),
            _ => "–".to_owned(),
        }
    }
}

impl Scenario {
    fn size(self) -> Size {
        let namespaces = self.services.clamp(1, 50);
        Size {
            services: self.services.max(2),
            ports: 1,
            endpoints: 1,
            namespaces,
            rules: false,
            private: false,
            cluster_ips: true,
        }
    }

    fn parent(self) -> Parent {
        if self.sets { Parent::Set } else { Parent::Gateway }
    }

    fn title(self) -> String {
        let routes = self.services * self.routes;
        match self.sets {
            true => format!("{} ListenerSets with {routes} routes", self.services),
            false => format!("{routes} routes to {} services", self.services),
        }
    }

    /// The routes, and the ListenerSets before them.
    fn objects(self, size: Size) -> [Vec<Value>; 2] {
        let sets = (0..self.services).filter(|_| self.sets).map(|service| objects::set(size, service));
        let all = (0..self.routes).flat_map(|number| (0..self.services).map(move |service| (service, number)));
        let routes = all.map(|(service, number)| objects::route(size, self.parent(), service, number, 0));
        [sets.collect(), routes.collect()]
    }
}

/// Measures these scenarios with this `rutter`, and prints a table.
///
/// # Errors
/// The output cannot be written. A scenario that fails is a row of the table.
pub async fn gateways(binary: &Path, flags: &[&str], location: Location, scenarios: &[Scenario]) -> Result<()> {
    probe::raise_file_limit();
    let mut out = std::io::stdout();
    writeln!(
        out,
        "| objects | written in | statuses after | control plane | writes of the Gateway | resident | sent | a new route | each | \
         a new route while others change | meanwhile | removed | control plane |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    )?;
    for scenario in scenarios {
        match measure(binary, flags, location, *scenario).await {
            Ok(row) => writeln!(out, "| {} {}", scenario.title(), row.shown())?,
            // The other rows are measured all the same.
            Err(error) => writeln!(out, "| {} | failed: {error:#} |", scenario.title())?,
        }
    }
    Ok(())
}

async fn measure(binary: &Path, flags: &[&str], location: Location, scenario: Scenario) -> Result<Row> {
    eprintln!("{}", scenario.title());
    let mut mesh = Mesh::at(location, scenario.size()).await?;
    let data = tempfile::tempdir()?;
    let reads = mesh.flags(data.path());
    let all: Vec<&str> = reads.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let control = started(binary, &all, &[]).await?;
    mesh.fill(data.path()).await?;
    let pid = pid_of(&control)?;
    let api = mesh.api()?.context("files have no statuses")?;
    let mut bench = Bench { scenario, size: scenario.size(), mesh: &mesh, api, pid, next: 0 };
    let row = async {
        bench.prepare().await?;
        let mut fleet = Fleet::new(&mesh, control.grpc(), Protocol::Delta, pid);
        fleet.connect_gateway()?;
        idle(pid).await?;
        bench.run(&mut fleet).await
    };
    let row = row.await;
    with_log(&control, row)
}

/// A running scenario.
struct Bench<'m> {
    scenario: Scenario,
    size: Size,
    mesh: &'m Mesh,
    api: &'m Api,
    pid: u32,
    /// The number of the next route of its own.
    next: usize,
}

impl Bench<'_> {
    /// Creates what the routes and ListenerSets refer to.
    async fn prepare(&self) -> Result<()> {
        // There may be one already.
        let _ = self.api.create(vec![namespace(objects::NAMESPACE)]).await;
        if self.scenario.sets {
            self.api.create(objects::certificates(self.size)?).await?;
        }
        self.api.create(vec![objects::gateway()]).await
    }

    async fn run(&mut self, fleet: &mut Fleet<'_>) -> Result<Row> {
        let [sets, routes] = self.scenario.objects(self.size);
        let count = routes.len();
        let (used, (sent, _)) = (Usage::of(self.pid)?, fleet.totals());
        let writes = self.api.count_changes(&statuses::gateways()).await?;
        let begin = Instant::now();
        self.api.create(sets.clone()).await?;
        self.api.create(routes.clone()).await?;
        let wrote = begin.elapsed();
        statuses::wait(self.api, self.scenario, count).await?;
        let status = begin.elapsed() - wrote;
        eprintln!("written in {wrote:?}, statuses {status:?} later");
        idle(self.pid).await?;
        let (writes, processor) = (writes.stop(), Usage::of(self.pid)?.since(&used));
        let resident = probe::memory(self.pid)?.0;
        let sent = fleet.totals().0 - sent;

        let used = Usage::of(self.pid)?;
        let alone = self.alone(fleet, ROUNDS, None).await?;
        let alone_processor = Usage::of(self.pid)?.since(&used) / u32::try_from(ROUNDS)?;
        eprintln!("a route alone: {}", alone.shown());
        let (churn, churn_processor) = self.churn(fleet).await?;
        eprintln!("a route among changes: {}", churn.shown());
        idle(self.pid).await?;

        let (used, begin) = (Usage::of(self.pid)?, Instant::now());
        self.api.remove(routes).await?;
        self.api.remove(sets).await?;
        statuses::attached(self.api, 0).await?;
        let removed = begin.elapsed();
        idle(self.pid).await?;
        let removed_processor = Usage::of(self.pid)?.since(&used);
        fleet.check()?;
        Ok(Row {
            wrote,
            status,
            processor,
            resident,
            sent,
            writes,
            alone,
            alone_processor,
            churn,
            churn_processor,
            removed,
            removed_processor,
        })
    }

    /// Adds routes of their own, one after the other, and measures the time from the begin of each write until the gateway has it: so
    /// many, or until a time.
    async fn alone(&mut self, fleet: &mut Fleet<'_>, rounds: usize, end: Option<Instant>) -> Result<Times> {
        let mut times = Vec::new();
        while times.len() < rounds && end.is_none_or(|end| Instant::now() < end) {
            let route = objects::alone(self.size, self.next);
            fleet.expect_host(&objects::host_alone(self.next));
            self.next += 1;
            let begin = Instant::now();
            self.api.create(vec![route.clone()]).await?;
            while fleet.expected_host().is_none() {
                fleet.check()?;
                if begin.elapsed() > PATIENCE {
                    bail!("a route did not arrive in {PATIENCE:?}");
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            times.push(fleet.expected_host().context("no proxy")?.saturating_duration_since(begin));
            self.api.remove(vec![route]).await?;
            // The next one must not be delayed by the removal.
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        Ok(Times(times))
    }

    /// The same while routes and endpoints change, and the share of a processor that all of it uses.
    async fn churn(&mut self, fleet: &mut Fleet<'_>) -> Result<(Times, f64)> {
        let (mesh, api, size, scenario) = (self.mesh, self.api, self.size, self.scenario);
        let changes = async {
            let mut ticks = tokio::time::interval(BETWEEN);
            for turn in 1.. {
                ticks.tick().await;
                let (service, number) = (turn * 7919 % scenario.services, turn % scenario.routes);
                api.change(vec![objects::route(size, scenario.parent(), service, number, turn)]).await?;
                if turn % 2 == 0 {
                    mesh.change_endpoints(std::iter::once((service, turn % 39 + 1))).await?;
                }
            }
            anyhow::Ok(())
        };
        let (used, begin) = (Usage::of(self.pid)?, Instant::now());
        let times = tokio::select! {
            ended = changes => return Err(ended.err().context("the changes ended")?),
            times = self.alone(fleet, usize::MAX, Some(begin + CHURNING)) => times?,
        };
        let share = Usage::of(self.pid)?.since(&used).as_secs_f64() / begin.elapsed().as_secs_f64();
        Ok((times, share))
    }
}

impl Row {
    fn shown(&self) -> String {
        format!(
            "| {} | {} | {} CPU | {} | {} | {} | {} | {} CPU | {} | {:.0} % of a CPU | {} | {} CPU |",
            shown(self.wrote),
            shown(self.status),
            shown(self.processor),
            self.writes,
            bytes(self.resident),
            bytes(self.sent),
            self.alone.shown(),
            shown(self.alone_processor),
            self.churn.shown(),
            self.churn_processor * 100.0,
            shown(self.removed),
            shown(self.removed_processor),
        )
    }
}
