//! Exchange of acknowledgement counts between replicas.
//!
//! A follower publishes its counts ([`publish`]) in a place that all replicas share ([`Board`]). The leader reads those of the others
//! ([`follow`]) and adds them to its own. A single replica leads and publishes nothing. One that leads in one scope only
//! ([`status::Scope`]) does both.
//!
//! A replica has a heartbeat (`alive`) there, and a value with its counts for each object. There are two such places: objects of a
//! store that the API does not serve ([`store`]), and ConfigMaps in Kubernetes ([`config_maps`]).

pub(super) mod config_maps;
mod follow;
mod publish;
pub(super) mod store;
#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use server::WorldHandle;
use status::Shares;
use tokio::sync::watch;

/// The heartbeat interval of a replica.
const BEAT: Duration = Duration::from_millis(7_500);
/// A replica without a heartbeat for this time, by the leader's clock, is evicted.
const GONE: Duration = Duration::from_secs(30);
/// The name of the heartbeat.
const ALIVE: &str = "alive";

/// The exchange of counts, as run by one replica.
pub(super) struct AckCounts<B> {
    pub(super) board: B,
    /// The identity of this replica there, unique across restarts.
    pub(super) identity: Arc<str>,
    /// The minimum time between two writes of the same counts.
    pub(super) interval: Duration,
}

impl<B: Board> AckCounts<B> {
    /// Publishes the counts of this replica, or reads those of others while it leads, until `stopped`. `leading` is whether it leads
    /// in each scope.
    pub(super) async fn run(
        mut self,
        pilot: WorldHandle,
        mut leading: watch::Receiver<[bool; 2]>,
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
        let _ = tokio::time::timeout(BEAT, self.board.remove(&self.identity)).await;
    }

    /// Runs until the world thread ends.
    async fn take_part(&mut self, leads: [bool; 2], pilot: &WorldHandle) {
        let AckCounts { board, identity, interval } = self;
        let (leads, follows) = (leads.contains(&true), leads.contains(&false));
        let reader = board.clone();
        if !follows && let Err(error) = board.remove(identity).await {
            tracing::debug!(%error, "cannot remove the published counts of this replica; another replica will");
        }
        let Ok(news) = pilot.unpublished().await else { return };
        tokio::select! {
            () = follow::run(&reader, identity, pilot), if leads => {}
            () = publish::run(board, *interval, &news, pilot), if follows => {}
        }
    }
}

/// The place where replicas exchange their counts.
pub(super) trait Board: Clone + Send + Sync {
    /// Why it cannot be read or written.
    type Error: Display + Send;

    /// Writes the heartbeat of this replica. Returns false if there was none: it is the first one, or another replica had evicted this
    /// one and removed what it published.
    fn beat(&mut self) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Publishes changed counts, or all counts if `all` is set, for which those of other objects are removed. What could not be
    /// written is written with the next call. Returns whether everything is written.
    fn write(&mut self, changes: Shares, all: bool) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Removes everything of a replica. What it publishes in the meantime may stay.
    fn remove(&self, replica: &Arc<str>) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Follows what all replicas publish.
    fn follow(&self) -> impl Follow;
}

/// A replica and the name of one of its values: [`ALIVE`], or that of an object as in [`status::stored_name`].
pub(super) type Name = (Arc<str>, Arc<str>);

/// News about the values that replicas have published.
pub(super) enum Event {
    /// All values. Others do not exist any more.
    Listed(Vec<(Name, Value)>),
    /// Later changes; `None` for removed values.
    Changed(Vec<(Name, Option<Value>)>),
}

/// Reads what replicas have published.
pub(super) trait Follow: Send {
    /// The next event; `None` if there will be none.
    fn next(&mut self) -> impl Future<Output = Option<Event>> + Send;
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
