//! Configuration for other control planes: what a client whose node says `GENERATOR=api` gets on the discovery port.
//!
//! It asks for types `GROUP/VERSION/Kind`, state of the world, and gets each object as `istio.mcp.v1alpha1.Resource`: the
//! form that Istio's `configSources` with `xds://` read. The body is Istio's message of the kind; kinds that Istio has no
//! message of (those of the Gateway API) travel as `google.protobuf.Struct`. `core/v1alpha1/MeshConfig` is the message by
//! itself. Types that are not known are answered with nothing, as Istio does.
//!
//! The objects are those that the sources gave, and not what the world derives from them: whoever feeds the world feeds
//! [`Configuration`], too. An object is encoded once, when somebody asks for its kind.

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
    /// Moves whenever something changed.
    changed: watch::Sender<()>,
}

/// The objects of a kind.
#[derive(Default)]
struct Held {
    /// How often it changed.
    generation: u64,
    objects: BTreeMap<ObjectKey, Item>,
}

struct Item {
    object: AnyObject,
    /// Made when first asked for.
    encoded: Option<Bytes>,
    /// The kind's generation when it was put.
    since: u64,
}

/// All of a kind, ready to be sent.
#[derive(Clone, Debug)]
struct Answer {
    /// Equal versions mean equal content, on every replica.
    version: String,
    /// The field `resources` of a discovery response, as often as there are objects.
    resources: Bytes,
    /// The kind's generation that it shows.
    generation: u64,
}

impl Configuration {
    /// Takes in a change of the sources. Core kinds are left out: this form carries a `spec` only; and so is what was read
    /// from other clusters, for it has no place for their names.
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
            let item = Item {
                object: object.clone(),
                encoded: None,
                since: held.generation,
            };
            held.objects.insert(object.key(), item);
            any = true;
        }
        drop(kinds);
        if any {
            self.shared.changed.send_replace(());
        }
    }

    /// Replaces the mesh's settings, for those who have them not as an object.
    pub fn set_mesh(&self, config: MeshConfig) {
        let object = Object::new("", MeshConfig::NAME, config).into();
        self.apply(&[object].into_iter().collect());
    }

    fn changes(&self) -> watch::Receiver<()> {
        self.shared.changed.subscribe()
    }

    /// How often the kind of a type has changed.
    fn generation(&self, type_url: &str) -> u64 {
        kind_of(type_url)
            .and_then(|kind| self.kinds().get(&kind).map(|held| held.generation))
            .unwrap_or(0)
    }

    /// All that a type means. Takes as long as encoding what is new.
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
        // Not under the lock: the sources must not wait for it.
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
        Answer::of(
            items.into_iter().filter_map(|(.., encoded, _)| encoded).collect(),
            generation,
        )
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<Kind, Held>> {
        // Nothing is half done when a holder panics.
        self.shared.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answer {
    fn of(pieces: Vec<Bytes>, generation: u64) -> Answer {
        let resources = Bytes::from(pieces.concat());
        Answer {
            version: format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&resources)),
            resources,
            generation,
        }
    }
}

/// The kind that `GROUP/VERSION/Kind` names.
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
