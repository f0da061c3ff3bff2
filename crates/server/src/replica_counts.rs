//! Counts exchanged between replicas that share a store.

use std::sync::Arc;

use status::Shares;
use tokio::sync::Notify;

use crate::core::Core;
use crate::world_handle::{Closed, WorldHandle};

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
    pub async fn replica_reported(&self, peer: Arc<str>, shares: Shares) -> Result<(), Closed> {
        let apply = move |core: &mut Core| {
            let now = core.now();
            core.tracker.planner.replica_reported(&peer, shares, now);
        };
        self.inspect(apply).await
    }

    /// Removes the counts of a replica that is gone.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn replica_removed(&self, peer: Arc<str>) -> Result<(), Closed> {
        let replica_removed = move |core: &mut Core| {
            let now = core.now();
            core.tracker.planner.replica_removed(&peer, now);
        };
        self.inspect(replica_removed).await
    }
}
