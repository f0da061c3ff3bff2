//! The control plane as a process: its start, and when it is idle.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use test_harness::run::Control;

use crate::probe::Usage;
use crate::report::Stall;

/// The maximum time of a start, and of any measurement.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// If nothing happens for this time, a change has arrived everywhere.
pub(crate) const QUIET: Duration = Duration::from_millis(700);

/// The debug pages that grow with the mesh.
pub(crate) const PAGES: [&str; 6] = ["syncz", "connections", "objectz", "configz", "registryz", "endpointz"];

/// Starts a control plane, with these paths in its environment, and waits until it is ready.
pub(crate) async fn started(binary: &Path, flags: &[&str], environment: &[(&str, &Path)]) -> Result<Control> {
    // The simulated proxies share one thread. If they are busy, they do not answer in time.
    let mut patient = flags.to_vec();
    if !flags.contains(&"--keepalive-timeout") {
        patient.extend(["--keepalive-timeout", "10m"]);
    }
    let mut control = Control::idle(binary, &patient, environment).map_err(anyhow::Error::from_boxed)?;
    launched(&mut control).await?;
    Ok(control)
}

/// How long work held up other work since the control plane started.
pub(crate) async fn stalls(control: &Control) -> Result<Vec<Stall>> {
    let metrics = control.debug("/metrics").await.map_err(anyhow::Error::from_boxed)?;
    Ok(Stall::read(&metrics.text()))
}

/// Reads debug pages. Returns their size, in bytes.
pub(crate) async fn read_pages(control: &Control, pages: impl IntoIterator<Item = &str>) -> Result<u64> {
    let mut bytes = 0;
    for page in pages {
        let answer = control.debug(&format!("/debug/{page}")).await.map_err(anyhow::Error::from_boxed)?;
        ensure!(answer.status.is_success(), "/debug/{page}: {}", answer.status);
        bytes += answer.body.len() as u64;
    }
    Ok(bytes)
}

/// Starts it again, and waits until it is ready.
pub(crate) async fn launched(control: &mut Control) -> Result<()> {
    control.launch().map_err(anyhow::Error::from_boxed)?;
    let begin = Instant::now();
    while !control.readiness().await.is_ok_and(|answer| answer.status.is_success()) {
        if begin.elapsed() > PATIENCE || control.pid().is_none() {
            return with_log(control, Err(anyhow!("the control plane did not become ready")));
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

/// Waits until the control plane is idle. Returns since when.
pub(crate) async fn idle(pid: u32) -> Result<Instant> {
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

/// The process ID of a control plane.
pub(crate) fn pid_of(control: &Control) -> Result<u32> {
    control.pid().context("the control plane has ended")
}

/// Adds the end of the control plane's log to an error.
pub(crate) fn with_log<T>(control: &Control, result: Result<T>) -> Result<T> {
    result.map_err(|error| match control.log_end() {
        Ok(log) => error.context(format!("the control plane's log ends:\n{log}")),
        Err(_) => error,
    })
}
