//! The measurements, one after the other.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use test_harness::run::{Control, Protocol};

use crate::certificates::{self, Issuer};
use crate::fleet::{Fleet, Whom};
use crate::mesh::{Location, Mesh};
use crate::objects::Size;
use crate::probe::{self, Spent};
use crate::process::{PAGES, idle, launched, pid_of, read_pages, stalls, started, with_log};
use crate::report::{Filled, Measured, Report, Stall};

/// Counts are written when nothing has changed for ten seconds, and unused responses are dropped by then, too.
const CALM: Duration = Duration::from_secs(11);
/// The number of measurements of a single change; the median is reported.
const ROUNDS: usize = 5;
/// The number of endpoints that change in the burst.
const BURST: usize = 500;
/// The proxies that connect first to a mesh with all its proxies. The cost of what they are the first to need is not counted.
const FIRST_MORE: usize = 50;
/// The proxies that connect after them, to measure the memory of one. With fewer, memory that is used again distorts it; a port takes
/// 10,800 connections at most if the limit of open files is 20,000.
const MORE: usize = 500;
/// The time within which as many endpoints change one after the other.
const STREAM: Duration = Duration::from_millis(4500);
/// The service whose AuthorizationPolicy changes.
const GUARDED: usize = 1;
/// The control plane looks for what a proxy rejects among so many resources (`xds::Limits::suspects`).
const SUSPECTS: usize = 12_288;
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
    /// Where the mesh is.
    pub location: Location,
    /// Whether the proxies connect over TLS, each with a certificate.
    pub tls: bool,
}

/// Runs all measurements with this `rutter`. After an error, the report has the rows that were measured until then.
pub async fn run(binary: &Path, flags: &[&str], report: &mut Report) -> Result<()> {
    probe::raise_file_limit();
    let plan = report.plan;
    eprintln!("writing {} services", plan.size.services);
    let mut mesh = Mesh::at(plan.location, plan.size).await?;
    let data = tempfile::tempdir()?;
    let reads = mesh.flags(data.path());
    let all: Vec<&str> = reads.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let authority = tempfile::tempdir()?;
    let issuer = match plan.tls {
        true => Some(Arc::new(certificates::authority(false, authority.path())?)),
        false => None,
    };
    let environment: &[(&str, &Path)] = if plan.tls { &[("ROOT_CA_DIR", authority.path())] } else { &[] };
    let begin = Instant::now();
    let mut control = started(binary, &all, environment).await?;
    report.rows.push(start(&control, "start and read the mesh", begin)?);
    if plan.location == Location::Embedded {
        eprintln!("filling the store");
        let begin = Instant::now();
        mesh.fill(data.path()).await?;
        idle(pid_of(&control)?).await?;
        report.rows.push(start(&control, "start, and fill the mesh while it runs", begin)?);
    }
    let measured = measure(&mut control, &mesh, issuer, report).await;
    with_log(&control, measured)?;
    if plan.location == Location::Kubernetes {
        // In a process that had no proxies yet, so that no freed memory is reused.
        drop(control);
        let control = started(binary, &all, environment).await?;
        let pid = pid_of(&control)?;
        report.per_pod = Some(per_pod(&mesh, pid).await?);
    }
    Ok(())
}

/// The cost of what a new process did since `begin`.
fn start(control: &Control, work: &str, begin: Instant) -> Result<Measured> {
    let took = begin.elapsed();
    let pid = pid_of(control)?;
    Ok(Measured::quiet(work, took, Spent::by(pid)?))
}

/// Measures a control plane that has read its mesh.
async fn measure(control: &mut Control, mesh: &Mesh, issuer: Option<Arc<Issuer>>, report: &mut Report) -> Result<()> {
    let plan = report.plan;
    let pid = pid_of(control)?;
    report.resident_idle = probe::memory(pid)?.0;
    let mut fleet = Fleet::new(mesh, control.grpc(), plan.protocol, pid);
    if let Some(issuer) = issuer {
        fleet = fleet.over_tls(control.secure(), issuer);
    }
    eprintln!("connecting {} proxies", plan.proxies);
    let row = fleet
        .measure(Whom::AllFrom(0), "first configuration of all proxies", async |fleet| fleet.connect(plan.proxies))
        .await?;
    report.rows.push(row);
    (report.resident, report.peak) = probe::memory(pid)?;
    if plan.location != Location::Files {
        eprintln!("waiting for what is written back");
        report.rows.push(written_back(pid).await?);
    }
    if plan.location == Location::Embedded {
        report.filled = Some(filled(control, &mut fleet, report).await?);
    }
    changes(&mut fleet, report).await?;
    policies(&mut fleet, report).await?;
    more_proxies(&mut fleet, report).await?;
    if plan.protocol == Protocol::Delta {
        refusal(&mut fleet, report).await?;
    }
    particular(&mut fleet, report).await?;
    report.rows.push(pages(control, &fleet).await?);
    if plan.protocol == Protocol::Delta {
        eprintln!("restarting the control plane");
        let row = restart(control, &mut fleet, report, None).await?;
        report.rows.push(row);
        report.rows.push(fleet.reconnect("after a restart").await?);
        // Without a control plane, the embedded store cannot be changed.
        if plan.location != Location::Embedded {
            eprintln!("restarting the control plane after a change");
            restart(control, &mut fleet, report, Some(Edit::Endpoint)).await?;
            report.rows.push(fleet.reconnect("after a restart and a changed endpoint").await?);
        }
    }
    eprintln!("disconnecting all proxies");
    report.rows.push(fleet.leave().await?);
    Stall::merge(&mut report.stalls, stalls(control).await?);
    Ok(())
}

/// Replaces the process of the control plane. The mesh changes meanwhile if there is an `edit`. Returns the cost of the start.
async fn restart(
    control: &mut Control,
    fleet: &mut Fleet<'_>,
    report: &mut Report,
    edit: Option<Edit>,
) -> Result<Measured> {
    Stall::merge(&mut report.stalls, stalls(control).await?);
    fleet.hang_up().await;
    control.kill().await.map_err(anyhow::Error::from_boxed)?;
    if let Some(edit) = edit {
        edit.make(fleet.mesh, report.plan.size, ROUNDS).await?;
    }
    relaunch(control, fleet, "restart").await
}

/// Starts another process of the control plane. Returns the cost of `work`, which is the start.
async fn relaunch(control: &mut Control, fleet: &mut Fleet<'_>, work: &str) -> Result<Measured> {
    let begin = Instant::now();
    launched(control).await?;
    fleet.pid = pid_of(control)?;
    start(control, work, begin)
}

/// Compares the memory of a process in which the mesh was filled with that of one that started with the same mesh. The
/// same proxies connect to the second one, as new ones. It runs from then on.
async fn filled(control: &mut Control, fleet: &mut Fleet<'_>, report: &mut Report) -> Result<Filled> {
    let running = probe::memory(fleet.pid)?.0;
    eprintln!("restarting the control plane with the same mesh");
    fleet.hang_up().await;
    control.kill().await.map_err(anyhow::Error::from_boxed)?;
    report.rows.push(relaunch(control, fleet, "start with the same mesh").await?);
    let from_start_idle = probe::memory(fleet.pid)?.0;
    let proxies = report.plan.proxies;
    fleet.forget();
    let row = fleet
        .measure(Whom::AllFrom(0), "first configuration of all proxies again", async |fleet| fleet.connect(proxies))
        .await?;
    report.rows.push(row);
    Ok(Filled { running, from_start: calm_memory(fleet.pid).await?, from_start_idle })
}

/// Measures single changes, a burst and a stream of changes.
async fn changes(fleet: &mut Fleet<'_>, report: &mut Report) -> Result<()> {
    let (mesh, size) = (fleet.mesh, report.plan.size);
    let whom = Whom::of(size);
    let single = [
        ("one endpoint changes", Edit::Endpoint),
        ("one route changes", Edit::Route),
        ("one service is added", Edit::Service),
    ];
    for (work, edit) in single {
        eprintln!("{work}");
        let mut rows = Vec::new();
        for round in 0..ROUNDS {
            rows.push(fleet.measure(whom, work, async |_| edit.make(mesh, size, round).await).await?);
        }
        report.rows.push(Measured::median(rows));
    }
    eprintln!("{BURST} endpoints change");
    let burst = async |_: &mut Fleet<'_>| {
        let changes = (0..BURST).map(|n| (n % size.services, 20 + n / size.services));
        mesh.change_endpoints(changes).await
    };
    report.rows.push(fleet.measure(whom, &format!("{BURST} endpoint changes back to back"), burst).await?);
    eprintln!("{BURST} endpoints change, one after the other");
    let stream = async |_: &mut Fleet<'_>| {
        let mut ticks = tokio::time::interval(STREAM / BURST as u32);
        for n in 0..BURST {
            ticks.tick().await;
            mesh.change_endpoints(std::iter::once((n % size.services, 65 + n / size.services))).await?;
        }
        Ok(())
    };
    let work = format!("{BURST} endpoint changes within {STREAM:?}");
    report.rows.push(fleet.measure(whom, &work, stream).await?);
    Ok(())
}

/// Measures changes of an AuthorizationPolicy of one service's workloads, and of one of all.
async fn policies(fleet: &mut Fleet<'_>, report: &mut Report) -> Result<()> {
    let mesh = fleet.mesh;
    let policies = [
        ("one AuthorizationPolicy of one service changes", Some(GUARDED), Whom::Some),
        ("one AuthorizationPolicy of all changes", None, Whom::AllFrom(0)),
    ];
    for (work, service, whom) in policies {
        eprintln!("{work}");
        fleet.measure(whom, "added", async |_| mesh.authorize(service, 0).await).await?;
        let mut rows = Vec::new();
        for round in 1..=ROUNDS {
            rows.push(fleet.measure(whom, work, async |_| mesh.authorize(service, round).await).await?);
        }
        report.rows.push(Measured::median(rows));
        // So that the rows after it can be compared with those of earlier runs.
        fleet.measure(whom, "removed", async |_| mesh.remove_policy(service).await).await?;
    }
    Ok(())
}

/// Measures the memory of one more proxy. The further proxies leave.
async fn more_proxies(fleet: &mut Fleet<'_>, report: &mut Report) -> Result<()> {
    eprintln!("connecting {FIRST_MORE} and {MORE} more proxies");
    let proxies = report.plan.proxies;
    // For the first proxies, whole responses are composed and kept for the next ones of their audience, which is a cost
    // of the audience. The memory that the second group adds is the cost of proxies.
    fleet.measure(Whom::AllFrom(proxies), "more proxies", async |fleet| fleet.connect(FIRST_MORE)).await?;
    let before = calm_memory(fleet.pid).await?;
    let second = Whom::AllFrom(proxies + FIRST_MORE);
    fleet.measure(second, "still more proxies", async |fleet| fleet.connect(MORE)).await?;
    report.per_proxy = calm_memory(fleet.pid).await?.saturating_sub(before) / MORE as u64;
    fleet.dismiss(proxies);
    calm(fleet.pid).await?;
    Ok(())
}

/// Measures a proxy that connects and rejects what has the endpoints of one service. Its error names these only if there are so many
/// others that the control plane would not look for them. It leaves then.
async fn refusal(fleet: &mut Fleet<'_>, report: &mut Report) -> Result<()> {
    let (proxies, size) = (report.plan.proxies, report.plan.size);
    let cluster = format!("outbound|80||{}", size.host(size.services / 2));
    // With rules, each port has the clusters of two subsets.
    let clusters = size.services * size.ports * if size.rules { 3 } else { 1 };
    let (error, with) = match clusters > SUSPECTS {
        true => (format!("no: {cluster}"), ", with an error that names them"),
        false => ("no".to_owned(), ""),
    };
    let work = format!("one more proxy rejects all endpoints until those of one service are left out{with}");
    eprintln!("{work}");
    let connect = async |fleet: &mut Fleet<'_>| fleet.connect_refusing(&cluster, &error);
    let row = fleet.measure(Whom::AllFrom(proxies), &work, connect).await?;
    report.rows.push(row);
    fleet.dismiss(proxies);
    calm(fleet.pid).await?;
    Ok(())
}

/// Measures the changes that depend on where proxies are and what patches them.
async fn particular(fleet: &mut Fleet<'_>, report: &mut Report) -> Result<()> {
    let (mesh, size) = (fleet.mesh, report.plan.size);
    for (work, edit) in
        [("one node-local service is added", Edit::NodeLocal), ("one EnvoyFilter is added", Edit::Filter)]
    {
        eprintln!("{work}");
        let whom = Whom::of(size);
        report.rows.push(fleet.measure(whom, work, async |_| edit.make(mesh, size, ROUNDS).await).await?);
    }
    Ok(())
}

/// Measures the debug pages that grow with the mesh. Meanwhile, proxies must be served.
async fn pages(control: &Control, fleet: &Fleet<'_>) -> Result<Measured> {
    let workload = fleet.mesh.workload(0);
    let dump = format!("config_dump?proxyID={}.{}", workload.name, workload.namespace);
    let work = "seven debug pages: all proxies, objects, services and endpoints, and what one proxy has";
    eprintln!("{work}");
    let (begin, used) = (Instant::now(), Spent::by(fleet.pid)?);
    let bytes = read_pages(control, PAGES.into_iter().chain([&*dump])).await?;
    Ok(Measured { bytes, ..Measured::quiet(work, begin.elapsed(), Spent::by(fleet.pid)?.since(&used)) })
}

/// The resident memory when the control plane has dropped what it kept for other proxies that may connect.
async fn calm_memory(pid: u32) -> Result<u64> {
    calm(pid).await?;
    Ok(probe::memory(pid)?.0)
}

/// Waits until the control plane has counted what changed and is idle. Returns the time from which it was.
async fn calm(pid: u32) -> Result<Instant> {
    tokio::time::sleep(CALM).await;
    idle(pid).await
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

/// After all proxies have their first configuration, acknowledgements are counted, and statuses are written and read
/// back. This must not count as the cost of the first change.
async fn written_back(pid: u32) -> Result<Measured> {
    let (begin, used) = (Instant::now(), Spent::by(pid)?);
    let took = calm(pid).await? - begin;
    Ok(Measured::quiet("statuses counted and written", took, Spent::by(pid)?.since(&used)))
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
