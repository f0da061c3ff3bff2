//! Backoff.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::kubernetes::request::RequestError;

/// The initial and the maximum backoff.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// The wait after an error that follows `failures` others.
pub(super) fn wait(error: &RequestError, failures: u32) -> Duration {
    match error {
        // Not a failure of the server: expired versions are relisted, and unsupported streams are requested in pages.
        RequestError::Expired(_) | RequestError::Invalid(_) | RequestError::ServerError(_) if failures == 0 => {
            Duration::from_millis(10)
        }
        // At least as long as the server requests.
        RequestError::Throttled(Some(requested), _) => (*requested).min(BACKOFF.1).mul_f64(1.0 + share() / 2.0),
        _ => jittered(BACKOFF.0.saturating_mul(1 << failures.min(10)).min(BACKOFF.1)),
    }
}

/// Signaled by every watch whose server becomes available again, to end the backoff of the others. So all kinds catch
/// up at the same time.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecoverySignal(watch::Sender<u64>);

impl RecoverySignal {
    pub(super) fn beat(&self) {
        self.0.send_modify(|beats| *beats = beats.wrapping_add(1));
    }

    /// Waits for the next signal; ignores signals during the initial backoff.
    pub(super) async fn next(&self) {
        let mut beats = self.0.subscribe();
        sleep(BACKOFF.0).await;
        // The sender cannot be dropped: we hold it.
        let _ = beats.changed().await;
    }
}

/// Adds jitter of ±50 %, so that simultaneous failures do not cause simultaneous retries.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(0.5 + share())
}

/// A random fraction.
fn share() -> f64 {
    (random() % 1000) as f64 / 1000.0
}

/// A random number, sufficient for jitter.
pub(super) fn random() -> u64 {
    RandomState::new().hash_one(0)
}
