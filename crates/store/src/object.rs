//! Stored objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde_json::Value;

use crate::prepared::{Text, labels};
use crate::{Error, Key};

/// A point in the store's history; 0 is before the first write.
pub type Revision = u64;

/// One version of an object. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The key.
    pub key: Key,
    /// The revision of the write; also its `metadata.resourceVersion`.
    pub revision: Revision,
    /// `metadata.labels`, extracted for selectors.
    pub labels: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    /// The whole object as compact JSON, including `metadata.resourceVersion`.
    pub json: Bytes,
}

impl Stored {
    /// Creates the version written at a revision: sets the resource version and extracts the labels. A value that is
    /// not a JSON object is stored unchanged.
    pub fn new(key: Key, revision: Revision, value: Value) -> Stored {
        Text::new(value).seal(key, revision)
    }

    /// Parses a text that [`Stored::new`] created for the same revision.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the text is not an object.
    pub fn from_json(key: Key, revision: Revision, json: Bytes) -> Result<Stored, Error> {
        match serde_json::from_slice::<Value>(&json) {
            Ok(value) if value.is_object() => Ok(Stored { key, revision, labels: labels(&value), json }),
            Ok(_) => Err(Error::Damaged(format!("{key} at revision {revision} is not an object"))),
            Err(error) => Err(Error::Damaged(format!("{key} at revision {revision} cannot be read: {error}"))),
        }
    }

    /// The same object with a later revision in its metadata. Deletion events contain it.
    #[must_use]
    pub fn restamped(&self, revision: Revision) -> Stored {
        Stored::new(self.key.clone(), revision, self.value())
    }

    /// The parsed object.
    pub fn value(&self) -> Value {
        // `Stored::new` created the text, so it parses.
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }
}

/// A version in an object's history.
#[derive(Clone, Debug)]
pub struct Version {
    /// The revision of the write.
    pub revision: Revision,
    /// The time of the write by the writer's clock, if recorded.
    pub time: Option<SystemTime>,
    /// The object; `None` if it was deleted.
    pub object: Option<Stored>,
}
