//! Transactions.

use std::collections::HashSet;

use serde_json::Value;

use crate::{Error, Key, Revision, Stored};

/// A precondition of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Expect {
    /// No precondition.
    #[default]
    Anything,
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present,
    /// The object exists and has this revision.
    Revision(Revision),
}

/// One operation of a transaction. `V` is the form of the object.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation<V = Value> {
    /// Creates or replaces the object. The store sets `metadata.resourceVersion`.
    Put {
        /// The object's key.
        key: Key,
        /// The whole object.
        value: V,
        /// The precondition.
        expect: Expect,
    },
    /// Deletes the object.
    Delete {
        /// The object's key.
        key: Key,
        /// The precondition. With [`Expect::Anything`] deleting an object that does not exist is not an error.
        expect: Expect,
    },
    /// Writes nothing, but the transaction fails unless the precondition holds.
    Check {
        /// The object's key.
        key: Key,
        /// The precondition.
        expect: Expect,
    },
}

impl<V> Operation<V> {
    /// The object's key.
    pub fn key(&self) -> &Key {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key, .. } | Operation::Check { key, .. } => key,
        }
    }

    /// The precondition.
    pub fn expect(&self) -> Expect {
        match self {
            Operation::Put { expect, .. } | Operation::Delete { expect, .. } | Operation::Check { expect, .. } => {
                *expect
            }
        }
    }
}

/// Writes to distinct objects that happen atomically, at one revision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Transaction {
    /// The operations.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// A transaction with one operation.
    pub fn one(operation: Operation) -> Transaction {
        Transaction { operations: vec![operation] }
    }

    /// Validates the transaction: no object occurs twice, keys are valid, and every value is an object whose
    /// `metadata`, if any, is an object. Sizes are checked when the text is serialized.
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
    /// Checks the precondition against the current revision of the object.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] or [`Error::Conflict`].
    pub fn check(self, key: &Key, now: Option<Revision>) -> Result<(), Error> {
        match (self, now) {
            (Expect::Absent, Some(_)) => Err(Error::Exists { key: key.clone() }),
            (Expect::Present | Expect::Revision(_), None) => Err(Error::NotFound { key: key.clone() }),
            (Expect::Revision(expected), Some(actual)) if expected != actual => {
                Err(Error::Conflict { key: key.clone(), expected, actual })
            }
            _ => Ok(()),
        }
    }
}

/// The result of a transaction.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The revision. A transaction that changes nothing (only checks, or deletes of missing objects) creates no new
    /// revision.
    pub revision: Revision,
    /// For each operation the resulting object; for deletions the deleted object; `None` if there is none.
    pub objects: Vec<Option<Stored>>,
}
