//! One connected stream.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::proxy::Proxy;
use model::xds::ResourceType;

use crate::awaited::Awaited;
use crate::gate::Settling;
use crate::rate::Rate;
use crate::watch::Watch;
use crate::{Epoch, Moment, Name, Status, StreamId, Variant};

/// One connected stream.
pub(crate) struct Stream<T> {
    pub(crate) id: StreamId,
    pub(crate) token: T,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) variant: Variant,
    pub(crate) connected: Moment,
    pub(crate) rate: Rate,
    pub(crate) watches: [Option<Box<Watch>>; ResourceType::COUNT],
    pub(crate) unserved: Vec<Arc<str>>,
    /// The client had something from an earlier stream.
    pub(crate) resumed: bool,
    /// Clusters of which endpoints are awaited.
    pub(crate) settling: Option<Settling>,
    /// What clusters discover that were sent on this stream before it asked for endpoints; `None` stands for more than can be listed.
    pub(crate) early_clusters: Option<BTreeSet<Name>>,
    /// Collections of endpoints that it was told of.
    pub(crate) awaited: Awaited,
    /// Whether listeners were sent on this stream before it asked for routes.
    pub(crate) early_listeners: bool,
    /// Route tables in the outstanding response of their type.
    pub(crate) tables: Vec<Name>,
    /// Since when listeners or routes wait for what they may need, and what they had to bring then.
    pub(crate) hold: Option<(Epoch, Moment)>,
    /// Since when removals of clusters wait, and up to which epoch.
    pub(crate) sweep_hold: Option<(Epoch, Moment)>,
    /// Makes nonces of unshared responses unique.
    pub(crate) sequence: u64,
    pub(crate) timer: Option<Moment>,
    /// Since when it has something to do.
    pub(crate) busy_since: Option<Moment>,
    pub(crate) close_with: Option<Status>,
}

impl<T> Stream<T> {
    pub(crate) fn new(
        id: StreamId,
        token: T,
        proxy: Arc<Proxy>,
        variant: Variant,
        rate: Rate,
        now: Moment,
    ) -> Stream<T> {
        Stream {
            id,
            token,
            proxy,
            variant,
            connected: now,
            rate,
            watches: std::array::from_fn(|_| None),
            unserved: Vec::new(),
            resumed: false,
            settling: None,
            early_clusters: Some(BTreeSet::new()),
            awaited: Awaited::default(),
            early_listeners: false,
            tables: Vec::new(),
            hold: None,
            sweep_hold: None,
            sequence: 0,
            timer: None,
            busy_since: None,
            close_with: None,
        }
    }

    pub(crate) fn watch(&self, kind: ResourceType) -> Option<&Watch> {
        self.watches[kind as usize].as_deref()
    }

    pub(crate) fn watch_mut(&mut self, kind: ResourceType) -> Option<&mut Watch> {
        self.watches[kind as usize].as_deref_mut()
    }

    pub(crate) fn note_unserved(&mut self, type_url: &str, limit: usize) {
        if self.unserved.len() < limit && !self.unserved.iter().any(|known| **known == *type_url) {
            self.unserved.push(type_url.into());
        }
    }
}
