//! One connected stream.

use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::ResourceType;

use crate::rate::Rate;
use crate::watch::Watch;
use crate::{Epoch, Limits, Moment, Status, StreamId, Variant};

/// One connected stream.
pub(crate) struct Stream<T> {
    pub(crate) id: StreamId,
    pub(crate) token: T,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) variant: Variant,
    pub(crate) connected: Moment,
    /// Counts requests.
    pub(crate) requests: Rate,
    /// Counts names in requests.
    pub(crate) names: Rate,
    /// Counts subscriptions to all resources of a type.
    pub(crate) wildcards: Rate,
    pub(crate) watches: Watches,
    pub(crate) unserved: Vec<Arc<str>>,
    /// Whether the client had resources from an earlier stream.
    pub(crate) resumed: bool,
    /// The epoch and time at which changes began to wait for the types that they need.
    pub(crate) hold: Option<(Epoch, Moment)>,
    /// Makes nonces of unshared responses unique.
    pub(crate) sequence: u64,
    pub(crate) timer: Option<Moment>,
    /// The time since which it has had something to do.
    pub(crate) busy_since: Option<Moment>,
    pub(crate) close_with: Option<Status>,
}

/// The watches of a stream, in sending order.
#[derive(Default)]
pub(crate) struct Watches(Vec<Watch>);

impl Watches {
    pub(crate) fn get(&self, kind: ResourceType) -> Option<&Watch> {
        self.iter().find(|watch| watch.kind == kind)
    }

    pub(crate) fn get_mut(&mut self, kind: ResourceType) -> Option<&mut Watch> {
        self.iter_mut().find(|watch| watch.kind == kind)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Watch> {
        self.0.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.0.iter_mut()
    }

    /// Adds a watch. It replaces that of the same type, if there is one.
    pub(crate) fn insert(&mut self, watch: Watch) {
        match self.0.binary_search_by_key(&watch.kind, |watch| watch.kind) {
            Ok(at) => self.0[at] = watch,
            Err(at) => {
                // Streams are many and subscribe to few types.
                self.0.reserve_exact(1);
                self.0.insert(at, watch);
            }
        }
    }

    pub(crate) fn remove(&mut self, kind: ResourceType) -> Option<Watch> {
        let at = self.0.iter().position(|watch| watch.kind == kind)?;
        Some(self.0.remove(at))
    }
}

impl<T> Stream<T> {
    pub(crate) fn new(
        id: StreamId,
        token: T,
        proxy: Arc<Proxy>,
        variant: Variant,
        limits: &Limits,
        now: Moment,
    ) -> Stream<T> {
        Stream {
            id,
            token,
            proxy,
            variant,
            connected: now,
            requests: Rate::new(limits.request_burst, now),
            names: Rate::new(limits.name_burst, now),
            wildcards: Rate::new(limits.wildcard_burst, now),
            watches: Watches::default(),
            unserved: Vec::new(),
            resumed: false,
            hold: None,
            sequence: 0,
            timer: None,
            busy_since: None,
            close_with: None,
        }
    }

    pub(crate) fn watch(&self, kind: ResourceType) -> Option<&Watch> {
        self.watches.get(kind)
    }

    pub(crate) fn watch_mut(&mut self, kind: ResourceType) -> Option<&mut Watch> {
        self.watches.get_mut(kind)
    }

    pub(crate) fn note_unserved(&mut self, type_url: &str, limit: usize) {
        if self.unserved.len() < limit && !self.unserved.iter().any(|known| **known == *type_url) {
            self.unserved.push(type_url.into());
        }
    }
}
