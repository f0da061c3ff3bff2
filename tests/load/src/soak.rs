//! A soak: a mesh that changes all the time, for as long as asked, with the memory of the control plane.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use test_harness::run::Control;

use crate::churn::Churn;
use crate::fleet::{Fleet, Whom};
use crate::mesh::Mesh;
use crate::probe::{self, Usage};
use crate::process::{idle, pid_of, started, with_log};
use crate::report::size;
use crate::run::Plan;

/// The time between two steps: four edits, and every second time a proxy that goes and one that comes.
const STEP: Duration = Duration::from_secs(1);
/// The share of the time, as a fraction, that is not counted: caches and the recent history of a store fill up.
const WARM_UP: usize = 6;
/// The share, in percent, by which the memory may grow from the first third of the counted time to the last one.
const BOUND: u64 = 10;

/// Changes a mesh for this time with this `rutter`, and prints a line for each minute.
///
/// # Errors
/// The memory grows by more than [`BOUND`], a stream ends, or a change does not arrive.
pub async fn soak(binary: &Path, flags: &[&str], plan: Plan, time: Duration) -> Result<()> {
    probe::raise_file_limit();
    eprintln!("writing {} services", plan.size.services);
    let mut mesh = Mesh::at(plan.location, plan.size).await?;
    let data = tempfile::tempdir()?;
    let reads = mesh.flags(data.path());
    let all: Vec<&str> = reads.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let control = started(binary, &all, &[]).await?;
    mesh.fill(data.path()).await?;
    let result = run(&control, &mesh, plan, time).await;
    with_log(&control, result)
}

async fn run(control: &Control, mesh: &Mesh, plan: Plan, time: Duration) -> Result<()> {
    let pid = pid_of(control)?;
    let mut fleet = Fleet::new(mesh, control.grpc(), plan.protocol, pid);
    eprintln!("connecting {} proxies", plan.proxies);
    fleet.measure(Whom::AllFrom(0), "first configuration", async |fleet| fleet.connect(plan.proxies)).await?;
    let before = probe::memory(pid)?.0;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} before the first change\n\n| minute | resident | control plane | edits | proxies replaced | responses | sent |\n\
         |---:|---:|---:|---:|---:|---:|---:|",
        size(before)
    )?;
    let mut churn = Churn::new(mesh, plan.size);
    let samples = churned(&mut fleet, &mut churn, time).await?;
    churn.end().await?;
    idle(pid).await?;
    let after = probe::memory(pid)?.0;
    // All proxies still receive what changes.
    let last = async |_: &mut Fleet<'_>| mesh.change_endpoints(std::iter::once((plan.size.services / 2, 40))).await;
    fleet.measure(Whom::of(plan.size), "the last change", last).await?;
    writeln!(out, "\n{} after all objects that came were removed.", size(after))?;
    let (first, last) = thirds(&samples);
    writeln!(
        out,
        "Median of the first third after the warm-up: {}, of the last third: {}; it may grow by {BOUND} %.",
        size(first),
        size(last)
    )?;
    ensure!(!has_grown(first, last), "the resident memory grew from {} to {}", size(first), size(last));
    Ok(())
}

/// Changes the mesh for this time. Returns the resident memory after each step.
async fn churned(fleet: &mut Fleet<'_>, churn: &mut Churn<'_>, time: Duration) -> Result<Vec<u64>> {
    let (begin, proxies) = (Instant::now(), fleet.len());
    let (mut samples, mut ticks) = (Vec::new(), tokio::time::interval(STEP));
    let mut line = Line::at(fleet, churn)?;
    let (mut minute, mut replaced) = (0, 0);
    for step in 0.. {
        ticks.tick().await;
        churn.step().await?;
        if step % 2 == 0 {
            fleet.replace(replaced % proxies, proxies + replaced)?;
            replaced += 1;
        }
        fleet.check()?;
        samples.push(probe::memory(fleet.pid)?.0);
        if begin.elapsed().as_secs() / 60 > minute || begin.elapsed() > time {
            minute += 1;
            line = line.print(minute, replaced, fleet, churn)?;
        }
        if begin.elapsed() > time {
            break;
        }
    }
    Ok(samples)
}

/// The counters at the beginning of a minute.
struct Line {
    used: Usage,
    edits: u64,
    replaced: usize,
    totals: (u64, u64),
}

impl Line {
    fn at(fleet: &Fleet<'_>, churn: &Churn<'_>) -> Result<Line> {
        Ok(Line { used: Usage::of(fleet.pid)?, edits: churn.edits, replaced: 0, totals: fleet.totals() })
    }

    /// Prints what happened since; returns the counters of now.
    fn print(self, minute: u64, replaced: usize, fleet: &Fleet<'_>, churn: &Churn<'_>) -> Result<Line> {
        let now = Line { replaced, ..Line::at(fleet, churn)? };
        writeln!(
            std::io::stdout(),
            "| {minute} | {} | {:.1} s CPU | {} | {} | {} | {} |",
            size(probe::memory(fleet.pid)?.0),
            now.used.since(&self.used).as_secs_f64(),
            now.edits - self.edits,
            replaced - self.replaced,
            now.totals.1 - self.totals.1,
            size(now.totals.0 - self.totals.0)
        )?;
        Ok(now)
    }
}

/// The medians of the first and the last third of what is counted.
fn thirds(samples: &[u64]) -> (u64, u64) {
    let samples = &samples[samples.len() / WARM_UP..];
    let third = samples.len().div_ceil(3);
    let median = |part: &[u64]| {
        let mut part = part.to_vec();
        part.sort_unstable();
        part.get(part.len() / 2).copied().unwrap_or(0)
    };
    (median(&samples[..third]), median(&samples[samples.len() - third..]))
}

fn has_grown(first: u64, last: u64) -> bool {
    last > first + first * BOUND / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_found_among_spikes() {
        let flat: Vec<u64> = (0..300).map(|n| 1000 + n % 7 + if n % 50 == 0 { 5000 } else { 0 }).collect();
        let (first, last) = thirds(&flat);
        assert!(!has_grown(first, last), "{first} {last}");
        let leak: Vec<u64> = flat.iter().zip(0..).map(|(value, n)| value + n).collect();
        let (first, last) = thirds(&leak);
        assert!(has_grown(first, last), "{first} {last}");
        assert_eq!(thirds(&[]), (0, 0));
        let warm: Vec<u64> = (0..300).map(|n| if n < 50 { n } else { 1000 }).collect();
        assert_eq!(thirds(&warm), (1000, 1000));
    }
}
