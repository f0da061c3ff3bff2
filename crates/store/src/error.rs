//! Errors of the store.

use crate::{Key, Revision};

/// An error of a store operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object was modified concurrently.
    #[error("{key} has changed: it is at revision {actual}, and {expected} was expected")]
    Conflict {
        /// The object.
        key: Key,
        /// The revision in the precondition.
        expected: Revision,
        /// The current revision.
        actual: Revision,
    },
    /// The object already exists.
    #[error("{key} already exists")]
    Exists {
        /// The object.
        key: Key,
    },
    /// The object does not exist.
    #[error("{key} does not exist")]
    NotFound {
        /// The object.
        key: Key,
    },
    /// The revision was compacted, or a watch fell behind the retained history.
    #[error("revision {requested} is too old: history is kept from revision {oldest} on")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest available revision.
        oldest: Revision,
    },
    /// The revision is newer than the newest one.
    #[error("revision {requested} is in the future: the newest is {newest}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        newest: Revision,
    },
    /// The continue token was not created by this store.
    #[error("the continue token is not valid")]
    InvalidContinue,
    /// The object exceeds the size limit.
    #[error("{key} has {bytes} bytes; at most {limit} are stored")]
    TooLarge {
        /// The object.
        key: Key,
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The transaction or key is invalid. Nothing was attempted.
    #[error("{0}")]
    Invalid(String),
    /// The disk is full, or a quota is exceeded.
    #[error("no space is left: {0}")]
    Full(String),
    /// The store can be read but not written.
    #[error("the store cannot be written: {0}")]
    ReadOnly(String),
    /// Another process has locked the directory.
    #[error("{0}")]
    Locked(String),
    /// The data on disk is corrupt.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The backend is unavailable. Nothing was written.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The backend did not answer. The write may have happened or not.
    #[error("it is not known whether the write happened: {0}")]
    Unknown(String),
    /// The backend does not support the operation.
    #[error("this store cannot {0}")]
    Unsupported(&'static str),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
