//! Writes.

use std::collections::HashSet;

use serde_json::Value;

use crate::{Error, Key, Revision, Stored};

/// What must hold of an object for a write to happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expect {
    /// Nothing.
    #[default]
    Anything,
    /// It is not there.
    Absent,
    /// It is there.
    Present,
    /// It is there, and this was its last write.
    Revision(Revision),
}

/// One write.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Makes the object what is given. The store sets `metadata.resourceVersion`.
    Put {
        /// Which.
        key: Key,
        /// The whole object.
        value: Value,
        /// What must hold before.
        expect: Expect,
    },
    /// Takes the object away.
    Delete {
        /// Which.
        key: Key,
        /// What must hold before. With [`Expect::Anything`] an object that is not there is no error.
        expect: Expect,
    },
    /// Writes nothing; the transaction happens only if this holds.
    Check {
        /// Which.
        key: Key,
        /// What must hold.
        expect: Expect,
    },
}

impl Operation {
    /// The object that it is about.
    pub fn key(&self) -> &Key {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key, .. } | Operation::Check { key, .. } => key,
        }
    }

    /// What must hold before.
    pub fn expect(&self) -> Expect {
        match self {
            Operation::Put { expect, .. } | Operation::Delete { expect, .. } | Operation::Check { expect, .. } => {
                *expect
            }
        }
    }
}

/// A batch of writes, each about another object; all happen at one revision, or none does.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Transaction {
    /// The writes.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// A batch of one.
    pub fn one(operation: Operation) -> Transaction {
        Transaction {
            operations: vec![operation],
        }
    }

    /// Whether it makes sense by itself: every object is named once, by a proper key; every value is an object with, if
    /// any, a proper `metadata`. Sizes are checked where the text is made.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check(&self) -> Result<(), Error> {
        let mut seen = HashSet::with_capacity(self.operations.len());
        for operation in &self.operations {
            let key = operation.key();
            key.check()?;
            if !seen.insert(key) {
                return Err(Error::Invalid(format!("{key} occurs twice in one transaction")));
            }
            if let Operation::Put { value, .. } = operation {
                if !value.is_object() {
                    return Err(Error::Invalid(format!("{key} is not a JSON object")));
                }
                if value.get("metadata").is_some_and(|meta| !meta.is_object()) {
                    return Err(Error::Invalid(format!("{key}: metadata is not a JSON object")));
                }
            }
        }
        Ok(())
    }
}

impl Expect {
    /// Whether it holds of an object as it is now.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] or [`Error::Conflict`].
    pub fn check(self, key: &Key, now: Option<Revision>) -> Result<(), Error> {
        match (self, now) {
            (Expect::Absent, Some(_)) => Err(Error::Exists { key: key.clone() }),
            (Expect::Present | Expect::Revision(_), None) => Err(Error::NotFound { key: key.clone() }),
            (Expect::Revision(expected), Some(actual)) if expected != actual => Err(Error::Conflict {
                key: key.clone(),
                expected,
                actual,
            }),
            _ => Ok(()),
        }
    }
}

/// What a transaction did.
#[derive(Clone, Debug)]
pub struct Committed {
    /// When. A transaction that changed nothing (checks only, deletes of what is not there) makes no new revision.
    pub revision: Revision,
    /// For each operation what the object is now; for deletions what it was; none where there was or is nothing.
    pub objects: Vec<Option<Stored>>,
}
