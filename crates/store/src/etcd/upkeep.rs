//! Compaction, on demand and periodic.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use protos::etcdserverpb as pb;
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::Shared;
use super::client::{Effect, Failure, is_closed, number};
use super::write::{compare, delete};
use crate::{Error, Revision};

/// The number of tombstones removed in one transaction.
const TOMBSTONES: i64 = 64;

/// The settings of periodic compaction.
#[derive(Clone, Copy, Debug)]
pub struct Compaction {
    /// The interval.
    pub every: Duration,
    /// The age of retained history.
    pub keep: Duration,
}

/// Compacts periodically until the store is closed or dropped.
pub(super) fn start(shared: &Arc<Shared>, compaction: Compaction) {
    let closing = shared.client.closing();
    tokio::spawn(run(Arc::downgrade(shared), compaction, closing));
}

async fn run(shared: Weak<Shared>, compaction: Compaction, mut closing: tokio::sync::watch::Receiver<bool>) {
    let mut ticks = interval(compaction.every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut marks = Marks::default();
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = is_closed(&mut closing) => return,
        }
        let Some(shared) = shared.upgrade() else { return };
        let compacted = match shared.revision().await {
            Ok(newest) => match marks.mark(Instant::now(), newest, compaction.keep) {
                Some(upto) => shared.compact(upto).await,
                None => Ok(()),
            },
            Err(error) => Err(error),
        };
        if let Err(error) = compacted {
            tracing::warn!(%error, "etcd was not compacted; retrying at the next interval");
        }
    }
}

/// The newest revisions at past times.
#[derive(Default)]
struct Marks(VecDeque<(Instant, Revision)>);

impl Marks {
    /// Records the newest revision. Returns, once, the revision that was the newest `keep` ago.
    fn mark(&mut self, now: Instant, newest: Revision, keep: Duration) -> Option<Revision> {
        if self.0.back().is_none_or(|(_, last)| *last < newest) {
            self.0.push_back((now, newest));
        }
        let mut old = None;
        while self.0.front().is_some_and(|(at, _)| now.duration_since(*at) >= keep) {
            old = self.0.pop_front().map(|(_, revision)| revision);
        }
        old
    }
}

impl Shared {
    pub(super) async fn compact(&self, upto: Revision) -> Result<(), Error> {
        if upto == 0 {
            return Ok(());
        }
        let newest = self.revision().await?;
        if upto > newest {
            return Err(Error::Future { requested: upto, newest });
        }
        self.clear_tombstones(upto).await?;
        let request = pb::CompactionRequest { revision: number(upto), physical: false };
        let done = self
            .client
            .call::<_, pb::CompactionResponse>("/etcdserverpb.KV/Compact", request, Effect::Repeatable)
            .await;
        match done {
            // Another client compacted first.
            Ok(_) | Err(Failure::Compacted) => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Removes tombstones whose history is about to be compacted.
    async fn clear_tombstones(&self, upto: Revision) -> Result<(), Error> {
        loop {
            let tombstones = self.layout.tombstones();
            let request = pb::RangeRequest {
                key: tombstones.from,
                range_end: tombstones.end,
                limit: TOMBSTONES,
                keys_only: true,
                max_mod_revision: number(upto),
                ..Default::default()
            };
            let old = self.range(request).await?;
            if old.kvs.is_empty() {
                return Ok(());
            }
            let mut request = pb::TxnRequest::default();
            for kv in old.kvs {
                let at = pb::compare::TargetUnion::ModRevision(kv.mod_revision);
                request.compare.push(compare(&kv.key, pb::compare::Result::Equal, at));
                request.success.push(delete(kv.key));
            }
            // If a tombstone was rewritten or removed meanwhile, the next read shows the remaining ones.
            let _: pb::TxnResponse = self.client.call("/etcdserverpb.KV/Txn", request, Effect::Repeatable).await?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_revision_of_the_past_is_compacted_once() {
        let (mut marks, start, keep) = (Marks::default(), Instant::now(), Duration::from_secs(10));
        let mut at = |second, newest| marks.mark(start + Duration::from_secs(second), newest, keep);
        assert_eq!(at(0, 5), None);
        assert_eq!(at(5, 5), None);
        assert_eq!(at(6, 9), None);
        assert_eq!(at(10, 12), Some(5));
        assert_eq!(at(11, 12), None);
        assert_eq!(at(30, 12), Some(12));
        assert_eq!(at(60, 12), None, "no new revision");
    }
}
