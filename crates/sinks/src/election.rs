//! Holding the lease.

use std::sync::atomic::Ordering;
use std::time::SystemTime;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::lease::{Elector, Lease, Step};
use crate::{Lock, Options, Stats, stopped};

/// The lock of a replica that is alone: it leads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always;

impl Lock for Always {
    async fn read(&self) -> Result<Option<(Lease, String)>, String> {
        Ok(None)
    }

    async fn write(&self, _: &Lease, _: Option<&str>) -> Result<bool, String> {
        Ok(true)
    }
}

/// Seeks the lease and keeps it, until told to stop; then gives it back.
pub(crate) async fn run<L: Lock>(
    lock: &L,
    options: &Options,
    leads: &watch::Sender<bool>,
    stats: &Stats,
    mut led: impl AsyncFnMut(bool),
    mut stop: watch::Receiver<bool>,
) {
    let start = Instant::now();
    let mut elector = Elector::new(options.identity.clone(), options.lease.clone());
    let mut failing = false;
    loop {
        let begun = Instant::now();
        // A home that does not answer must not keep this replica from noticing that it leads no more.
        let tried = tokio::select! {
            tried = timeout(options.lease.retry, attempt(lock, &mut elector, start)) => tried,
            () = stopped(&mut stop) => break,
        };
        match tried.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(%error, "the lease cannot be read or written");
            }
            Err(_) => {}
        }
        tell(lock.name(), elector.leads(start.elapsed()), leads, stats, &mut led).await;
        let next = begun + options.lease.retry;
        let ends = elector
            .ends()
            .map(|at| start + at)
            .filter(|at| *at < next && *leads.borrow());
        tokio::select! {
            () = sleep_until(ends.unwrap_or(next)) => {}
            () = stopped(&mut stop) => break,
        }
        tell(lock.name(), elector.leads(start.elapsed()), leads, stats, &mut led).await;
    }
    tell(lock.name(), false, leads, stats, &mut led).await;
    let _ = timeout(options.lease.retry, release(lock, &mut elector)).await;
}

async fn attempt<L: Lock>(lock: &L, elector: &mut Elector, start: Instant) -> Result<(), String> {
    let asked = start.elapsed();
    let found = lock.read().await?;
    let (lease, version) = found.unzip();
    elector.set_revision(lock.revision(), lock.is_prior());
    if let Step::Write(wanted) = elector.look(lease.as_ref(), asked, SystemTime::now())
        && lock.write(&wanted, version.as_deref()).await?
    {
        elector.wrote(wanted, asked);
    }
    Ok(())
}

async fn release<L: Lock>(lock: &L, elector: &mut Elector) {
    let Some(lease) = elector.release(SystemTime::now()) else {
        return;
    };
    if let Ok(Some((found, version))) = lock.read().await
        && found.transitions == lease.transitions
    {
        // If this fails, others wait until it runs out.
        let _ = lock.write(&lease, Some(&version)).await;
    }
}

async fn tell(lease: &str, now: bool, leads: &watch::Sender<bool>, stats: &Stats, led: &mut impl AsyncFnMut(bool)) {
    let changed = leads.send_if_modified(|before| std::mem::replace(before, now) != now);
    if changed {
        tracing::info!(lease, leading = now, "writing");
        stats.leading.store(now.into(), Ordering::Relaxed);
        led(now).await;
    }
}
