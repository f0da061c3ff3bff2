//! The copied objects and their subscribers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{mpsc, watch};

use super::Status;
use super::subscription::Event;
use crate::{Change, Error, GroupResource, Key, Revision, Stored};

/// A batch of events. Shared by all subscribers of a type.
pub(super) type Batch = Arc<Vec<Event>>;

/// The objects.
#[derive(Default)]
pub(super) struct View {
    types: BTreeMap<GroupResource, BTreeMap<Key, Stored>>,
    revision: Revision,
}

impl View {
    pub(super) fn get(&self, key: &Key) -> Option<&Stored> {
        self.types.get(&key.resource)?.get(key)
    }

    pub(super) fn of_type(&self, resource: &GroupResource) -> impl Iterator<Item = &Stored> {
        self.types.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// Sets an object. Returns the resulting event, if any.
    fn set(&mut self, key: &Key, now: Option<Stored>) -> Option<Event> {
        let objects = self.types.entry(key.resource.clone()).or_default();
        match now {
            None => objects.remove(key).map(Event::Deleted),
            Some(now) => match objects.insert(key.clone(), now.clone()) {
                None => Some(Event::Added(now)),
                Some(before) if before.revision == now.revision && before.json == now.json => None,
                Some(before) => Some(Event::Modified { before, now }),
            },
        }
    }
}

/// The copy behind its lock, with subscribers and status.
pub(super) struct Board {
    inner: Mutex<Inner>,
    status: watch::Sender<Status>,
    reached: watch::Sender<Revision>,
    queue: usize,
}

#[derive(Default)]
struct Inner {
    view: View,
    subscribers: HashMap<GroupResource, Vec<mpsc::Sender<Batch>>>,
    ended: bool,
}

impl Board {
    pub(super) fn new(queue: usize) -> Board {
        Board {
            inner: Mutex::default(),
            status: watch::Sender::new(Status::Starting),
            reached: watch::Sender::new(0),
            queue: queue.max(1),
        }
    }

    pub(super) fn read<T>(&self, read: impl FnOnce(&View) -> T) -> T {
        read(&self.lock().view)
    }

    pub(super) fn status(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(super) fn reached(&self) -> watch::Receiver<Revision> {
        self.reached.subscribe()
    }

    /// Returns the objects of a type and a queue of later events. `None` if the cache has ended.
    pub(super) fn join(&self, resource: &GroupResource) -> Option<(Vec<Stored>, mpsc::Receiver<Batch>)> {
        let mut inner = self.lock();
        if inner.ended {
            return None;
        }
        let (sender, receiver) = mpsc::channel(self.queue);
        let subscribers = inner.subscribers.entry(resource.clone()).or_default();
        subscribers.retain(|sender| !sender.is_closed());
        subscribers.push(sender);
        Some((inner.view.of_type(resource).cloned().collect(), receiver))
    }

    /// Applies changes of the store.
    pub(super) fn apply(&self, changes: &[Arc<Change>], wanted: impl Fn(&GroupResource) -> bool) {
        let mut inner = self.lock();
        let mut events = HashMap::<GroupResource, Vec<Event>>::new();
        for change in changes {
            inner.view.revision = inner.view.revision.max(change.revision);
            let resource = &change.key.resource;
            if wanted(resource)
                && let Some(event) = inner.view.set(&change.key, change.after.clone())
            {
                events.entry(resource.clone()).or_default().push(event);
            }
        }
        inner.send(events);
        self.reached.send_replace(inner.view.revision);
    }

    /// Replaces the whole copy.
    pub(super) fn replace(&self, objects: Vec<Stored>, revision: Revision) {
        let mut inner = self.lock();
        let mut fresh: BTreeMap<Key, Stored> = objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        let known = inner.view.types.values().flat_map(BTreeMap::keys);
        let gone: Vec<Key> = known.filter(|key| !fresh.contains_key(*key)).cloned().collect();
        let mut events = HashMap::<GroupResource, Vec<Event>>::new();
        let now = gone.into_iter().map(|key| (key, None));
        let now = now.chain(
            std::mem::take(&mut fresh)
                .into_iter()
                .map(|(key, object)| (key, Some(object))),
        );
        for (key, object) in now {
            if let Some(event) = inner.view.set(&key, object) {
                events.entry(key.resource.clone()).or_default().push(event);
            }
        }
        inner.view.revision = revision;
        inner.send(events);
        self.reached.send_replace(revision);
    }

    /// Advances the revision without changes.
    pub(super) fn progress(&self, revision: Revision) {
        let mut inner = self.lock();
        inner.view.revision = inner.view.revision.max(revision);
        self.reached.send_replace(inner.view.revision);
    }

    /// Marks the store as available.
    pub(super) fn set_synced(&self) {
        self.status.send_replace(Status::Synced);
    }

    /// Marks the store as unavailable.
    pub(super) fn set_stale(&self, error: Error) {
        self.status.send_if_modified(|status| match status {
            Status::Starting => false,
            status => {
                *status = Status::Stale(error);
                true
            }
        });
    }

    /// Ends the subscriptions.
    pub(super) fn end(&self) {
        let mut inner = self.lock();
        inner.ended = true;
        inner.subscribers.clear();
        self.status.send_replace(Status::Stopped);
    }

    /// A panic under the lock leaves a consistent copy: objects are set one by one.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Sends events to the subscribers of their types. A subscriber whose queue is full is removed: it finds its queue
    /// ended and starts again.
    fn send(&mut self, events: HashMap<GroupResource, Vec<Event>>) {
        for (resource, events) in events {
            let Some(subscribers) = self.subscribers.get_mut(&resource) else {
                continue;
            };
            let batch = Arc::new(events);
            subscribers.retain(|sender| sender.try_send(batch.clone()).is_ok());
        }
    }
}
