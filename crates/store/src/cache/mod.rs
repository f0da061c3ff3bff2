//! The caching controller: a local view of a whole store, or of some of its types, kept by one watch.
//!
//! - The view is as of one revision of the store at any time, never half a transaction, and follows on its own. It begins
//!   empty and is *synced* when it has been filled for the first time.
//! - After a gap (the watch fell behind, the store was away for long, an older copy of it was put back) everything is
//!   listed again, and subscribers see exactly the differences.
//! - [`Cache::subscribe`] gives the objects of a type and then what changes ([`Event`]). Queues to subscribers have an
//!   end: one that is too slow loses its place and begins again with [`Event::Restart`] and the objects as they are then.
//!   It never costs more memory than its queue.
//! - One task does all of it. It ends when the last [`Cache`] is dropped or [`Cache::stop`] is called; subscriptions end
//!   then, and what was seen last stays readable.

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

/// How a view is kept.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which types; none: all.
    pub types: Option<Vec<GroupResource>>,
    /// How many batches of events wait for a subscriber at most.
    pub queue: usize,
    /// How long to wait after a first failure before asking the store again; doubled each time.
    pub retry_first: Duration,
    /// The longest wait between two attempts.
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

/// How the view stands to the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Status {
    /// It has not been filled yet.
    Starting,
    /// It follows.
    Synced,
    /// It was filled and has lost the store, for this reason. What it has may be old.
    Stale(Error),
    /// It does not follow any more.
    Stopped,
}

/// A view of a store. Clones share it.
#[derive(Clone)]
pub struct Cache {
    board: Arc<Board>,
    /// When all of these are gone the task ends.
    stop: watch::Sender<bool>,
}

impl Cache {
    /// Begins to follow a store, on the runtime that this is called in.
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

    /// The object of this key.
    pub fn get(&self, key: &Key) -> Option<Stored> {
        self.board.read(|view| view.get(key).cloned())
    }

    /// The objects of a type, ascending by namespace and name.
    pub fn list(&self, resource: &GroupResource) -> Vec<Stored> {
        self.board.read(|view| view.of_type(resource).cloned().collect())
    }

    /// The revision that the view is as of; 0: it was not filled yet.
    pub fn revision(&self) -> Revision {
        self.board.read(View::revision)
    }

    /// How it stands to the store.
    pub fn status(&self) -> Status {
        self.board.status().borrow().clone()
    }

    /// Waits until the view was filled for the first time. False: it was stopped before.
    pub async fn synced(&self) -> bool {
        let mut status = self.board.status();
        match status.wait_for(|status| !matches!(status, Status::Starting)).await {
            Ok(status) => !matches!(*status, Status::Stopped),
            Err(_) => false,
        }
    }

    /// Waits until the view is as of this revision or a later one. False: it was stopped before.
    pub async fn reached(&self, revision: Revision) -> bool {
        let (mut reached, mut status) = (self.board.reached(), self.board.status());
        tokio::select! {
            reached = reached.wait_for(|reached| *reached >= revision) => reached.is_ok(),
            _ = status.wait_for(|status| matches!(status, Status::Stopped)) => false,
        }
    }

    /// Follows a type: its objects first, then what changes.
    pub fn subscribe(&self, resource: &GroupResource) -> Subscription {
        Subscription::new(self.board.clone(), resource.clone())
    }

    /// Ends following. Subscriptions end, too.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// The task.
struct Follower {
    store: Arc<dyn Store>,
    options: Options,
    board: Arc<Board>,
}

impl Follower {
    async fn run(self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            // Told to, or nobody is left who could.
            _ = stopped.wait_for(|stop| *stop) => {}
            () = self.follow() => {}
        }
        self.board.end();
    }

    /// Follows for ever: from where the view is, if the store still knows what happened since; else from a new list.
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
                // The watch fell behind, or the store is another than it was.
                Error::Compacted { .. } | Error::Future { .. } if filled > 0 => match self.fill().await {
                    Ok(watch) => self.drain(watch, &mut wait).await,
                    Err(error) => error,
                },
                error => error,
            };
            tracing::debug!(%error, "the view of the store does not follow now");
            self.board.lost(error);
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(self.options.retry_most);
        }
    }

    /// What is watched: one type, or everything, of which the wanted types are taken.
    fn scope(&self) -> Scope {
        match self.options.types.as_deref() {
            Some([only]) => Scope {
                resource: Some(only.clone()),
                ..Scope::default()
            },
            _ => Scope::default(),
        }
    }

    /// Lists everything, tells the differences, and watches from there.
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

    /// The objects of some types, all as of one revision.
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

    /// Takes in what a watch yields until it ends.
    async fn drain(&self, mut watch: Watch, wait: &mut Duration) -> Error {
        self.board.found();
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
