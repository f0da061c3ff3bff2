//! When to ask again.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::kubernetes::request::Trouble;

/// How soon to ask again after a failure: first, and at most.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// How long to wait after a failure; `failures` came before it.
pub(super) fn wait(trouble: &Trouble, failures: u32) -> Duration {
    match trouble {
        // Nothing is wrong: what is old is listed anew, and what cannot be streamed comes by pages.
        Trouble::Gone(_) | Trouble::Refused(_) | Trouble::Failed(_) if failures == 0 => Duration::from_millis(10),
        // Not sooner than the server says.
        Trouble::Busy(Some(told), _) => (*told).min(AGAIN.1).mul_f64(1.0 + share() / 2.0),
        _ => jittered(AGAIN.0.saturating_mul(1 << failures.min(10)).min(AGAIN.1)),
    }
}

/// Told by every watch for which the server answers again; others that wait for it need not wait any longer. So what was
/// missed while it was away is read by all at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulse(watch::Sender<u64>);

impl Pulse {
    pub(super) fn beat(&self) {
        self.0.send_modify(|beats| *beats = beats.wrapping_add(1));
    }

    /// Waits for the next beat; it comes when nobody has asked for some moments.
    pub(super) async fn next(&self) {
        let mut beats = self.0.subscribe();
        sleep(AGAIN.0).await;
        // It never ends: it is ours.
        let _ = beats.changed().await;
    }
}

/// Between half of it and one and a half, so that those who failed together do not come together.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + share())
}

/// A part of one.
fn share() -> f64 {
    (random() % 1000) as f64 / 1000.0
}

/// Good enough for waiting.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
