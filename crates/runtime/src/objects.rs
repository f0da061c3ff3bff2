//! The store as a source: the objects of every kind of the mesh, through a cache of the store.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::schema::{Definition, definitions};
use config::{ChangeSet, Diagnostic, ObjectKey, Observed, ParseOptions, read_object};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use sources::{ChangeSender, Closed};
use store::cache::{Cache, Event, Options, Subscription};
use store::{GroupResource, Store, Stored};
use tokio::sync::mpsc;

use server::log_diagnostic;

/// The number of queued events; the cache's subscriptions wait when the queue is full.
const QUEUE: usize = 1024;

/// Follows the store until it is dropped.
pub struct Follower {
    cache: Cache,
    tasks: tokio::task::JoinSet<()>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.cache.stop();
    }
}

impl Follower {
    /// Sends the complete state of the store, and follows it from then on. `None` if the store ended before.
    pub async fn start(store: Arc<dyn Store>, changes: ChangeSender) -> Option<Follower> {
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
        let known = first.send(&changes).await.ok()?;
        let view = cache.clone();
        tasks.spawn(follow(kinds, receiver, view, changes, known));
        Some(Follower { cache, tasks })
    }

    /// The number of tasks.
    pub fn tasks(&self) -> usize {
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

/// Sends changes. Events that arrived meanwhile are sent together.
async fn follow(
    kinds: Vec<&'static Definition>,
    mut events: mpsc::Receiver<(usize, Event)>,
    cache: Cache,
    changes: ChangeSender,
    mut known: BTreeMap<ObjectKey, Vec<Diagnostic>>,
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
        match work.send(&changes).await {
            Ok(after) => known = after,
            Err(Closed) => return,
        }
    }
}

/// The changes of some events, and the existing objects.
#[derive(Default)]
struct Work {
    change: ChangeSet,
    /// The existing objects with their diagnostics.
    known: BTreeMap<ObjectKey, Vec<Diagnostic>>,
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
                // The cache adds existing objects again, but does not report deletions in between.
                let there: BTreeSet<ObjectKey> = cache
                    .list(&GroupResource::new(kind.group, kind.plural))
                    .iter()
                    .filter_map(|object| key_of(kind, object))
                    .collect();
                let of_kind = |key: &&ObjectKey| Some(key.kind) == kind.mesh && !there.contains(key);
                let gone: Vec<ObjectKey> = self.known.keys().filter(of_kind).cloned().collect();
                gone.into_iter().for_each(|key| self.remove(key));
            }
        }
    }

    fn remove(&mut self, key: ObjectKey) {
        self.known.remove(&key);
        self.change.delete(key.clone());
        self.change.observed.insert(key, None);
    }

    fn upsert(&mut self, kind: &'static Definition, before: Option<&Stored>, now: &Stored) {
        let Some(key) = key_of(kind, now) else { return };
        // Statuses that Rutter itself wrote do not affect the mesh.
        let known = before
            .filter(|before| status::has_status(key.kind) && same_meaning(before, now))
            .and_then(|_| self.known.get(&key));
        let diagnostics = match known {
            Some(known) => known.clone(),
            None => self.read(&key, now),
        };
        self.change.observe(observed(key, diagnostics, now));
    }

    /// Parses an object that was added or changed. Returns its diagnostics.
    fn read(&mut self, key: &ObjectKey, now: &Stored) -> Vec<Diagnostic> {
        let read = read_object(&now.value(), &ParseOptions::default());
        read.diagnostics.iter().for_each(log_diagnostic);
        self.known.insert(key.clone(), read.diagnostics.clone());
        // If the new version is invalid, the last valid one stays in effect.
        if let Some(object) = read.object {
            self.change.upsert(object);
        }
        read.diagnostics
    }

    async fn send(self, changes: &ChangeSender) -> Result<BTreeMap<ObjectKey, Vec<Diagnostic>>, Closed> {
        changes.send(self.change).await?;
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

/// The observation for the status writer.
fn observed(key: ObjectKey, diagnostics: Vec<Diagnostic>, now: &Stored) -> Observed {
    #[derive(Default, Deserialize)]
    struct Outline {
        #[serde(default)]
        metadata: Metadata,
        status: Option<Value>,
    }
    #[derive(Default, Deserialize)]
    struct Metadata {
        #[serde(default)]
        uid: Arc<str>,
        #[serde(default)]
        generation: i64,
    }
    // Stored objects always parse.
    let outline: Outline = serde_json::from_slice(&now.json).unwrap_or_default();
    Observed {
        key,
        uid: outline.metadata.uid,
        generation: outline.metadata.generation,
        diagnostics,
        status: outline.status,
    }
}

/// The raw fields of an object. The store serializes equal values equally.
type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Whether two versions differ only in resource versions and status fields written by Rutter.
fn same_meaning(before: &Stored, now: &Stored) -> bool {
    fn same(before: &Fields<'_>, now: &Fields<'_>, except: &[&str]) -> bool {
        let counted =
            |fields: &Fields<'_>| -> usize { except.iter().filter(|name| fields.contains_key(**name)).count() };
        let rest = |(name, _): &(&Cow<'_, str>, &&RawValue)| !except.contains(&name.as_ref());
        before.len() - counted(before) == now.len() - counted(now)
            && before
                .iter()
                .filter(rest)
                .zip(now.iter().filter(rest))
                .all(|(one, other)| one.0 == other.0 && one.1.get() == other.1.get())
    }
    let (Some(before), Some(now)) = (parts(before), parts(now)) else {
        return false;
    };
    same(&before.2, &now.2, &["metadata", "status"])
        && same(&before.0, &now.0, &["resourceVersion", "managedFields"])
        && same(&before.1, &now.1, &["observedGeneration", "conditions", "proxies"])
}

/// The metadata, the status and all fields of a stored object. Missing parts are empty.
fn parts(stored: &Stored) -> Option<(Fields<'_>, Fields<'_>, Fields<'_>)> {
    let object = fields(std::str::from_utf8(&stored.json).ok()?)?;
    let part = |name: &str| object.get(name).map_or(Some(Fields::new()), |raw| fields(raw.get()));
    Some((part("metadata")?, part("status")?, object))
}

/// The fields of an object; `None` for other values.
fn fields(json: &str) -> Option<Fields<'_>> {
    serde_json::from_str(json).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::Key;

    use super::*;

    fn stored(revision: u64, mut object: Value) -> Stored {
        object["metadata"]["labels"] = json!({"app": "\u{1}"});
        Stored::new(
            Key::new(GroupResource::new("", "things"), "default", "a"),
            revision,
            object,
        )
    }

    #[test]
    fn only_changes_by_others_count_as_changes() {
        let bare = stored(1, json!({"spec": {"hosts": ["a"]}}));
        let written = json!({"proxies": {"running": 1}, "conditions": [], "observedGeneration": 1});
        let counted = stored(2, json!({"spec": {"hosts": ["a"]}, "status": written}));
        assert!(same_meaning(&bare, &counted) && same_meaning(&counted, &bare));
        let others = [
            json!({"spec": {"hosts": ["a"]}, "status": {"addresses": [{"value": "240.0.0.1"}]}}),
            json!({"spec": {"hosts": ["b"]}}),
            json!({"spec": {"hosts": ["a"]}, "more": 1}),
            json!({"spec": {"hosts": ["a"]}, "metadata": {"generation": 2}}),
            json!({}),
        ];
        for other in others {
            let other = stored(3, other);
            assert!(
                !same_meaning(&bare, &other) && !same_meaning(&other, &counted),
                "{other:?}"
            );
        }
    }

    #[test]
    fn an_observation_identifies_its_object() {
        let now = stored(
            1,
            json!({"metadata": {"uid": "u", "generation": 3}, "status": {"proxies": {}}}),
        );
        let key = ObjectKey::new(config::Kind::Gateway, "default", "a");
        let subject = observed(key, Vec::new(), &now);
        assert_eq!((&*subject.uid, subject.generation), ("u", 3));
        assert_eq!(subject.status, Some(json!({"proxies": {}})));
    }
}
