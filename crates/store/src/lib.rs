//! The store of configuration objects.
//!
//! One trait, [`Store`], with three homes: [`memory`], [`embedded`] (durable, one directory) and [`etcd`]. They promise
//! the same, and one conformance suite holds them to it:
//!
//! - Every write happens at a **revision** of its own, ascending over the whole store; a transaction of several writes
//!   happens at one. An object's `metadata.resourceVersion` is the revision of its last write.
//! - A write that was answered is kept: on disk (embedded), by a majority (etcd).
//! - Reads see the store as it was at one revision, never half a transaction.
//! - A watch from a revision yields every later change once and in order, or ends with [`Error::Compacted`].
//!
//! Objects are JSON texts with the metadata that Kubernetes gives them. The store reads name, namespace, labels and UID,
//! and writes `metadata.resourceVersion`; everything else about their content is its users' affair.
//!
//! [`cache`] keeps a local view of a whole store.

pub mod cache;
pub mod embedded;
pub mod etcd;
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

/// A home of objects. Cheap to share: all methods take `&self`, and any number may run at once.
#[async_trait::async_trait]
pub trait Store: Send + Sync + 'static {
    /// The object of this key as it is now.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error>;

    /// Objects of a query, ascending by namespace and name, all as of one revision.
    ///
    /// # Errors
    /// [`Error::Compacted`], [`Error::Future`] or [`Error::InvalidContinue`] for revisions that cannot be read; or the
    /// store cannot be read.
    async fn list(&self, query: &Query) -> Result<List, Error>;

    /// All objects of a scope, of whatever types, ascending by key, as of one revision that is not older than the question.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn snapshot(&self, scope: &Scope) -> Result<List, Error>;

    /// Writes a batch: all of it, at one revision, or nothing. Answered when it is durable.
    ///
    /// # Errors
    /// An expectation that does not hold ([`Error::Conflict`], [`Error::Exists`], [`Error::NotFound`]); or the store cannot
    /// be written, in which case nothing of the batch is or will be there, but for [`Error::Unknown`].
    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error>;

    /// Follows all changes of a scope after a revision. Bookmarks come in between ([`WatchEvent::Bookmark`]).
    ///
    /// # Errors
    /// [`Error::Compacted`] or [`Error::Future`]; or the store cannot be read.
    async fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, Error>;

    /// The newest revision.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn revision(&self) -> Result<Revision, Error>;

    /// The versions of one object that are still kept, the newest first; deletions among them. At most `limit`.
    ///
    /// # Errors
    /// The store cannot be read; [`Error::Unsupported`] where it keeps none.
    async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error>;

    /// Forgets versions that were replaced at or before this revision. Current objects stay.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn compact(&self, upto: Revision) -> Result<(), Error>;

    /// Ends the store in good order: writes that wait are done first; then watches end with [`Error::Closed`], and so does
    /// every later call. Not needed for safety.
    async fn close(&self) {}
}
