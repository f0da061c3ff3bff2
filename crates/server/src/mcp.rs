//! Serves configuration to other control planes: clients whose node has `GENERATOR=api` in its metadata.
//!
//! A client subscribes to types `GROUP/VERSION/Kind` in SotW, and receives each object as an
//! `istio.mcp.v1alpha1.Resource`, the form that Istio's `configSources` with `xds://` read. The body is Istio's message
//! of the kind, or a `google.protobuf.Struct` for kinds without one (Gateway API). `core/v1alpha1/MeshConfig` is sent
//! as a single message. As in Istio, unknown types get an empty response.
//!
//! The objects are those of the sources, not rows derived from them: the intake updates the world and
//! [`Configuration`]. An object is encoded once, when its kind is first requested.

mod encode;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use config::{AnyObject, ChangeSet, Kind, MeshConfig, Object, ObjectKey};
use tokio::sync::watch;

pub(crate) use stream::{Service, wants};

/// The configuration that other control planes may read. Cheap to clone.
#[derive(Clone, Default)]
pub struct Configuration {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    kinds: Mutex<BTreeMap<Kind, Held>>,
    /// Notified after every change.
    changed: watch::Sender<()>,
}

/// The objects of a kind.
#[derive(Default)]
struct Held {
    /// The number of changes.
    generation: u64,
    objects: BTreeMap<ObjectKey, Item>,
}

struct Item {
    object: AnyObject,
    /// Encoded on the first request.
    encoded: Option<Bytes>,
    /// The kind's generation at the object's last change.
    since: u64,
}

/// The content of a response for one kind.
#[derive(Clone, Debug)]
struct Answer {
    /// A hash of the content, equal on every replica.
    version: String,
    /// The encoded `resources` fields of a discovery response.
    resources: Bytes,
    /// The generation of the kind.
    generation: u64,
}

impl Configuration {
    /// The ProxyConfigs of a namespace.
    pub fn proxy_configs(&self, namespace: &str) -> Vec<Arc<Object<config::istio::ProxyConfig>>> {
        let kinds = self.kinds();
        let objects = kinds.get(&Kind::ProxyConfig).into_iter().flat_map(|held| &held.objects);
        let of_namespace = objects.filter(|(key, _)| &*key.namespace == namespace);
        let objects = of_namespace.filter_map(|(_, item)| match &item.object {
            AnyObject::ProxyConfig(object) => Some(object.clone()),
            _ => None,
        });
        objects.collect()
    }

    /// The objects of a kind, if they have changed since this number of changes, and the new number.
    pub fn changed_since(&self, kind: Kind, seen: Option<u64>) -> Option<(u64, Vec<AnyObject>)> {
        let kinds = self.kinds();
        let generation = kinds.get(&kind).map_or(0, |held| held.generation);
        let objects = kinds.get(&kind).into_iter().flat_map(|held| held.objects.values());
        (seen != Some(generation)).then(|| (generation, objects.map(|item| item.object.clone()).collect()))
    }

    /// Applies a change of the sources. Core kinds are skipped, because this form carries only a `spec`; so are objects
    /// of other clusters, because it has no field for the cluster.
    pub fn apply(&self, change: &ChangeSet) {
        let mut any = false;
        let mut kinds = self.kinds();
        for key in &change.deletes {
            if let Some(held) = kinds.get_mut(&key.kind)
                && held.objects.remove(key).is_some()
            {
                held.generation += 1;
                any = true;
            }
        }
        let own = |object: &&AnyObject| object.kind().is_complete() && object.meta().cluster.is_empty();
        for object in change.upserts.values().filter(own) {
            let held = kinds.entry(object.kind()).or_default();
            held.generation += 1;
            let item = Item { object: object.clone(), encoded: None, since: held.generation };
            held.objects.insert(object.key(), item);
            any = true;
        }
        drop(kinds);
        if any {
            self.shared.changed.send_replace(());
        }
    }

    /// Sets the mesh configuration, for callers that do not have it as an object.
    pub fn set_mesh(&self, config: MeshConfig) {
        let object = Object::new("", MeshConfig::NAME, config).into();
        self.apply(&[object].into_iter().collect());
    }

    /// Notified after every change.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// The number of changes of a type's kind.
    fn generation(&self, type_url: &str) -> u64 {
        kind_of(type_url).and_then(|kind| self.kinds().get(&kind).map(|held| held.generation)).unwrap_or(0)
    }

    /// The current content of a type. Encodes objects that are not encoded yet.
    fn answer(&self, type_url: &str) -> Answer {
        let Some(kind) = kind_of(type_url) else {
            return Answer::of(Vec::new(), 0);
        };
        let (generation, mut items): (u64, Vec<_>) = match self.kinds().get(&kind) {
            None => (0, Vec::new()),
            Some(held) => {
                let items = held.objects.iter();
                let copy = |(key, item): (&ObjectKey, &Item)| {
                    (key.clone(), item.object.clone(), item.encoded.clone(), item.since)
                };
                (held.generation, items.map(copy).collect())
            }
        };
        // Encodes without the lock, so that the sources do not wait.
        let mut made = Vec::new();
        for (key, object, encoded, since) in &mut items {
            if encoded.is_none() {
                let bytes = encode::field(&encode::resource(object));
                made.push((key.clone(), *since, bytes.clone()));
                *encoded = Some(bytes);
            }
        }
        if let Some(held) = self.kinds().get_mut(&kind) {
            for (key, since, bytes) in made {
                if let Some(item) = held.objects.get_mut(&key).filter(|item| item.since == since) {
                    item.encoded = Some(bytes);
                }
            }
        }
        Answer::of(items.into_iter().filter_map(|(.., encoded, _)| encoded).collect(), generation)
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<Kind, Held>> {
        // Changes are complete even if a holder panicked.
        self.shared.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn of(pieces: Vec<Bytes>, generation: u64) -> Answer {
        let resources = Bytes::from(pieces.concat());
        Answer { version: format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&resources)), resources, generation }
    }
}

/// The kind named by `GROUP/VERSION/Kind`.
fn kind_of(type_url: &str) -> Option<Kind> {
    let mut parts = type_url.splitn(3, '/');
    let (group, version, name) = (parts.next()?, parts.next()?, parts.next()?);
    let kind = match (group, name) {
        ("core", "MeshConfig") => Kind::MeshConfig,
        ("core", name) => Kind::find("", name)?,
        (group, name) => Kind::find(group, name)?,
    };
    kind.versions().contains(&version).then_some(kind)
}
