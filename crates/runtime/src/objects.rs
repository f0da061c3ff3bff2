//! The store as a source: the objects of every kind of the mesh.

use std::sync::Arc;

use config::Kind;
use config::schema::{definitions, find};
use sources::ChangeSender;
use sources::stored::StoredObjects;
use store::follow::{self, Event};
use store::{GroupResource, Key, Store, Stored};
use tokio::task::JoinSet;

/// Follows the store until it is dropped.
pub struct Follower {
    _task: JoinSet<()>,
}

impl Follower {
    /// Sends the complete state of the store, and follows it from then on. `None` if the store was closed before.
    pub async fn start(store: Arc<dyn Store>, changes: ChangeSender) -> Option<Follower> {
        let mut objects = StoredObjects::default();
        let kinds = definitions().iter().filter(|kind| kind.mesh.is_some());
        let types = kinds.map(|kind| GroupResource::new(kind.group, kind.plural));
        let mut events = follow::Follower::new(store, types.collect());
        take(&mut objects, events.next().await?);
        changes.send(objects.take()).await.ok()?;
        let mut task = JoinSet::new();
        task.spawn(async move {
            while let Some(event) = events.next().await {
                take(&mut objects, event);
                let change = objects.take();
                if !change.is_empty() && changes.send(change).await.is_err() {
                    return;
                }
            }
        });
        Some(Follower { _task: task })
    }
}

fn take(objects: &mut StoredObjects, event: Event) {
    match event {
        Event::Listed(all) => {
            objects.begin();
            all.iter().for_each(|object| put(objects, object));
            objects.listed();
        }
        Event::Changed(changes) => {
            for change in changes {
                match (&change.after, kind(&change.key)) {
                    (Some(object), _) => put(objects, object),
                    (None, Some(kind)) => objects.delete(kind, &change.key.namespace, &change.key.name),
                    (None, None) => {}
                }
            }
        }
    }
}

fn put(objects: &mut StoredObjects, object: &Stored) {
    if let Some(kind) = kind(&object.key) {
        objects.upsert(kind, &object.json);
    }
}

fn kind(key: &Key) -> Option<Kind> {
    find(&key.resource.group, &key.resource.plural)?.mesh
}
