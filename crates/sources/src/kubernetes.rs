//! The API of a Kubernetes cluster, or anything shaped like it, as a source.
//!
//! Every kind that the mesh reads and the server serves is listed and watched; kinds that the server does not serve yet
//! are looked for again now and then. The first [`Change`] holds everything, so that nobody acts on half a mesh. While
//! the server is away, what was there stays; after a gap a kind is listed anew, and what is gone then is deleted.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SelectAll, Stream, StreamExt};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use resources::schema::{Definition, definitions};
use resources::{AnyObject, Diagnostic, Kind, ObjectKey, ParseOptions};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::Change;

/// How often kinds that are not served are looked for, once any is.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon a server that does not answer at the start is asked again: first, and at most. It doubles.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(5));

/// Events of all kinds, each with the place of its kind among the followed.
type Events = SelectAll<Pin<Box<dyn Stream<Item = (usize, Result<Event<DynamicObject>, watcher::Error>)> + Send>>>;

/// Why a source could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig, or the configuration of the pod, cannot be used.
    #[error("no way to the Kubernetes API: {0}")]
    Configuration(String),
}

/// A client as `kubectl` would make it: from `KUBECONFIG`, the user's kubeconfig, or the pod that this runs in.
///
/// # Errors
/// None of them is there or usable.
pub async fn client() -> Result<Client, Error> {
    Client::try_default()
        .await
        .map_err(|error| Error::Configuration(error.to_string()))
}

/// Follows the API until nobody takes the changes any more. The channel's bound is what slows the source down when they
/// come faster than they are taken.
pub async fn follow(client: Client, options: ParseOptions, changes: mpsc::Sender<Change>) {
    let mut follower = Follower {
        client,
        options,
        followed: Vec::new(),
        events: SelectAll::new(),
        first: Some(First::default()),
        unserved: definitions()
            .iter()
            .filter(|definition| definition.mesh.is_some())
            .collect(),
    };
    let mut pause = ASK_AGAIN.0;
    loop {
        follower.look().await;
        if !follower.followed.is_empty() {
            break;
        }
        tracing::warn!(
            ?pause,
            "the Kubernetes API does not answer, or serves no kind of a mesh"
        );
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = changes.closed() => return,
        }
        pause = (pause * 2).min(ASK_AGAIN.1);
    }
    let mut looks = tokio::time::interval(LOOK_AGAIN);
    looks.tick().await;
    loop {
        if follower.is_synced()
            && let Some(first) = follower.first.take()
            && changes.send(first.into_change()).await.is_err()
        {
            return;
        }
        let change = tokio::select! {
            Some((place, event)) = follower.events.next() => follower.take(place, event),
            _ = looks.tick() => { follower.look().await; None }
            () = changes.closed() => return,
        };
        match (&mut follower.first, change) {
            (Some(first), Some(change)) => first.add(change),
            (None, Some(change)) => {
                if changes.send(change).await.is_err() {
                    return;
                }
            }
            (_, None) => {}
        }
    }
}

struct Follower {
    client: Client,
    options: ParseOptions,
    followed: Vec<Followed>,
    events: Events,
    /// What was found before everything was listed once; none afterwards.
    first: Option<First>,
    unserved: Vec<&'static Definition>,
}

/// A kind that is listed and watched.
struct Followed {
    resource: ApiResource,
    kind: Kind,
    /// What is there, each with the hash of what it means.
    known: BTreeMap<ObjectKey, u128>,
    /// While it is listed: what was found so far.
    listed: Option<BTreeSet<ObjectKey>>,
    synced: bool,
    failing: bool,
}

impl Follower {
    /// Looks which kinds the server has that are not followed yet.
    async fn look(&mut self) {
        // By group and version: the plural names of the kinds that it serves.
        let mut lists: BTreeMap<(&str, &str), BTreeSet<String>> = BTreeMap::new();
        for definition in std::mem::take(&mut self.unserved) {
            let mut found = None;
            for version in definition.versions.iter().map(|served| served.version) {
                let group = (definition.group, version);
                let list = match lists.entry(group) {
                    Entry::Occupied(list) => list.into_mut(),
                    Entry::Vacant(place) => place.insert(served(&self.client, definition.group, version).await),
                };
                if list.contains(definition.plural) {
                    found = Some(version);
                    break;
                }
            }
            match (found, definition.mesh) {
                (Some(version), Some(kind)) => self.add(definition, version, kind),
                _ => self.unserved.push(definition),
            }
        }
    }

    fn add(&mut self, definition: &Definition, version: &str, kind: Kind) {
        let resource = ApiResource {
            group: definition.group.to_owned(),
            version: version.to_owned(),
            api_version: definition.api_version_of(version),
            kind: definition.kind.to_owned(),
            plural: definition.plural.to_owned(),
        };
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let place = self.followed.len();
        let events = watcher(api, watcher::Config::default()).default_backoff();
        self.events.push(events.map(move |event| (place, event)).boxed());
        self.followed.push(Followed {
            resource,
            kind,
            known: BTreeMap::new(),
            listed: None,
            synced: false,
            failing: false,
        });
    }

    /// Whether every kind that is served was listed. A server that serves none of them is not there yet.
    fn is_synced(&self) -> bool {
        !self.followed.is_empty() && self.followed.iter().all(|followed| followed.synced)
    }

    fn take(&mut self, place: usize, event: Result<Event<DynamicObject>, watcher::Error>) -> Option<Change> {
        let options = &self.options;
        let followed = self.followed.get_mut(place)?;
        match event {
            Ok(event) => {
                if std::mem::take(&mut followed.failing) {
                    tracing::info!(kind = %followed.kind, "the Kubernetes API answers again");
                }
                followed.take(event, options)
            }
            Err(error) => {
                // Said once; the watcher tries again by itself.
                if !std::mem::replace(&mut followed.failing, true) {
                    tracing::warn!(kind = %followed.kind, %error, "the Kubernetes API does not answer; what was there stays");
                }
                None
            }
        }
    }
}

impl Followed {
    fn take(&mut self, event: Event<DynamicObject>, options: &ParseOptions) -> Option<Change> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                None
            }
            Event::InitApply(object) | Event::Apply(object) => self.upsert(object, options),
            Event::Delete(object) => {
                let key = self.key(&object);
                self.known.remove(&key);
                Some(Change {
                    deletes: vec![key],
                    ..Change::default()
                })
            }
            Event::InitDone => {
                self.synced = true;
                let listed = self.listed.take().unwrap_or_default();
                let gone = self.known.keys().filter(|key| !listed.contains(*key));
                let gone: Vec<ObjectKey> = gone.cloned().collect();
                for key in &gone {
                    self.known.remove(key);
                }
                (!gone.is_empty()).then(|| Change {
                    deletes: gone,
                    ..Change::default()
                })
            }
        }
    }

    fn key(&self, object: &DynamicObject) -> ObjectKey {
        let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
        ObjectKey::new(
            self.kind,
            namespace,
            object.metadata.name.as_deref().unwrap_or_default(),
        )
    }

    fn upsert(&mut self, object: DynamicObject, options: &ParseOptions) -> Option<Change> {
        let key = self.key(&object);
        if let Some(listed) = &mut self.listed {
            listed.insert(key.clone());
        }
        // Items of a list do not say what they are.
        let mut value = serde_json::to_value(&object).ok()?;
        let fields = value.as_object_mut()?;
        let hash = xxhash_rust::xxh3::xxh3_128(meaning(self.kind, fields).as_bytes());
        if self.known.insert(key.clone(), hash) == Some(hash) {
            return None;
        }
        fields.insert("apiVersion".into(), self.resource.api_version.as_str().into());
        fields.insert("kind".into(), self.resource.kind.as_str().into());
        let read = resources::read_object(&value, options);
        let source: Arc<str> = format!("kubernetes: {key}").into();
        Some(Change {
            // An object that became invalid keeps its last good version in force, as a file does.
            upserts: read.object.into_iter().collect(),
            deletes: Vec::new(),
            diagnostics: [(source, read.diagnostics)].into(),
        })
    }
}

/// The plural names of what the server serves of a group.
async fn served(client: &Client, group: &str, version: &str) -> BTreeSet<String> {
    let listed = match group {
        "" => client.list_core_api_resources(version).await,
        group => client.list_api_group_resources(&format!("{group}/{version}")).await,
    };
    match listed {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Err(error) => {
            tracing::debug!(group, version, %error, "not served");
            BTreeSet::new()
        }
    }
}

/// The object without what changes often and means nothing to a mesh: what control planes write of its status.
fn meaning(kind: Kind, fields: &Map<String, Value>) -> String {
    let mut fields = fields.clone();
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    // Of the core kinds the status is what counts: a pod's address, say.
    if kind.group().ends_with(".istio.io")
        && let Some(status) = fields.get_mut("status").and_then(Value::as_object_mut)
    {
        ["observedGeneration", "conditions", "proxies", "validationMessages"]
            .iter()
            .for_each(|field| drop(status.remove(*field)));
        if status.is_empty() {
            fields.remove("status");
        }
    }
    Value::Object(fields).to_string()
}

/// What is found before everything was listed once.
#[derive(Default)]
struct First {
    objects: BTreeMap<ObjectKey, AnyObject>,
    diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl First {
    fn add(&mut self, change: Change) {
        for key in &change.deletes {
            self.objects.remove(key);
        }
        self.objects
            .extend(change.upserts.into_iter().map(|object| (object.key(), object)));
        self.diagnostics.extend(change.diagnostics);
    }

    fn into_change(self) -> Change {
        Change {
            upserts: self.objects.into_values().collect(),
            deletes: Vec::new(),
            diagnostics: self.diagnostics,
        }
    }
}
