//! Runs a [`Keeper`]: feeds it with what is found, stores what it creates, and publishes who signs.
//!
//! There is no lease. Creation and rotation are single writes that name the version which they replace, so of several replicas
//! one succeeds, and the others use its result.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use ca::keeper::{Content, Issuer, Keeper, Notice, Place, Step};
use config::MeshConfig;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::storage::{Secrets, store};
use crate::leadership::until;

/// The timeout of a write.
const WRITE: Duration = Duration::from_secs(30);
/// The wait after a failed write. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait after a failed write.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The interval of checks while roots are not rotated.
const IDLE: Duration = Duration::from_secs(3600);

/// The clock. Tests have their own.
pub(super) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The number of queued contents; sources wait when the queue is full.
pub(super) const QUEUE: usize = 16;

/// The content of a place.
pub(super) type Event = (Place, Content);

/// The times at which the root's expiry is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Schedule {
    /// The interval; zero for none.
    pub(super) interval: Duration,
    /// Whether the first check comes at a random time within the interval, so that replicas do not check at once.
    pub(super) jitter: bool,
}

impl Schedule {
    fn interval(self) -> Duration {
        if self.interval.is_zero() { IDLE } else { self.interval }
    }

    fn first(self) -> Duration {
        let share = f64::from(u32::try_from(uuid::Uuid::new_v4().as_u128() >> 96).unwrap_or(u32::MAX));
        if self.jitter { self.interval().mul_f64(share / f64::from(u32::MAX)) } else { Duration::ZERO }
    }
}

/// A running keeper.
pub(super) struct Keeping<S> {
    pub(super) keeper: Arc<Mutex<Keeper>>,
    pub(super) secrets: S,
    pub(super) schedule: Schedule,
    pub(super) clock: Clock,
    /// The trust domain becomes the organization of new roots.
    pub(super) mesh: watch::Receiver<Arc<MeshConfig>>,
    /// `None` until every place was read.
    pub(super) issuer: watch::Sender<Option<Issuer>>,
}

/// Failed writes.
struct Failing {
    reason: String,
    again: Instant,
    wait: Duration,
}

impl<S: Secrets> Keeping<S> {
    /// Runs until all sources ended.
    pub(super) async fn run(mut self, mut events: mpsc::Receiver<Event>) {
        let mut check = Instant::now() + self.schedule.first();
        let (mut due, mut failing, mut follows) = (false, None, true);
        loop {
            let organization = self.mesh.borrow_and_update().trust_domain.clone();
            self.keeper().set_organization(&organization);
            let Some(step) = self.step(due).await else { return };
            due = false;
            if self.write(&step, &mut failing).await {
                continue;
            }
            self.publish(step.issuer, failing.as_ref());
            let again = failing.as_ref().map(|failing| failing.again);
            tokio::select! {
                event = events.recv() => match event {
                    Some((place, content)) => self.keeper().observe(place, content),
                    None => return,
                },
                changed = self.mesh.changed(), if follows => follows = changed.is_ok(),
                () = sleep_until(check) => {
                    due = true;
                    check = Instant::now() + self.schedule.interval();
                }
                () = until(again) => {}
            }
            // Contents that arrive together are decided on together.
            while let Ok((place, content)) = events.try_recv() {
                self.keeper().observe(place, content);
            }
        }
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        locked(&self.keeper)
    }

    /// Decides. Creating a key takes up to some seconds of processor time.
    async fn step(&self, due: bool) -> Option<Step> {
        let (now, keeper) = ((self.clock)(), Arc::clone(&self.keeper));
        let stepped = tokio::task::spawn_blocking(move || locked(&keeper).step(now, due));
        let step = match stepped.await {
            Ok(step) => step,
            Err(error) => {
                // It fails during shutdown, or after a panic.
                tracing::error!(%error, "the certificate authority is not maintained any more");
                return None;
            }
        };
        step.notices.iter().for_each(log);
        Some(step)
    }

    /// Stores what has to be stored. Returns whether the place has another content now.
    async fn write(&self, step: &Step, failing: &mut Option<Failing>) -> bool {
        let Some(save) = &step.save else {
            *failing = None;
            return false;
        };
        if failing.as_ref().is_some_and(|failing| Instant::now() < failing.again) {
            return false;
        }
        let reason = match timeout(WRITE, store(&self.secrets, save)).await {
            Ok(Ok((content, ours))) => {
                if ours {
                    tracing::info!(name = save.name, "{}", save.reason);
                }
                *failing = None;
                self.keeper().observe(save.place(), content);
                return true;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "there was no answer in time".to_owned(),
        };
        if failing.as_ref().is_none_or(|failing| failing.reason != reason) {
            tracing::error!(name = save.name, reason, "cannot store the certificate authority, will retry");
        }
        let wait = failing.as_ref().map_or(FIRST_WAIT, |failing| (failing.wait * 2).min(LONGEST_WAIT));
        *failing = Some(Failing { reason, again: Instant::now() + wait, wait });
        false
    }

    fn publish(&self, issuer: Option<Issuer>, failing: Option<&Failing>) {
        let cannot_store = |failing: &Failing| {
            Issuer::Unavailable(format!("the certificate authority cannot be stored: {}", failing.reason))
        };
        let issuer = issuer.or_else(|| failing.map(cannot_store));
        self.issuer.send_if_modified(|current| {
            let differs = *current != issuer;
            *current = issuer;
            differs
        });
    }
}

fn locked(keeper: &Mutex<Keeper>) -> MutexGuard<'_, Keeper> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

fn log(notice: &Notice) {
    match notice {
        Notice::Used { place, subject, roots, replaces_key: false } => {
            tracing::info!(%place, subject, roots, "certificates are signed by this authority");
        }
        Notice::Used { place, subject, roots, replaces_key: true } => {
            tracing::warn!(%place, subject, roots, "certificates are signed by an authority with another key from now on");
        }
        Notice::Refused { reason, has_last: true } => {
            tracing::warn!(reason, "a certificate authority is not used; the last good one stays in use");
        }
        Notice::Refused { reason, has_last: false } => {
            tracing::error!(reason, "there is no certificate authority; no certificates are signed");
        }
        Notice::Resolved => tracing::info!("the problem of the certificate authority is solved"),
    }
}

#[cfg(test)]
mod tests;
