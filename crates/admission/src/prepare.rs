//! Fields that only the server writes: generated names, UID, timestamps, generation.

use config::Timestamp;
use serde_json::{Map, Value as Json};

/// The values to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp<'a> {
    /// The time of the request.
    pub now: Timestamp,
    /// The UID of a new object; must be unique.
    pub uid: &'a str,
}

/// Core kinds without a generation.
const WITHOUT_GENERATION: &[&str] =
    &["ConfigMap", "Event", "Lease", "Namespace", "Node", "Secret", "Service", "ServiceAccount"];

/// Generates a name for an object that has only `metadata.generateName`: the prefix and five characters derived from
/// `entropy`.
pub fn fill_name(object: &mut Json, entropy: u64) {
    /// Characters that do not form words, as in Kubernetes.
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    const SUFFIX: usize = 5;
    const MAX: usize = 63 - SUFFIX;
    let Some(meta) = object.get_mut("metadata").and_then(Json::as_object_mut) else {
        return;
    };
    if meta.get("name").is_some_and(|name| !name.is_null() && name != "") {
        return;
    }
    let Some(prefix) = meta.get("generateName").and_then(Json::as_str).filter(|prefix| !prefix.is_empty()) else {
        return;
    };
    let mut name = prefix[..prefix.floor_char_boundary(MAX)].to_owned();
    let mut rest = entropy;
    let base = ALPHABET.len() as u64;
    for _ in 0..SUFFIX {
        // The value is less than 27.
        name.push(char::from(ALPHABET[(rest % base) as usize]));
        rest /= base;
    }
    meta.insert("name".into(), name.into());
}

/// Sets server-managed metadata, whatever the client sent. `old` is the stored object; none for a new one. Must be called
/// with an admitted object directly before it is stored.
///
/// The generation increases if anything except metadata and status changed.
pub fn prepare(old: Option<&Json>, object: &mut Json, stamp: &Stamp<'_>) {
    let kept = old.and_then(|old| old.get("metadata")).and_then(Json::as_object);
    let counts = counts_generations(object);
    let changed = old.is_some_and(|old| is_changed(old, object));
    let Some(fields) = object.as_object_mut() else {
        return;
    };
    let meta = fields.entry("metadata").or_insert_with(|| Json::Object(Map::new()));
    let Some(meta) = meta.as_object_mut() else {
        return;
    };
    for name in
        ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"]
    {
        match kept.and_then(|kept| kept.get(name)).filter(|value| !value.is_null()) {
            Some(value) => meta.insert(name.to_owned(), value.clone()),
            None => meta.remove(name),
        };
    }
    // Empty fields are removed.
    for name in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = match meta.get(name) {
            Some(Json::Object(fields)) => fields.is_empty(),
            Some(Json::Array(items)) => items.is_empty(),
            Some(value) => value.is_null(),
            None => false,
        };
        if empty {
            meta.remove(name);
        }
    }
    if old.is_none() {
        meta.remove("resourceVersion");
        meta.insert("uid".into(), stamp.uid.into());
        meta.insert("creationTimestamp".into(), stamp.now.to_string().into());
    }
    if counts {
        let before = meta.get("generation").and_then(Json::as_i64);
        let generation = match before {
            None => 1,
            Some(before) if changed => before.saturating_add(1),
            Some(before) => before,
        };
        meta.insert("generation".into(), generation.into());
    }
}

/// Marks an object for deletion if it has finalizers. Returns whether it stays; otherwise it must be removed. `grace` is
/// in seconds.
pub fn mark_deleted(object: &mut Json, now: Timestamp, grace: u64) -> bool {
    let counts = counts_generations(object);
    let Some(meta) = object.get_mut("metadata").and_then(Json::as_object_mut) else {
        return false;
    };
    if meta.get("finalizers").and_then(Json::as_array).is_none_or(Vec::is_empty) {
        return false;
    }
    if meta.get("deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return true;
    }
    meta.insert("deletionTimestamp".into(), now.to_string().into());
    meta.insert("deletionGracePeriodSeconds".into(), grace.into());
    if let Some(generation) = meta.get("generation").and_then(Json::as_i64).filter(|_| counts) {
        meta.insert("generation".into(), generation.saturating_add(1).into());
    }
    true
}

fn counts_generations(object: &Json) -> bool {
    let text = |name: &str| object.get(name).and_then(Json::as_str).unwrap_or_default();
    let group = text("apiVersion").rsplit_once('/').map_or("", |(group, _)| group);
    let kubernetes = matches!(group, "" | "coordination.k8s.io" | "events.k8s.io");
    !(kubernetes && WITHOUT_GENERATION.contains(&text("kind")))
}

/// Whether anything except metadata and status differs.
fn is_changed(old: &Json, new: &Json) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return old != new;
    };
    let counts = |name: &String| !["apiVersion", "kind", "metadata", "status"].contains(&name.as_str());
    let annotations =
        |object: &Map<String, Json>| object.get("metadata").and_then(|meta| meta.get("annotations")).cloned();
    // As in Kubernetes: annotations of a Deployment are copied to its ReplicaSets.
    let copied = new.get("kind").is_some_and(|kind| kind == "Deployment") && annotations(old) != annotations(new);
    copied
        || old.iter().filter(|(name, _)| counts(name)).any(|(name, value)| new.get(name) != Some(value))
        || new.keys().filter(|name| counts(name)).any(|name| !old.contains_key(name))
}
