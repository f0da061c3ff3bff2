//! The store as a source: the objects of every kind that the mesh reads, through the store's local view.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use resources::schema::{Definition, definitions};
use resources::{AnyObject, ObjectKey, ParseOptions, read_object};
use serde_json::Value;
use server::{Closed, Observation};
use sources::Change;
use store::cache::{Cache, Event, Options, Subscription};
use store::{GroupResource, Store, Stored};
use tokio::sync::mpsc;

use super::intake::{Voice, log_diagnostic};

/// Events that may wait for the world; the view's subscribers wait when there are more.
const QUEUE: usize = 1024;

/// Follows the store until it is dropped.
pub(super) struct Follower {
    cache: Cache,
    tasks: tokio::task::JoinSet<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cache.stop();
    }
}

impl Follower {
    /// Says everything that is in the store, and follows it from then on. None: the store ended before.
    pub(super) async fn start(store: Arc<dyn Store>, voice: Voice) -> Option<Follower> {
        let kinds: Vec<&'static Definition> = definitions().iter().filter(|kind| kind.mesh.is_some()).collect();
        let types = kinds
            .iter()
            .map(|kind| GroupResource::new(kind.group, kind.plural))
            .collect();
        let cache = Cache::start(
            store,
            Options {
                types: Some(types),
                ..Options::default()
            },
        );
        if !cache.synced().await {
            return None;
        }
        let mut first = Work::default();
        let (sender, receiver) = mpsc::channel(QUEUE);
        let mut tasks = tokio::task::JoinSet::new();
        for (place, kind) in kinds.iter().copied().enumerate() {
            let mut subscription = cache.subscribe(&GroupResource::new(kind.group, kind.plural));
            while let Some(event) = subscription.try_next() {
                first.take(kind, event, &cache);
            }
            tasks.spawn(forward(place, subscription, sender.clone()));
        }
        let known = first.say(&voice).await.ok()?;
        let view = cache.clone();
        tasks.spawn(follow(kinds, receiver, view, voice, known));
        Some(Follower { cache, tasks })
    }

    /// How many tasks follow it.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

async fn forward(place: usize, mut subscription: Subscription, events: mpsc::Sender<(usize, Event)>) {
    while let Some(event) = subscription.next().await {
        if events.send((place, event)).await.is_err() {
            return;
        }
    }
}

/// Says what comes in; what came meanwhile goes together.
async fn follow(
    kinds: Vec<&'static Definition>,
    mut events: mpsc::Receiver<(usize, Event)>,
    cache: Cache,
    voice: Voice,
    mut known: BTreeSet<ObjectKey>,
) {
    let mut taken = Vec::new();
    while events.recv_many(&mut taken, QUEUE).await > 0 {
        let mut work = Work {
            known,
            ..Work::default()
        };
        for (place, event) in taken.drain(..) {
            work.take(kinds[place], event, &cache);
        }
        match work.say(&voice).await {
            Ok(after) => known = after,
            Err(Closed) => return,
        }
    }
}

/// What is to be said, and which objects there are after it.
#[derive(Default)]
struct Work {
    /// What became of each object last: it is there so, or it is gone.
    changed: BTreeMap<ObjectKey, Option<AnyObject>>,
    observed: Vec<Observation>,
    known: BTreeSet<ObjectKey>,
}

impl Work {
    fn take(&mut self, kind: &'static Definition, event: Event, cache: &Cache) {
        match event {
            Event::Added(object) => self.upsert(kind, None, &object),
            Event::Modified { before, now } => self.upsert(kind, Some(&before), &now),
            Event::Deleted(object) => {
                if let Some(key) = key_of(kind, &object) {
                    self.remove(key);
                }
            }
            Event::Restart => {
                // What is there is told of again; what went meanwhile is not.
                let there: BTreeSet<ObjectKey> = cache
                    .list(&GroupResource::new(kind.group, kind.plural))
                    .iter()
                    .filter_map(|object| key_of(kind, object))
                    .collect();
                let of_kind = |key: &&ObjectKey| Some(key.kind) == kind.mesh && !there.contains(key);
                let gone: Vec<ObjectKey> = self.known.iter().filter(of_kind).cloned().collect();
                gone.into_iter().for_each(|key| self.remove(key));
            }
        }
    }

    fn remove(&mut self, key: ObjectKey) {
        self.known.remove(&key);
        self.changed.insert(key.clone(), None);
        self.observed.push(Observation::Gone(key));
    }

    fn upsert(&mut self, kind: &'static Definition, before: Option<&Stored>, now: &Stored) {
        let value = now.value();
        let read = read_object(&value, &ParseOptions::default());
        let Some(key) = key_of(kind, now) else { return };
        let status = value.get("status").cloned();
        // Statuses that Rutter itself wrote come back: the mesh has nothing to derive from them.
        let written = plan::has_status(key.kind);
        let same = written && before.is_some_and(|before| meaning(&before.value()) == meaning(&value));
        if !same {
            read.diagnostics.iter().for_each(log_diagnostic);
        }
        let meta = &value["metadata"];
        self.observed.push(Observation::Seen(Box::new(plan::Subject {
            key: key.clone(),
            uid: meta["uid"].as_str().unwrap_or_default().into(),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            diagnostics: read.diagnostics,
            status,
        })));
        self.known.insert(key);
        // One that is not valid keeps its last good version in force.
        if let Some(object) = read.object.filter(|_| !same) {
            self.changed.insert(object.key(), Some(object));
        }
    }

    async fn say(self, voice: &Voice) -> Result<BTreeSet<ObjectKey>, Closed> {
        let mut change = Change::default();
        for (key, object) in self.changed {
            match object {
                Some(object) => change.upserts.push(object),
                None => change.deletes.push(key),
            }
        }
        voice.say(change, self.observed).await?;
        Ok(self.known)
    }
}

fn key_of(kind: &Definition, object: &Stored) -> Option<ObjectKey> {
    Some(ObjectKey::new(
        kind.mesh?,
        object.key.namespace.clone(),
        object.key.name.clone(),
    ))
}

/// The object without what does not change what it means: its version, and what Rutter writes of its status.
fn meaning(value: &Value) -> Value {
    let mut value = value.clone();
    let mut strip = |object: &str, fields: &[&str]| {
        if let Some(object) = value.get_mut(object).and_then(Value::as_object_mut) {
            fields.iter().for_each(|field| drop(object.remove(*field)));
        }
    };
    strip("metadata", &["resourceVersion", "managedFields"]);
    strip("status", &["observedGeneration", "conditions", "proxies"]);
    if value["status"].as_object().is_some_and(serde_json::Map::is_empty)
        && let Some(object) = value.as_object_mut()
    {
        object.remove("status");
    }
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_rutter_writes_means_nothing_and_what_others_write_does() {
        let object = |version: &str, status: Value| json!({"metadata": {"resourceVersion": version}, "status": status});
        let bare = json!({"metadata": {"resourceVersion": "1"}});
        let counted = object(
            "2",
            json!({"proxies": {"running": 1}, "conditions": [], "observedGeneration": 1}),
        );
        assert_eq!(meaning(&bare), meaning(&counted));
        let addressed = object("3", json!({"addresses": [{"value": "240.0.0.1"}]}));
        assert_ne!(meaning(&bare), meaning(&addressed));
    }
}
