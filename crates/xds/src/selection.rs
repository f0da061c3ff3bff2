//! The part of a ledger that a stream subscribes to: all names, or a set of names. Streams with equal subscriptions share a
//! selection and its responses.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::xds::{ResourceType, collection_of};

use crate::compose::Composed;
use crate::name_set::NameSet;
use crate::resume::Compared;
use crate::subscription::Latest;
use crate::watch::Pending;
use crate::{Epoch, Name, StreamId};

/// Index of a selection within its ledger.
pub(crate) type SelectionId = usize;

pub(crate) struct Selection {
    /// `None`: all names of the ledger. For a type with collections, the names of collections.
    pub(crate) names: Option<NameSet>,
    /// Its names are so few that shared selections may have them, too. Of a named type, in an own ledger.
    pub(crate) may_hide: bool,
    /// The number of names that cannot exist yet, for which the ledger has no entry.
    pub(crate) absent: usize,
    collected: bool,
    /// The ledger has no catalogue, so that a wildcard selects nothing.
    by_name: bool,
    /// The epoch of the last addition or change.
    pub(crate) changed: Epoch,
    /// The epoch of the addition or change before that.
    pub(crate) changed_before: Epoch,
    /// The epoch of the last removal. Listed types only.
    pub(crate) removed: Epoch,
    /// Depends on all names and their resources, and not on their history. Not maintained for a wildcard: the ledger has a
    /// digest.
    pub(crate) digest: u64,
    pub(crate) streams: BTreeSet<StreamId>,
    /// Unique in the hub; part of nonces.
    pub(crate) serial: u64,
    /// Where the encoding of all its resources goes on, if a part of them was encoded. Those before this name are encoded, unless
    /// they have changed since: then they are with the response.
    pub(crate) encoded: Option<Name>,
    cache: VecDeque<Cached>,
    /// The latest differences between the resources of reconnecting clients and the current ones.
    resumed: VecDeque<(Compared, Arc<Pending>)>,
}

/// The key of a shared response within its selection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) delta: bool,
    /// The response has the updates after `from` and up to `upto`.
    pub(crate) from: Epoch,
    pub(crate) upto: Epoch,
    /// The response has the removals after `removals_sent` and up to `sweep`.
    pub(crate) removals_sent: Epoch,
    pub(crate) sweep: Epoch,
    /// Whether the latest changes come first.
    pub(crate) newest_first: bool,
    /// Whether unknown names are answered with an empty resource.
    pub(crate) placeholders: bool,
}

impl Key {
    /// The key of the part of a response that comes from one selection. Keys between the same two changes of the selection
    /// become equal, so that streams share the part wherever they are in other ledgers.
    pub(crate) fn within(self, selection: &Selection) -> Key {
        let latest = Latest { changed: selection.changed, removed: selection.removed };
        self.between(latest, selection.changed_before)
    }

    /// Whether nothing was added, changed or removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.from > 0 && self.from >= self.upto && self.removals_sent >= self.sweep
    }

    /// The same, for a response from selections with these latest changes.
    pub(crate) fn between(self, latest: Latest, changed_before: Epoch) -> Key {
        let from = match self.from {
            from if from >= latest.changed => latest.changed,
            from if from >= changed_before => changed_before,
            from => from,
        };
        let removals_sent = self.removals_sent.min(latest.removed);
        Key {
            from,
            upto: self.upto.min(latest.changed).max(from),
            removals_sent,
            sweep: self.sweep.min(latest.removed).max(removals_sent),
            ..self
        }
    }
}

/// The state of a shared selection, of which a response has the resources that those of this selection do not hide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Below {
    pub(crate) serial: u64,
    pub(crate) changed: Epoch,
    pub(crate) removed: Epoch,
}

/// A response, and whether a stream was sent it since the last call of [`Selection::forget_idle`].
struct Cached {
    key: Key,
    below: Option<Below>,
    composed: Arc<Composed>,
    used: bool,
}

/// The maximum number of cached responses, and of differences. Streams advance together, so that few are in use at a time.
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
            may_hide: false,
            absent: 0,
            collected: kind.is_collected(),
            by_name,
            changed,
            changed_before: changed,
            removed: 0,
            digest: 0,
            streams: BTreeSet::new(),
            serial,
            encoded: None,
            cache: VecDeque::new(),
            resumed: VecDeque::new(),
        }
    }

    /// Whether the resource of this name is selected.
    pub(crate) fn covers(&self, name: &str) -> bool {
        match &self.names {
            None => !self.by_name,
            Some(names) if self.collected => collection_of(name).is_some_and(|collection| names.contains(collection)),
            Some(names) => names.contains(name),
        }
    }

    /// The names of single resources that are subscribed to.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Name> {
        let names = self.names.as_ref().filter(|_| !self.collected);
        names.into_iter().flat_map(NameSet::iter)
    }

    /// Whether the client named this resource or collection.
    pub(crate) fn names_one(&self, name: &str) -> bool {
        self.names.as_ref().is_some_and(|names| names.contains(name))
    }

    pub(crate) fn cached(&mut self, key: &Key, below: Option<Below>) -> Option<Arc<Composed>> {
        let cached = self.cache.iter_mut().find(|cached| cached.key == *key && cached.below == below)?;
        cached.used = true;
        Some(cached.composed.clone())
    }

    pub(crate) fn cache(&mut self, key: Key, below: Option<Below>, composed: Arc<Composed>) {
        if self.cache.len() == CACHED {
            self.cache.pop_front();
        }
        let used = true;
        self.cache.push_back(Cached { key, below, composed, used });
    }

    /// The difference between the resources of reconnecting clients and the current ones, if it is known.
    pub(crate) fn resumed(&self, compared: &Compared) -> Option<Arc<Pending>> {
        self.resumed.iter().find(|(known, _)| known == compared).map(|(_, difference)| difference.clone())
    }

    pub(crate) fn keep_resumed(&mut self, compared: Compared, difference: Arc<Pending>) {
        if self.resumed.len() == CACHED {
            self.resumed.pop_front();
        }
        self.resumed.push_back((compared, difference));
    }

    /// Moves responses that were not used since the last call to `idle`. Returns whether others remain.
    pub(crate) fn forget_idle(&mut self, idle: &mut Vec<Arc<Composed>>) -> bool {
        self.resumed.clear();
        self.cache.retain_mut(|cached| {
            let used = std::mem::take(&mut cached.used);
            if !used {
                idle.push(cached.composed.clone());
            }
            used
        });
        !self.cache.is_empty()
    }

    /// Takes the cached responses with more than `count` resources.
    pub(crate) fn take_responses(&mut self, count: usize) -> impl Iterator<Item = Arc<Composed>> {
        let responses = std::mem::take(&mut self.cache).into_iter().map(|cached| cached.composed);
        responses.filter(move |composed| composed.resources > count)
    }

    /// The number of cached responses.
    pub(crate) fn responses(&self) -> usize {
        self.cache.len()
    }

    /// Drops all cached responses: the selection has changed.
    pub(crate) fn outdate(&mut self) {
        self.cache.clear();
        self.resumed.clear();
    }
}
