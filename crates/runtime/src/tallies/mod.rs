//! What each of several replicas counts, told to the one that leads: through the store that they share.
//!
//! Who does not lead keeps its tallies in the store, in objects of a type that the API does not serve ([`publish`]); who
//! leads reads those of the others ([`follow`]) and adds them to its own. A replica alone leads, and writes nothing.
//!
//! The objects of a replica have its identity as their namespace: `alive`, which changes all the time, and its
//! tallies in parts by the hash of what they speak of.

mod follow;
mod publish;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use config::ObjectKey;
use server::WorldHandle;
use status::Share;
use store::{Error, Expect, GroupResource, Key, Operation, Scope, Store, Stored, Transaction};
use tokio::sync::watch;

use publish::Publisher;

/// How often a replica says that it lives.
const BEAT: Duration = Duration::from_millis(7_500);
/// Who has not said so for this long, by the clock of who listens, is gone.
const GONE: Duration = Duration::from_secs(30);
/// The object that says it.
const ALIVE: &str = "alive";

/// A replica's side of it.
pub(super) struct Tallies {
    pub(super) store: Arc<dyn Store>,
    /// What this replica calls itself; no other process ever did.
    pub(super) identity: Arc<str>,
    /// The least time between two writes of the same tallies.
    pub(super) interval: Duration,
}

impl Tallies {
    /// Publishes what this replica counts, or reads what others do while it leads, until it is stopped.
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
        // If it cannot be taken away now, others find out that nobody renews it.
        let _ = tokio::time::timeout(BEAT, remove(&*self.store, &self.identity)).await;
    }

    /// Does not end while there is a world to tell of.
    async fn take_part(&self, leads: bool, pilot: &WorldHandle) {
        if leads {
            if let Err(error) = remove(&*self.store, &self.identity).await {
                tracing::debug!(%error, "the tallies that this replica published stay until another one finds them");
            }
            follow::run(&self.store, &self.identity, pilot).await;
        } else if let Ok(news) = pilot.unshared().await {
            let mut publisher = Publisher::new(Arc::clone(&self.store), Arc::clone(&self.identity));
            publisher.run(self.interval, &news, pilot).await;
        }
    }
}

/// What changed of a replica's shares; none: there is no share of the object any more.
type Changes = Vec<(ObjectKey, Option<Share>)>;

/// What is heard of another replica.
#[derive(PartialEq, Debug)]
enum Said {
    /// All that it has in a part, in place of what it had there.
    Told {
        peer: Arc<str>,
        shard: Arc<str>,
        shares: BTreeMap<ObjectKey, Share>,
    },
    /// It is gone.
    Parted(Arc<str>),
}

/// Who counts.
trait Counter: Send + Sync {
    /// What changed since this was asked last, or everything, `anew`. None: it has ended.
    fn shares(&self, anew: bool) -> impl Future<Output = Option<Changes>> + Send;

    /// Takes in what was heard. False: it has ended.
    fn hear(&self, said: Said) -> impl Future<Output = bool> + Send;
}

impl Counter for WorldHandle {
    async fn shares(&self, anew: bool) -> Option<Changes> {
        WorldHandle::shares(self, anew).await.ok()
    }

    async fn hear(&self, said: Said) -> bool {
        let heard = match said {
            Said::Told { peer, shard, shares } => self.told(peer, shard, shares).await,
            Said::Parted(peer) => self.parted(peer).await,
        };
        heard.is_ok()
    }
}

/// The type of the objects: one that no client can name.
fn resource() -> GroupResource {
    GroupResource::new("internal.rutter", "tallies")
}

fn key(replica: &Arc<str>, name: impl Into<Arc<str>>) -> Key {
    Key::new(resource(), replica.clone(), name)
}

/// All that a replica has in the store.
async fn of_replica(store: &dyn Store, replica: &Arc<str>) -> Result<Vec<Stored>, Error> {
    let scope = Scope {
        resource: Some(resource()),
        namespace: Some(replica.clone()),
        name: None,
    };
    Ok(store.snapshot(&scope).await?.items)
}

/// Takes away all that a replica has in the store, unless it is just writing there: then nothing, and that is an error.
async fn remove(store: &dyn Store, replica: &Arc<str>) -> Result<(), Error> {
    let there = of_replica(store, replica).await?;
    let operations: Vec<Operation> = there
        .into_iter()
        .map(|object| Operation::Delete {
            expect: Expect::Revision(object.revision),
            key: object.key,
        })
        .collect();
    if !operations.is_empty() {
        store.commit(Transaction { operations }).await?;
    }
    Ok(())
}
