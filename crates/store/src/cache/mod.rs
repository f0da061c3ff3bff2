//! A local copy of a store, or of some of its types, kept up to date by one watch.
//!
//! - The copy is consistent at one revision at any time and never contains a partial transaction. It starts empty and
//!   is *synced* after it was filled for the first time.
//! - After a gap (the watch fell behind, the store was unavailable for long, or it was restored from a backup)
//!   everything is listed again, and subscribers receive exactly the differences.
//! - [`Cache::subscribe`] yields the objects of a type and then its changes ([`Event`]). Subscriber queues are bounded:
//!   a slow subscriber loses its position and starts again with [`Event::Restart`] and the current objects.
//! - One task does all of this. It ends when the last [`Cache`] is dropped or [`Cache::stop`] is called. Subscriptions
//!   end then; the last copy stays readable.

mod subscription;
#[cfg(test)]
mod tests;
mod view;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::view::{Board, View};
use crate::{At, Error, GroupResource, Key, Query, Revision, Scope, Store, Stored, Watch, WatchEvent};

pub use self::subscription::{Event, Subscription};

/// Cache options.
#[derive(Clone, Debug)]
pub struct Options {
    /// The cached types; `None` for all.
    pub types: Option<Vec<GroupResource>>,
    /// The maximum number of event batches queued per subscriber.
    pub queue: usize,
    /// The wait after a first failure; doubled after each further one.
    pub retry_first: Duration,
    /// The maximum wait between two attempts.
    pub retry_most: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            types: None,
            queue: 256,
            retry_first: Duration::from_millis(50),
            retry_most: Duration::from_secs(5),
        }
    }
}

/// The state of the copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// Not filled yet.
    Starting,
    /// Up to date.
    Synced,
    /// The store is unavailable, for this reason. The copy may be outdated.
    Stale(Error),
    /// No longer updated.
    Stopped,
}

/// A cache of a store. Clones share it.
#[derive(Clone)]
pub struct Cache {
    board: Arc<Board>,
    /// The task ends when all of these are dropped.
    stop: watch::Sender<bool>,
}

impl Cache {
    /// Starts to follow a store, on the current runtime.
    pub fn start(store: Arc<dyn Store>, options: Options) -> Cache {
        let board = Arc::new(Board::new(options.queue));
        let (stop, stopped) = watch::channel(false);
        let follower = Follower {
            store,
            options,
            board: board.clone(),
        };
        tokio::spawn(follower.run(stopped));
        Cache { board, stop }
    }

    /// Returns an object.
    pub fn get(&self, key: &Key) -> Option<Stored> {
        self.board.read(|view| view.get(key).cloned())
    }

    /// Returns the objects of a type, ordered by namespace and name.
    pub fn list(&self, resource: &GroupResource) -> Vec<Stored> {
        self.board.read(|view| view.of_type(resource).cloned().collect())
    }

    /// The revision of the copy; 0 if it was not filled yet.
    pub fn revision(&self) -> Revision {
        self.board.read(View::revision)
    }

    /// The current status.
    pub fn status(&self) -> Status {
        self.board.status().borrow().clone()
    }

    /// Waits until the copy was filled for the first time. Returns false if the cache was stopped before.
    pub async fn synced(&self) -> bool {
        let mut status = self.board.status();
        match status.wait_for(|status| !matches!(status, Status::Starting)).await {
            Ok(status) => !matches!(*status, Status::Stopped),
            Err(_) => false,
        }
    }

    /// Waits until the copy has reached this revision. Returns false if the cache was stopped before.
    pub async fn reached(&self, revision: Revision) -> bool {
        let (mut reached, mut status) = (self.board.reached(), self.board.status());
        tokio::select! {
            reached = reached.wait_for(|reached| *reached >= revision) => reached.is_ok(),
            _ = status.wait_for(|status| matches!(status, Status::Stopped)) => false,
        }
    }

    /// Subscribes to a type: first its objects, then its changes.
    pub fn subscribe(&self, resource: &GroupResource) -> Subscription {
        Subscription::new(self.board.clone(), resource.clone())
    }

    /// Stops following. Subscriptions end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

struct Follower {
    store: Arc<dyn Store>,
    options: Options,
    board: Arc<Board>,
}

impl Follower {
    async fn run(self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            // Stopped, or all handles were dropped.
            _ = stopped.wait_for(|stop| *stop) => {}
            () = self.follow() => {}
        }
        self.board.end();
    }

    /// Follows the store: from the revision of the copy if the store still has the changes since; else from a new list.
    async fn follow(&self) {
        let mut wait = self.options.retry_first;
        loop {
            let filled = self.board.read(View::revision);
            let watch = match filled {
                0 => self.fill().await,
                after => self.store.watch(&self.scope(), after).await,
            };
            let error = match watch {
                Ok(watch) => self.drain(watch, &mut wait).await,
                Err(error) => error,
            };
            let error = match error {
                // The watch fell behind, or the store was replaced.
                Error::Compacted { .. } | Error::Future { .. } if filled > 0 => match self.fill().await {
                    Ok(watch) => self.drain(watch, &mut wait).await,
                    Err(error) => error,
                },
                error => error,
            };
            tracing::debug!(%error, "the view of the store does not follow now");
            self.board.set_stale(error);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(self.options.retry_most);
        }
    }

    /// The watched scope: one type, or everything if several types are cached.
    fn scope(&self) -> Scope {
        match self.options.types.as_deref() {
            Some([only]) => Scope {
                resource: Some(only.clone()),
                ..Scope::default()
            },
            _ => Scope::default(),
        }
    }

    /// Lists everything, emits the differences, and starts a watch at the revision of the list.
    async fn fill(&self) -> Result<Watch, Error> {
        let (objects, revision) = match &self.options.types {
            None => {
                let all = self.store.snapshot(&Scope::default()).await?;
                (all.items, all.revision)
            }
            Some(types) => self.list(types).await?,
        };
        let watch = self.store.watch(&self.scope(), revision).await?;
        self.board.replace(objects, revision);
        Ok(watch)
    }

    /// Lists the objects of some types at one revision.
    async fn list(&self, types: &[GroupResource]) -> Result<(Vec<Stored>, Revision), Error> {
        let (mut objects, mut at) = (Vec::new(), At::Latest);
        let mut revision = self.store.revision().await?;
        for resource in types {
            let query = Query {
                at,
                ..Query::of(resource.clone())
            };
            let list = self.store.list(&query).await?;
            objects.extend(list.items);
            revision = list.revision;
            at = At::Exactly(revision);
        }
        Ok((objects, revision))
    }

    /// Applies the events of a watch until it ends.
    async fn drain(&self, mut watch: Watch, wait: &mut Duration) -> Error {
        self.board.set_synced();
        loop {
            match watch.next().await {
                Ok(WatchEvent::Changes(changes)) => {
                    *wait = self.options.retry_first;
                    let wanted = |resource: &GroupResource| match &self.options.types {
                        None => true,
                        Some(types) => types.contains(resource),
                    };
                    self.board.apply(&changes, wanted);
                }
                Ok(WatchEvent::Bookmark(revision)) => {
                    *wait = self.options.retry_first;
                    self.board.progress(revision);
                }
                Err(error) => return error,
            }
        }
    }
}
