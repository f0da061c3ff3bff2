//! What replicas that share a store tell each other of their proxies: handed out, and taken in.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::ObjectKey;
use status::Share;
use tokio::sync::Notify;

use crate::world_handle::{Closed, Core, WorldHandle};

impl WorldHandle {
    /// What this replica counts of the objects of which it counts something else than when this was called last (none:
    /// no proxy of it needs the object any more), or of all objects, `anew`. Nothing while it leads.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn shares(&self, anew: bool) -> Result<Vec<(ObjectKey, Option<Share>)>, Closed> {
        self.inspect(move |core| core.tracker.planner.shares(anew)).await
    }

    /// Is notified when [`WorldHandle::shares`] has something new.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn unshared(&self) -> Result<Arc<Notify>, Closed> {
        self.inspect(|core| Arc::clone(&core.tracker.unshared)).await
    }

    /// Takes in what another replica counts: all that it has in a shard, in place of what it had there. Needed by the
    /// replica that leads, and forgotten when it leads no more.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn told(
        &self,
        peer: Arc<str>,
        shard: Arc<str>,
        shares: BTreeMap<ObjectKey, Share>,
    ) -> Result<(), Closed> {
        let told = move |core: &mut Core| {
            let now = core.now();
            core.tracker.planner.told(&peer, &shard, shares, now);
        };
        self.inspect(told).await
    }

    /// Forgets what another replica counts: it is gone.
    ///
    /// # Errors
    /// The thread has ended.
    pub async fn parted(&self, peer: Arc<str>) -> Result<(), Closed> {
        let parted = move |core: &mut Core| {
            let now = core.now();
            core.tracker.planner.parted(&peer, now);
        };
        self.inspect(parted).await
    }
}
