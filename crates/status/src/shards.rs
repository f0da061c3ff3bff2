//! The counts of a replica as stored objects, split into shards so that a change rewrites little.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use config::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::status::{TEXT, cut_to, text};
use crate::{Counts, Nack, ReplicaCounts, SkippedPatch};

/// The number of shards.
pub const SHARDS: usize = 32;
/// The approximate limit of NACK messages in one shard, in bytes. etcd rejects objects above 1.5 MiB.
const NACK_BYTES: usize = 512 << 10;

/// The counts of this replica, and which shards have to be written.
#[derive(Default)]
pub struct Shards {
    parts: [BTreeMap<ObjectKey, ReplicaCounts>; SHARDS],
    changed: BTreeSet<usize>,
}

impl Shards {
    /// No counts. What was written before is unknown, so all shards have to be written.
    pub fn unwritten() -> Shards {
        Shards {
            changed: (0..SHARDS).collect(),
            ..Shards::default()
        }
    }

    /// Applies changed counts; `None` removes an object.
    pub fn take(&mut self, changes: impl IntoIterator<Item = (ObjectKey, Option<ReplicaCounts>)>) {
        for (key, share) in changes {
            let place = place(&key);
            let Some(part) = self.parts.get_mut(place) else {
                continue;
            };
            if part.get(&key) == share.as_ref() {
                continue;
            }
            self.changed.insert(place);
            match share {
                Some(share) => drop(part.insert(key, share)),
                None => drop(part.remove(&key)),
            }
        }
    }

    /// The shards to write, with their objects; `None` if a shard is empty.
    pub fn changed(&self) -> Vec<(usize, Option<Value>)> {
        let parts = self.changed.iter().filter_map(|place| {
            let part = self.parts.get(*place)?;
            Some((*place, (!part.is_empty()).then(|| written(part))))
        });
        parts.collect()
    }

    /// Marks a shard as written.
    pub fn wrote(&mut self, place: usize) {
        self.changed.remove(&place);
    }
}

/// Reads a shard. Invalid entries are skipped.
pub fn read_shard(value: &Value) -> BTreeMap<ObjectKey, ReplicaCounts> {
    let all = value["shares"].as_array().into_iter().flatten();
    all.filter_map(read).collect()
}

/// The shard of an object. It is stable while the process runs, which is all that readers need.
fn place(key: &ObjectKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.to_string().hash(&mut hasher);
    usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0)
}

fn written(part: &BTreeMap<ObjectKey, ReplicaCounts>) -> Value {
    let words = |share: &ReplicaCounts| usize::from(share.counts.nack.is_some()) + share.counts.unmade.len();
    let nacks: usize = part.values().map(words).sum();
    let limit = (NACK_BYTES / nacks.max(1) / 2).clamp(32, TEXT);
    let shares: Vec<Value> = part.iter().map(|(key, share)| one(key, share, limit)).collect();
    json!({"metadata": {}, "shares": shares})
}

fn one(key: &ObjectKey, share: &ReplicaCounts, limit: usize) -> Value {
    let counts = &share.counts;
    let mut value = json!({
        "group": key.kind.group(),
        "kind": key.kind.name(),
        "namespace": &*key.namespace,
        "name": &*key.name,
        "uid": &*share.uid,
        "generation": share.generation,
        "running": counts.running,
        "refused": counts.refused,
        "pending": counts.pending,
    });
    if let Some(nack) = &counts.nack {
        value["refusal"] = json!({
            "proxy": cut_to(&nack.proxy, limit),
            "type": nack.kind,
            "resource": cut_to(&nack.resource, limit),
            "message": cut_to(&nack.message, limit),
        });
    }
    if !counts.unmade.is_empty() {
        let unmade = counts.unmade.iter().map(|one| {
            json!({
                "index": one.index,
                "resources": one.resources,
                "resource": cut_to(&one.resource, limit),
                "why": cut_to(&one.why, limit),
            })
        });
        value["unmade"] = unmade.collect();
    }
    value
}

fn read(value: &Value) -> Option<(ObjectKey, ReplicaCounts)> {
    let kind = Kind::find(value["group"].as_str()?, value["kind"].as_str()?)?;
    let key = ObjectKey::new(kind, value["namespace"].as_str()?, value["name"].as_str()?);
    // A replica never has more than 2^32 proxies.
    let count = |field: &str| usize::try_from(u32::try_from(value[field].as_u64()?).ok()?).ok();
    let (running, refused, pending) = (count("running")?, count("refused")?, count("pending")?);
    let nack = value.get("refusal").map(|nack| Nack {
        proxy: text(nack, "proxy"),
        kind: text(nack, "type"),
        resource: text(nack, "resource"),
        message: text(nack, "message"),
    });
    let unmade = value["unmade"].as_array().into_iter().flatten();
    let unmade = unmade.filter_map(|one| {
        Some(SkippedPatch {
            index: u16::try_from(one["index"].as_u64()?).ok()?,
            resources: usize::try_from(u32::try_from(one["resources"].as_u64()?).ok()?).ok()?,
            resource: text(one, "resource"),
            why: text(one, "why"),
        })
    });
    let counts = Counts {
        unmade: unmade.collect(),
        total: running.checked_add(refused)?.checked_add(pending)?,
        running,
        refused,
        pending,
        nack,
    };
    let share = ReplicaCounts {
        uid: Arc::from(value["uid"].as_str()?),
        generation: value["generation"].as_i64()?,
        counts: counts.bounded(),
    };
    Some((key, share))
}
