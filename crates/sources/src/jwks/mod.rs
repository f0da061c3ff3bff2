//! Public keys of token issuers, fetched over HTTP. The crate `jwks` decides when, and what of the answers is used.

mod client;
mod roots;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use config::{KeySet, Timestamp};
use futures::stream::{FuturesUnordered, StreamExt as _};
use jwks::{Change, Fetch, Now, Schedule, Settings};
use model::jwt::{KeySource, WantedKeys};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

pub use client::{Client, FetchError};

/// The sources to fetch.
pub type Keys = Arc<WantedKeys>;

/// The changes since the last update.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The changes.
    pub changes: Vec<Change>,
    /// Every source was fetched once, with any outcome.
    pub all_tried: bool,
}

/// The numbers of fetches by outcome.
#[derive(Debug, Default)]
pub struct Outcomes {
    succeeded: AtomicU64,
    failed: AtomicU64,
}

impl Outcomes {
    /// The numbers of successful and of failed fetches.
    pub fn counts(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }
}

/// Fetches the keys of all sources until the receiver is dropped. The first update comes immediately.
pub async fn follow<F, A>(
    mut wanted: watch::Receiver<Keys>,
    settings: Settings,
    fetch: F,
    outcomes: Arc<Outcomes>,
    updates: mpsc::Sender<Update>,
) where
    F: Fn(Fetch) -> A,
    A: Future<Output = Result<KeySet, FetchError>>,
{
    let started = Instant::now();
    let now = || Now { elapsed: started.elapsed(), wall: wall_clock() };
    let mut schedule = Schedule::new(settings);
    let one = |task: Fetch| {
        let (source, answer) = (task.source.clone(), fetch(task));
        async move { (source, answer.await) }
    };
    let mut fetches = FuturesUnordered::new();
    let first = wanted.borrow_and_update().clone();
    let mut changes = schedule.want(&first, now());
    let mut sent = None;
    loop {
        fetches.extend(schedule.begin(started.elapsed()).into_iter().map(&one));
        let update = Update { changes: std::mem::take(&mut changes), all_tried: schedule.all_tried() };
        if !update.changes.is_empty() || sent != Some(update.all_tried) {
            sent = Some(update.all_tried);
            if updates.send(update).await.is_err() {
                return;
            }
        }
        let due = schedule.next_due().map(|due| started + due);
        let next = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = next => {}
            Some((source, outcome)) = fetches.next() => {
                outcomes.count(&source, &outcome);
                let outcome = outcome.map_err(|error| error.to_string());
                changes.extend(schedule.finish(&source, outcome, now(), random()));
            }
            changed = wanted.changed() => match changed {
                Ok(()) => {
                    let sources = wanted.borrow_and_update().clone();
                    changes = schedule.want(&sources, now());
                }
                Err(_) => return,
            },
        }
    }
}

impl Outcomes {
    fn count(&self, source: &KeySource, outcome: &Result<KeySet, FetchError>) {
        match outcome {
            Ok(_) => {
                self.succeeded.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(source = ?source.url(), "fetched the keys of a token issuer");
            }
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                // Users choose the text of a URL: it is escaped, so that it cannot look like another line.
                let (source, detail) = (source.url(), error.detail());
                tracing::warn!(?source, %error, ?detail, "the keys of a token issuer cannot be fetched; it is retried");
            }
        }
    }
}

fn random() -> u32 {
    // The hash has 64 bits, of which any are as good as others.
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix(i64::try_from(since.as_secs()).unwrap_or_default())
}

#[cfg(test)]
mod tests;
