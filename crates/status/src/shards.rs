//! A replica's shares as objects of a store: in so many parts that a change rewrites little.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use config::{Kind, ObjectKey};
use serde_json::{Value, json};

use crate::status::{TEXT, cut_to, text};
use crate::{Counts, Refusal, Share, Unmade};

/// How many parts there are.
pub const SHARDS: usize = 32;
/// Bytes of proxies' words in one part, about: stores take no objects of more than 1.5 MiB.
const WORDS: usize = 512 << 10;

/// A replica's own shares, and which parts of them are to be written.
#[derive(Default)]
pub struct Shards {
    parts: [BTreeMap<ObjectKey, Share>; SHARDS],
    changed: BTreeSet<usize>,
}

impl Shards {
    /// No shares; and nobody knows what was written before: all parts are to be.
    pub fn unwritten() -> Shards {
        Shards {
            changed: (0..SHARDS).collect(),
            ..Shards::default()
        }
    }

    /// Notes shares that changed; none: there is none any more.
    pub fn take(&mut self, changes: impl IntoIterator<Item = (ObjectKey, Option<Share>)>) {
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

    /// The parts that are to be written, each by its name, as objects; none: there is nothing in it.
    pub fn changed(&self) -> Vec<(usize, Option<Value>)> {
        let parts = self.changed.iter().filter_map(|place| {
            let part = self.parts.get(*place)?;
            Some((*place, (!part.is_empty()).then(|| written(part))))
        });
        parts.collect()
    }

    /// Notes that a part was written as it is.
    pub fn wrote(&mut self, place: usize) {
        self.changed.remove(&place);
    }
}

/// Reads a part. What is no share of an object, or cannot be one, is left out.
pub fn read_shard(value: &Value) -> BTreeMap<ObjectKey, Share> {
    let all = value["shares"].as_array().into_iter().flatten();
    all.filter_map(read).collect()
}

/// Objects keep their place while the process runs; readers ask for no more.
fn place(key: &ObjectKey) -> usize {
    let mut hasher = DefaultHasher::new();
    key.to_string().hash(&mut hasher);
    usize::try_from(hasher.finish() % SHARDS as u64).unwrap_or(0)
}

fn written(part: &BTreeMap<ObjectKey, Share>) -> Value {
    let words = |share: &Share| usize::from(share.counts.refusal.is_some()) + share.counts.unmade.len();
    let refusals: usize = part.values().map(words).sum();
    let limit = (WORDS / refusals.max(1) / 2).clamp(32, TEXT);
    let shares: Vec<Value> = part.iter().map(|(key, share)| one(key, share, limit)).collect();
    json!({"metadata": {}, "shares": shares})
}

fn one(key: &ObjectKey, share: &Share, limit: usize) -> Value {
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
    if let Some(refusal) = &counts.refusal {
        value["refusal"] = json!({
            "proxy": cut_to(&refusal.proxy, limit),
            "type": refusal.kind,
            "resource": cut_to(&refusal.resource, limit),
            "message": cut_to(&refusal.message, limit),
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

fn read(value: &Value) -> Option<(ObjectKey, Share)> {
    let kind = Kind::find(value["group"].as_str()?, value["kind"].as_str()?)?;
    let key = ObjectKey::new(kind, value["namespace"].as_str()?, value["name"].as_str()?);
    // No replica has so many proxies that this is exceeded.
    let count = |field: &str| usize::try_from(u32::try_from(value[field].as_u64()?).ok()?).ok();
    let (running, refused, pending) = (count("running")?, count("refused")?, count("pending")?);
    let refusal = value.get("refusal").map(|refusal| Refusal {
        proxy: text(refusal, "proxy"),
        kind: text(refusal, "type"),
        resource: text(refusal, "resource"),
        message: text(refusal, "message"),
    });
    let unmade = value["unmade"].as_array().into_iter().flatten();
    let unmade = unmade.filter_map(|one| {
        Some(Unmade {
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
        refusal,
    };
    let share = Share {
        uid: Arc::from(value["uid"].as_str()?),
        generation: value["generation"].as_i64()?,
        counts: counts.bounded(),
    };
    Some((key, share))
}
