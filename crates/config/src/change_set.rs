//! The change type that travels from every source to `World::commit`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;

use crate::gateway_api::reference::ParentReference;
use crate::{AnyObject, Diagnostic, ObjectKey};

/// Changes that take effect together. Merging keeps the last change of each object, so the size is bounded by the number
/// of distinct objects, not by the number of events.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeSet {
    /// Objects that are new or changed. No key is also in `deletes`.
    pub upserts: BTreeMap<ObjectKey, AnyObject>,
    /// Objects that no longer exist. Deleting an unknown object has no effect.
    pub deletes: BTreeSet<ObjectKey>,
    /// The complete diagnostics of each file that changed. An empty list clears earlier diagnostics of the file.
    pub diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
    /// Objects that have a status, as the source last observed them, valid or not. `None` if the object is deleted, or
    /// selected by another control plane.
    pub observed: BTreeMap<ObjectKey, Option<Observed>>,
}

/// An object as its source observed it: the facts from which its status is computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// The object.
    pub key: ObjectKey,
    /// `metadata.uid`; empty if the source has none.
    pub uid: Arc<str>,
    /// `metadata.generation`; 0 if the source has none. Changes are then counted instead.
    pub generation: i64,
    /// Validation results. If one is an error, the object is rejected and its last valid version stays in effect.
    pub diagnostics: Vec<Diagnostic>,
    /// Whether a label assigns the object to the revision of the source. All revisions observe the others.
    pub assigned: bool,
    /// The parents of a rejected object of the Gateway API ([`crate::parents_of`]); none of other objects.
    pub parents: Vec<ParentReference>,
    /// The stored `status`.
    pub status: Option<Value>,
    /// The whole object as it is written, as compact JSON, if no API serves it.
    pub original: Option<Arc<str>>,
}

impl ChangeSet {
    /// Whether it contains no changes.
    pub fn is_empty(&self) -> bool {
        self.upserts.is_empty() && self.deletes.is_empty() && self.diagnostics.is_empty() && self.observed.is_empty()
    }

    /// Whether it changes any object.
    pub fn has_objects(&self) -> bool {
        !self.upserts.is_empty() || !self.deletes.is_empty()
    }

    /// Adds or replaces an object.
    pub fn upsert(&mut self, object: AnyObject) {
        let key = object.key();
        self.deletes.remove(&key);
        self.upserts.insert(key, object);
    }

    /// Deletes an object.
    pub fn delete(&mut self, key: ObjectKey) {
        self.upserts.remove(&key);
        self.deletes.insert(key);
    }

    /// Replaces the diagnostics of a file.
    pub fn report(&mut self, file: Arc<str>, diagnostics: Vec<Diagnostic>) {
        self.diagnostics.insert(file, diagnostics);
    }

    /// Records an object as observed.
    pub fn observe(&mut self, observed: Observed) {
        self.observed.insert(observed.key.clone(), Some(observed));
    }

    /// Adds later changes, which override the changes of the same objects and files.
    pub fn merge(&mut self, later: ChangeSet) {
        if self.is_empty() {
            *self = later;
            return;
        }
        later.deletes.into_iter().for_each(|key| self.delete(key));
        later.upserts.into_values().for_each(|object| self.upsert(object));
        self.diagnostics.extend(later.diagnostics);
        self.observed.extend(later.observed);
    }
}

impl FromIterator<AnyObject> for ChangeSet {
    /// A change set that adds these objects.
    fn from_iter<I: IntoIterator<Item = AnyObject>>(objects: I) -> ChangeSet {
        ChangeSet {
            upserts: objects.into_iter().map(|object| (object.key(), object)).collect(),
            ..ChangeSet::default()
        }
    }
}
