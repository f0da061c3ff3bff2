//! Which names of a ledger some streams see: all, or a set of names. Streams that see the same share one selection, and
//! with it the responses.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::xds::{ResourceType, collection_of};

use crate::compose::Composed;
use crate::name_set::NameSet;
use crate::{Epoch, Name, StreamId};

/// Index of a selection within its ledger.
pub(crate) type SelectionId = usize;

pub(crate) struct Selection {
    /// `None`: all names of the ledger. Of a collected type these are collections.
    pub(crate) names: Option<NameSet>,
    collected: bool,
    /// The ledger has no list of all names: then all are none.
    by_name: bool,
    /// When a name of it came or changed last.
    pub(crate) changed: Epoch,
    /// When that happened before.
    pub(crate) changed_before: Epoch,
    /// When a name of it went last; listed types only.
    pub(crate) removed: Epoch,
    /// Depends on all names and what they hold, and not on how that came about; not kept for all names of a ledger, which
    /// has its own.
    pub(crate) digest: u64,
    pub(crate) streams: BTreeSet<StreamId>,
    /// Unique in the hub; part of nonces.
    pub(crate) serial: u64,
    cache: VecDeque<Cached>,
}

/// What a shared response is determined by, within its selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) delta: bool,
    /// Updates after `from` and up to `upto` are in it.
    pub(crate) from: Epoch,
    pub(crate) upto: Epoch,
    /// Removals after `removals_sent` and up to `sweep` are in it.
    pub(crate) removals_sent: Epoch,
    pub(crate) sweep: Epoch,
    /// Whether what changed last comes first.
    pub(crate) newest_first: bool,
    /// Whether unknown names are answered with an empty resource.
    pub(crate) placeholders: bool,
}

/// A response, and whether somebody has got it since [`Selection::forget_idle`] was called last.
struct Cached {
    key: Key,
    composed: Arc<Composed>,
    used: bool,
}

/// Streams move from one state to the next together; more states than this are not in use at the same time.
const CACHED: usize = 4;

impl Selection {
    pub(crate) fn new(
        names: Option<NameSet>,
        kind: ResourceType,
        by_name: bool,
        changed: Epoch,
        serial: u64,
    ) -> Selection {
        Selection {
            names,
            collected: kind.is_collected(),
            by_name,
            changed,
            changed_before: changed,
            removed: 0,
            digest: 0,
            streams: BTreeSet::new(),
            serial,
            cache: VecDeque::new(),
        }
    }

    /// Whether who sees this sees the resource of this name.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match &self.names {
            None => !self.by_name,
            Some(names) if self.collected => collection_of(name).is_some_and(|collection| names.contains(collection)),
            Some(names) => names.contains(name),
        }
    }

    /// The resources that clients named one by one.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Name> {
        let names = self.names.as_ref().filter(|_| !self.collected);
        names.into_iter().flat_map(NameSet::iter)
    }

    pub(crate) fn cached(&mut self, key: &Key) -> Option<Arc<Composed>> {
        let cached = self.cache.iter_mut().find(|cached| cached.key == *key)?;
        cached.used = true;
        Some(cached.composed.clone())
    }

    pub(crate) fn cache(&mut self, key: Key, composed: Arc<Composed>) {
        if self.cache.len() == CACHED {
            self.cache.pop_front();
        }
        let used = true;
        self.cache.push_back(Cached { key, composed, used });
    }

    /// Forgets responses that nobody has got since this was called last. Whether there are others.
    pub(crate) fn forget_idle(&mut self) -> bool {
        self.cache.retain_mut(|cached| std::mem::take(&mut cached.used));
        !self.cache.is_empty()
    }

    /// How many responses are kept.
    pub(crate) fn responses(&self) -> usize {
        self.cache.len()
    }

    /// Forgets responses to states that nobody can be sent any more.
    pub(crate) fn outdate(&mut self) {
        self.cache.clear();
    }
}
