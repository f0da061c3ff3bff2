//! Exchange of acknowledgement counts between replicas that share a store.
//!
//! A follower publishes its counts in the store, in objects of a type that the API does not serve ([`publish`]). The leader
//! reads those of the others ([`follow`]) and adds them to its own. A single replica leads and publishes nothing.
//!
//! The objects of a replica have its identity as their namespace: a heartbeat (`alive`), and one with its
//! counts for each object.

mod follow;
mod publish;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use server::WorldHandle;
use status::Shares;
use store::{Error, Expect, GroupResource, Key, Operation, Scope, Store, Stored, Transaction};
use tokio::sync::watch;

use publish::Publisher;

/// The heartbeat interval of a replica.
const BEAT: Duration = Duration::from_millis(7_500);
/// A replica without a heartbeat for this time, by the leader's clock, is evicted.
const GONE: Duration = Duration::from_secs(30);
/// The name of the heartbeat object.
const ALIVE: &str = "alive";

/// The exchange of counts, as run by one replica.
pub(super) struct AckCounts {
    pub(super) store: Arc<dyn Store>,
    /// The identity of this replica, unique across restarts.
    pub(super) identity: Arc<str>,
    /// The minimum time between two writes of the same counts.
    pub(super) interval: Duration,
}

impl AckCounts {
    /// Publishes the counts of this replica, or reads those of others while it leads, until `stopped`.
    pub(super) async fn run(
        self,
        pilot: WorldHandle,
        mut leading: watch::Receiver<bool>,
        mut stopped: watch::Receiver<bool>,
    ) {
        loop {
            let leads = *leading.borrow_and_update();
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stopped| *stopped) => break,
                Ok(()) = leading.changed() => {}
                () = self.take_part(leads, &pilot) => break,
            }
        }
        // If the removal fails, others notice the missing heartbeat.
        let _ = tokio::time::timeout(BEAT, remove(&*self.store, &self.identity)).await;
    }

    /// Runs until the world thread ends.
    async fn take_part(&self, leads: bool, pilot: &WorldHandle) {
        if leads {
            if let Err(error) = remove(&*self.store, &self.identity).await {
                tracing::debug!(%error, "cannot remove the published counts of this replica; another replica will");
            }
            follow::run(&self.store, &self.identity, pilot).await;
        } else if let Ok(news) = pilot.unpublished().await {
            let mut publisher = Publisher::new(Arc::clone(&self.store), Arc::clone(&self.identity));
            publisher.run(self.interval, &news, pilot).await;
        }
    }
}

/// An update about another replica.
#[derive(PartialEq, Debug)]
enum ReplicaUpdate {
    /// Changes some counts.
    Reported { replica: Arc<str>, shares: Shares },
    /// The replica is gone.
    Removed(Arc<str>),
}

/// The source and receiver of counts.
trait Counter: Send + Sync {
    /// The changes since the last call, or everything if `all` is set. `None` if the world thread ended.
    fn shares(&self, all: bool) -> impl Future<Output = Option<Shares>> + Send;

    /// Applies an update. Returns false if the world thread ended.
    fn apply(&self, update: ReplicaUpdate) -> impl Future<Output = bool> + Send;
}

impl Counter for WorldHandle {
    async fn shares(&self, all: bool) -> Option<Shares> {
        WorldHandle::shares(self, all).await.ok()
    }

    async fn apply(&self, update: ReplicaUpdate) -> bool {
        let applied = match update {
            ReplicaUpdate::Reported { replica, shares } => self.replica_reported(replica, shares).await,
            ReplicaUpdate::Removed(replica) => self.replica_removed(replica).await,
        };
        applied.is_ok()
    }
}

/// The type of the objects, which the API does not serve.
fn resource() -> GroupResource {
    GroupResource::new("internal.rutter", "tallies")
}

fn key(replica: &Arc<str>, name: impl Into<Arc<str>>) -> Key {
    Key::new(resource(), replica.clone(), name)
}

/// All objects of a replica in the store.
async fn of_replica(store: &dyn Store, replica: &Arc<str>) -> Result<Vec<Stored>, Error> {
    let scope = Scope { resource: Some(resource()), namespace: Some(replica.clone()), name: None };
    Ok(store.snapshot(&scope).await?.items)
}

/// Deletes all objects of a replica. Fails without a change if one was written in the meantime.
async fn remove(store: &dyn Store, replica: &Arc<str>) -> Result<(), Error> {
    let there = of_replica(store, replica).await?;
    let operations: Vec<Operation> = there
        .into_iter()
        .map(|object| Operation::Delete { expect: Expect::Revision(object.revision), key: object.key })
        .collect();
    if !operations.is_empty() {
        store.commit(Transaction { operations }).await?;
    }
    Ok(())
}
