//! The counts of a replica in the form in which they are stored: one value for each object.

use config::{Kind, ObjectKey};
use serde_json::Value;

use crate::ReplicaCounts;

/// The name under which the counts for an object are stored.
pub fn stored_name(key: &ObjectKey) -> String {
    let (group, kind) = (key.kind.group(), key.kind.name());
    format!("{group}/{kind}/{}/{}", key.namespace, key.name)
}

/// The object that a name stands for; `None` for other names.
pub fn read_name(name: &str) -> Option<ObjectKey> {
    let mut parts = name.splitn(4, '/');
    let kind = Kind::find(parts.next()?, parts.next()?)?;
    Some(ObjectKey::new(kind, parts.next()?, parts.next()?))
}

impl ReplicaCounts {
    /// The stored form.
    pub fn to_json(&self) -> Value {
        // Counts and texts are always serializable.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Reads the stored form; `None` for anything else.
    pub fn from_json(value: &Value) -> Option<ReplicaCounts> {
        let mut read: ReplicaCounts = serde_json::from_value(value.clone()).ok()?;
        let counts = &mut read.counts;
        counts.total = counts.running.checked_add(counts.rejected)?.checked_add(counts.pending)?;
        read.counts = read.counts.bounded();
        Some(read)
    }
}
