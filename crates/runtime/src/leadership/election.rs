//! The task that acquires, renews and releases the lease.

use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{sleep_until, timeout};

use super::lease::{Elector, Lease, Step};
use super::term::{Clock, Term};
use super::{Lock, LockError, Options, Stats, stopped};

/// The lock of a single replica, which always leads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always;

impl Lock for Always {
    fn is_shared(&self) -> bool {
        false
    }

    async fn read(&self) -> Result<Option<(Lease, String)>, LockError> {
        Ok(None)
    }

    async fn write(&self, _: &Lease, _: Option<&str>) -> Result<bool, LockError> {
        Ok(true)
    }
}

/// Acquires and renews the lease until `stop`, then releases it.
pub(crate) async fn run<L: Lock>(
    lock: &L,
    options: &Options,
    clock: Clock,
    leads: &watch::Sender<Option<Term>>,
    stats: &Stats,
    mut led: impl AsyncFnMut(bool),
    mut stop: watch::Receiver<bool>,
) {
    if !lock.is_shared() {
        let (ends, over) = (Duration::MAX, Duration::MAX);
        report(lock.name(), Some(Term { ends, over }), leads, stats, &mut led).await;
        stopped(&mut stop).await;
        return report(lock.name(), None, leads, stats, &mut led).await;
    }
    let mut elector = Elector::new(options.identity.clone(), options.lease.clone());
    let mut failing = false;
    loop {
        let begun = clock.elapsed();
        // An API that does not answer must not keep this replica from noticing that its lease expired.
        let tried = tokio::select! {
            tried = timeout(options.lease.retry, attempt(lock, &mut elector, clock)) => tried,
            () = stopped(&mut stop) => break,
        };
        match tried.unwrap_or_else(|_| Err(LockError::TimedOut)) {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                tracing::warn!(lease = lock.name(), %error, "cannot read or write the lease");
            }
            Err(_) => {}
        }
        let next = begun + options.lease.retry;
        loop {
            let now = clock.elapsed();
            report(lock.name(), term(&elector, now), leads, stats, &mut led).await;
            if now >= next {
                break;
            }
            let turns = elector.turns(now).filter(|at| *at > now && *at < next);
            tokio::select! {
                () = sleep_until(clock.instant(turns.unwrap_or(next))) => {}
                () = stopped(&mut stop) => break,
            }
        }
        if *stop.borrow() {
            break;
        }
    }
    report(lock.name(), None, leads, stats, &mut led).await;
    let _ = timeout(options.lease.retry, release(lock, &mut elector)).await;
}

fn term(elector: &Elector, now: Duration) -> Option<Term> {
    let (ends, over) = elector.term(now)?;
    Some(Term { ends, over })
}

async fn attempt<L: Lock>(lock: &L, elector: &mut Elector, clock: Clock) -> Result<(), LockError> {
    let asked = clock.elapsed();
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
        && found.holder == elector.identity()
    {
        // If this fails, others wait until the lease expires.
        let _ = lock.write(&lease, Some(&version)).await;
    }
}

async fn report(
    lease: &str,
    now: Option<Term>,
    leads: &watch::Sender<Option<Term>>,
    stats: &Stats,
    led: &mut impl AsyncFnMut(bool),
) {
    let before = leads.send_replace(now).is_some();
    if before != now.is_some() {
        tracing::info!(lease, leading = now.is_some(), "leadership changed");
        stats.leading.store(now.is_some().into(), Ordering::Relaxed);
        led(now.is_some()).await;
    }
}
