//! Objects as they are stored.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::prepared::Text;
use crate::{Error, Key};

/// A point in the store's history; 0 is before everything.
pub type Revision = u64;

/// An object as of its last write. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its name.
    pub key: Key,
    /// When it was written last; also its `metadata.resourceVersion`.
    pub revision: Revision,
    /// `metadata.labels`, taken out for selecting.
    pub labels: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    /// The whole object, compact JSON, `metadata.resourceVersion` included: ready to be sent.
    pub json: Bytes,
}

impl Stored {
    /// The object as it stands at a revision: notes the revision in its metadata and takes its labels out. A value that
    /// is no JSON object stays as it is.
    pub fn new(key: Key, revision: Revision, value: Value) -> Stored {
        Text::new(value).seal(key, revision)
    }

    /// The object of a text that [`Stored::new`] made for the same revision.
    ///
    /// # Errors
    /// [`Error::Damaged`]: the text is no object.
    pub fn from_json(key: Key, revision: Revision, json: Bytes) -> Result<Stored, Error> {
        match serde_json::from_slice::<Outline>(&json) {
            Ok(outline) => Ok(Stored {
                key,
                revision,
                labels: Arc::new(outline.metadata.labels),
                json,
            }),
            Err(error) => Err(Error::Damaged(format!(
                "{key} at revision {revision} cannot be read: {error}"
            ))),
        }
    }

    /// The same object with the revision of a later event in its metadata, as the last word about a deleted object has.
    #[must_use]
    pub fn restamped(&self, revision: Revision) -> Stored {
        Stored::new(self.key.clone(), revision, self.value())
    }

    /// The object, parsed.
    pub fn value(&self) -> Value {
        // What is stored was written by `Stored::new`.
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }
}

/// What an object was at some time.
#[derive(Clone, Debug)]
pub struct Version {
    /// When it was written, in the store's counting.
    pub revision: Revision,
    /// When it was written, by the clock of the writer, where that is kept.
    pub time: Option<SystemTime>,
    /// The object; none: it was deleted then.
    pub object: Option<Stored>,
}

/// What the store reads of an object.
#[derive(Deserialize)]
struct Outline {
    #[serde(default)]
    metadata: OutlineMeta,
}

/// What the store reads of an object's metadata.
#[derive(Deserialize, Default)]
struct OutlineMeta {
    #[serde(default, deserialize_with = "labels")]
    labels: BTreeMap<Arc<str>, Arc<str>>,
}

/// Labels as `Text::new` takes them out: what is no text counts as empty.
fn labels<'de, D: serde::Deserializer<'de>>(reader: D) -> Result<BTreeMap<Arc<str>, Arc<str>>, D::Error> {
    let value = Value::deserialize(reader)?;
    let labels = value.as_object().into_iter().flatten();
    Ok(labels
        .map(|(name, value)| (Arc::from(name.as_str()), Arc::from(value.as_str().unwrap_or_default())))
        .collect())
}
