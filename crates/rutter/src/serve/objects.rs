//! From the store to the world: the objects of every kind that the mesh reads, through the store's local view.

use std::collections::BTreeSet;
use std::sync::Arc;

use resources::schema::{Definition, definitions};
use resources::{ObjectKey, ParseOptions, read_object};
use serde_json::Value;
use server::{Observation, Pilot};
use store::cache::{Cache, Event, Options, Subscription};
use store::{GroupResource, Store, Stored};
use tokio::sync::mpsc;
use world::Batch;

use super::intake::log_diagnostic;

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
    /// Commits everything that is in the store, and follows it from then on. False: the store ended before.
    pub(super) async fn start(store: Arc<dyn Store>, pilot: Pilot) -> Option<Follower> {
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
        let known = first.commit(&pilot).await?;
        let view = cache.clone();
        tasks.spawn(follow(kinds, receiver, view, pilot, known));
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

/// Commits what comes in; what came meanwhile goes together.
async fn follow(
    kinds: Vec<&'static Definition>,
    mut events: mpsc::Receiver<(usize, Event)>,
    cache: Cache,
    pilot: Pilot,
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
        match work.commit(&pilot).await {
            Some(after) => known = after,
            None => return,
        }
    }
}

/// What is to be committed, and which objects there are after it.
#[derive(Default)]
struct Work {
    batch: Batch,
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
        self.batch.remove(&key);
        self.observed.push(Observation::Gone(key));
    }

    fn upsert(&mut self, kind: &'static Definition, before: Option<&Stored>, now: &Stored) {
        let value = now.value();
        let read = read_object(&value, &ParseOptions::default());
        let Some(key) = key_of(kind, now) else { return };
        let status = value.get("status").cloned();
        // Statuses that Rutter itself wrote come back: the mesh has nothing to derive from them.
        let same = kind.status && before.is_some_and(|before| meaning(&before.value()) == meaning(&value));
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
            self.batch.put(object);
        }
    }

    async fn commit(self, pilot: &Pilot) -> Option<BTreeSet<ObjectKey>> {
        pilot.commit_observed(self.batch, self.observed).await.ok()?;
        Some(self.known)
    }
}

fn key_of(kind: &Definition, object: &Stored) -> Option<ObjectKey> {
    Some(ObjectKey::new(
        kind.mesh?,
        object.key.namespace.clone(),
        object.key.name.clone(),
    ))
}

/// The object without what does not change what it means.
fn meaning(value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(object) = value.as_object_mut() {
        object.remove("status");
    }
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("resourceVersion");
        meta.remove("managedFields");
    }
    value
}
