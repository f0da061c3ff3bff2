//! The store of configuration objects.
//!
//! One trait, [`Store`], with three backends: [`memory`], [`embedded`] (durable, one directory) and [`etcd`]. One
//! conformance suite verifies the same guarantees for all of them:
//!
//! - Every write has a **revision**, ascending over the whole store. All writes of a transaction have the same
//!   revision. An object's `metadata.resourceVersion` is the revision of its last write.
//! - An acknowledged write is durable: on disk (embedded), on a majority of members (etcd).
//! - A read sees the store at one revision, never a partial transaction.
//! - A watch from a revision yields every later change once and in order, or ends with [`Error::Compacted`].
//!
//! ```text
//! commit ─► Prepared (on the caller's thread) ─► Draft ─► State + Ring ─► Watch ─► Follower
//!           Transaction, serialized              revisions  current objects, recent changes
//! ```
//!
//! Objects are JSON texts with Kubernetes metadata. The store reads name, namespace, labels and UID, and writes
//! `metadata.resourceVersion`. It does not interpret anything else.
//!
//! [`follow`] reads some types of a store and follows them across gaps.

pub mod embedded;
pub mod etcd;
pub mod follow;
pub mod memory;

mod error;
mod key;
mod limits;
mod object;
mod prepared;
mod query;
mod ring;
mod selector;
mod shared;
mod state;
mod transaction;
mod watch;

pub use error::Error;
pub use key::{GroupResource, Key};
pub use limits::Limits;
pub use object::{Revision, Stored, Version};
pub use query::{At, Continue, List, Query, Scope, Seen};
pub use selector::{FieldSelector, LabelSelector, SelectorError};
pub use transaction::{Committed, Expect, Operation, Transaction};
pub use watch::{Change, Feed, Watch, WatchEvent};

use tokio::sync::watch as watch_value;

/// The size of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreSize {
    /// The number of current objects, by type.
    pub objects: Vec<(GroupResource, usize)>,
    /// The size of the database on disk, in bytes; `None` if the store has no file.
    pub file_bytes: Option<u64>,
}

/// A storage backend. Cheap to share: all methods take `&self` and may run concurrently.
#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the current version of an object.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error>;

    /// Lists the objects of a query, ordered by namespace and name, all at one revision.
    ///
    /// # Errors
    /// [`Error::Compacted`], [`Error::Future`] or [`Error::InvalidContinue`] for revisions that cannot be read; or the
    /// store cannot be read.
    async fn list(&self, query: &Query) -> Result<List, Error>;

    /// Lists all objects of a scope, of any type, ordered by key, at one revision that is at least the newest one at
    /// the time of the call.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn snapshot(&self, scope: &Scope) -> Result<List, Error>;

    /// Commits a transaction atomically, at one revision. Returns when it is durable.
    ///
    /// # Errors
    /// A precondition failed ([`Error::Conflict`], [`Error::Exists`], [`Error::NotFound`]); or the store cannot be
    /// written. Nothing was written then, except possibly after [`Error::Unknown`].
    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error>;

    /// Watches all changes of a scope after a revision. Bookmarks come in between ([`WatchEvent::Bookmark`]).
    ///
    /// # Errors
    /// [`Error::Compacted`] or [`Error::Future`]; or the store cannot be read.
    async fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, Error>;

    /// Returns the newest revision.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn revision(&self) -> Result<Revision, Error>;

    /// Returns the retained versions of one object, including deletions, newest first. At most `limit`.
    ///
    /// # Errors
    /// The store cannot be read; [`Error::Unsupported`] if it keeps no history.
    async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error>;

    /// Removes versions that were replaced at or before this revision. Current objects stay.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn compact(&self, upto: Revision) -> Result<(), Error>;

    /// The reason for which nothing can be written at present; `None` while writes work, or if the store does not know.
    fn write_failure(&self) -> watch_value::Receiver<Option<Error>> {
        watch_value::channel(None).1
    }

    /// The size of the store as it is now; `None` if the store does not know. Must not block.
    fn size(&self) -> Option<StoreSize> {
        None
    }

    /// Closes the store: pending writes are completed, then watches and all later calls return [`Error::Closed`]. Not
    /// required for safety.
    async fn close(&self) {}
}
