//! Counts exchanged between replicas that share a store.

use std::sync::Arc;

use status::Shares;
use tokio::sync::Notify;

use crate::core::Core;
use crate::world_handle::{Closed, WorldHandle};

/// The number of objects whose counts are applied in one step.
const TOGETHER: usize = 1024;

impl WorldHandle {
    /// The counts of this replica that changed since the last call (`None`: no proxy needs the object any more), or all of
    /// them if `all` is set. Empty while this replica leads in all scopes.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn shares(&self, all: bool) -> Result<Shares, Closed> {
        self.inspect(move |core| core.tracker.planner.shares(all)).await
    }

    /// Notified when [`WorldHandle::shares`] has changes.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn unpublished(&self) -> Result<Arc<Notify>, Closed> {
        self.inspect(|core| Arc::clone(&core.tracker.unpublished)).await
    }

    /// Applies changed counts of another replica. Used by the leader, and dropped when it stops leading.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn replica_reported(&self, peer: Arc<str>, mut shares: Shares) -> Result<(), Closed> {
        while !shares.is_empty() {
            let rest = shares.split_off(shares.len().min(TOGETHER));
            let (part, peer) = (std::mem::replace(&mut shares, rest), peer.clone());
            let apply = move |core: &mut Core| {
                let now = core.now();
                core.tracker.planner.replica_reported(&peer, part, now);
            };
            self.look(apply).await?;
        }
        Ok(())
    }

    /// Removes the counts of a replica that is gone.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn replica_removed(&self, peer: Arc<str>) -> Result<(), Closed> {
        let changed = self.look(move |core| core.tracker.planner.replica_removed(&peer)).await?;
        for part in changed.chunks(TOGETHER) {
            let part = part.to_vec();
            let count = move |core: &mut Core| {
                let now = core.now();
                part.iter().for_each(|key| core.tracker.planner.again(key, now));
            };
            self.look(count).await?;
        }
        Ok(())
    }
}
