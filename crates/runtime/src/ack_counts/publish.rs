//! Publishes the counts of this replica: changed ones, at most once per interval.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::{BEAT, Board, Counter};

/// Writes changed counts, at most once per `least`, and heartbeats. Ends with the world thread.
pub(super) async fn run(board: &mut impl Board, least: Duration, changed: &Notify, counter: &impl Counter) {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut all, mut unwritten, mut failing) = (true, false, false);
    let mut next = Instant::now() + least;
    loop {
        let due = async {
            sleep_until(next).await;
            if !all && !unwritten {
                changed.notified().await;
            }
        };
        let done = tokio::select! {
            biased;
            _ = beat.tick() => board.beat().await.map(|known| all |= !known),
            () = due => {
                let Some(changes) = counter.shares(all).await else { return };
                let written = board.write(changes, all).await;
                all &= written.is_err();
                unwritten = !matches!(written, Ok(true));
                next = Instant::now() + least.max(if written.is_err() { BEAT / 5 } else { Duration::ZERO });
                written.map(drop)
            }
        };
        match done {
            Ok(()) => failing = false,
            Err(error) if failing => tracing::debug!(%error, "cannot publish the counts of this replica, will retry"),
            Err(error) => {
                failing = true;
                tracing::warn!(%error, "cannot publish the counts of this replica, will retry; statuses do not count its proxies");
            }
        }
    }
}
