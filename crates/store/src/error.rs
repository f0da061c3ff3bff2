//! What can go wrong.

use crate::{Key, Revision};

/// Why the store did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object was written meanwhile.
    #[error("{key} has changed: it is at revision {actual}, and {expected} was expected")]
    Conflict {
        /// Which.
        key: Key,
        /// The revision that was asked for.
        expected: Revision,
        /// The revision that it has.
        actual: Revision,
    },
    /// The object is there already.
    #[error("{key} exists already")]
    Exists {
        /// Which.
        key: Key,
    },
    /// The object is not there.
    #[error("{key} does not exist")]
    NotFound {
        /// Which.
        key: Key,
    },
    /// The revision was compacted, or a watch fell behind what is kept.
    #[error("revision {requested} is too old: history is kept from revision {oldest} on")]
    Compacted {
        /// What was asked for.
        requested: Revision,
        /// The oldest that can be asked for.
        oldest: Revision,
    },
    /// The revision has not happened yet.
    #[error("revision {requested} is in the future: the newest is {newest}")]
    Future {
        /// What was asked for.
        requested: Revision,
        /// The newest.
        newest: Revision,
    },
    /// A continue token that this store did not make.
    #[error("the continue token is not valid")]
    InvalidContinue,
    /// An object is larger than may be stored.
    #[error("{key} has {bytes} bytes; at most {limit} are stored")]
    TooLarge {
        /// Which.
        key: Key,
        /// Its size.
        bytes: usize,
        /// What is allowed.
        limit: usize,
    },
    /// The transaction or the key makes no sense; nothing was tried.
    #[error("{0}")]
    Invalid(String),
    /// The disk is full, or a quota is.
    #[error("no space is left: {0}")]
    Full(String),
    /// The store can be read and not written.
    #[error("the store cannot be written: {0}")]
    ReadOnly(String),
    /// Another process has the directory.
    #[error("{0}")]
    Locked(String),
    /// What is on disk is not what was written.
    #[error("the store is damaged: {0}")]
    Damaged(String),
    /// The home does not answer now. Nothing was written.
    #[error("the store does not answer: {0}")]
    Unavailable(String),
    /// The home did not answer: the write may have happened or not.
    #[error("it is not known whether the write happened: {0}")]
    Unknown(String),
    /// This home cannot do that.
    #[error("this store cannot {0}")]
    Unsupported(&'static str),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}
