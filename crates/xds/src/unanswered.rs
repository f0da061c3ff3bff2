//! Resources that a node must be sent again because its last stream ended before it answered for them.
//!
//! Envoy treats a cluster that is sent again as a new one and waits for its assignment, even if it has it. If the stream breaks
//! in between, Envoy reports both versions on the next stream, and both are current. So resources that were, or were about to
//! be, sent again are recorded by node, and sent when the node reconnects, whatever versions it reports. The same holds for
//! virtual hosts, which follow their route table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use model::xds::{Parent, ResourceType, ResourceTypes};
use rustc_hash::FxHashMap;

use crate::Name;
use crate::stream::Stream;

/// The maximum number of recorded nodes; the oldest are dropped first.
const NODES: usize = 4096;
/// The maximum number of names for a node and type, and of bytes in them; more count as all. Clients choose names.
const NAMES: usize = 128;
const NAME_BYTES: usize = 16 << 10;

/// Names, or all if there are too many.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Names {
    All,
    Some(BTreeSet<Name>),
}

impl Default for Names {
    fn default() -> Names {
        Names::Some(BTreeSet::new())
    }
}

impl Names {
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Names::Some(names) if names.is_empty())
    }

    fn add(&mut self, other: Names) {
        *self = match (std::mem::take(self), other) {
            (Names::Some(mut names), Names::Some(more)) => {
                names.extend(more);
                let bytes: usize = names.iter().map(|name| name.len()).sum();
                if names.len() > NAMES || bytes > NAME_BYTES { Names::All } else { Names::Some(names) }
            }
            _ => Names::All,
        };
    }

    fn of(stream: &Stream<impl Sized>, kind: ResourceType) -> Names {
        let mut left = Names::default();
        let parent = kind.parent.of().and_then(|of| stream.watch(of));
        match (stream.watch(kind), kind.parent) {
            // They become pending only when their parent has been answered.
            (_, Parent::Collections { .. }) if parent.is_some_and(|parent| !parent.unanswered.is_empty()) => {
                return Names::All;
            }
            (Some(watch), _) => {
                let sent = watch.inflight.iter().flat_map(|inflight| &inflight.pending.owed);
                let names = watch.pending.owed.iter().chain(&watch.rewarm).chain(sent);
                left.add(Names::Some(names.cloned().collect()));
            }
            (None, Parent::Reference { .. }) => {
                left.add(parent.map(|parent| parent.unclaimed.clone()).unwrap_or_default());
            }
            (None, _) => {}
        }
        left
    }
}

/// Whether unanswered resources of a type are recorded.
fn is_remembered(kind: ResourceType) -> bool {
    matches!(kind.parent, Parent::Reference { .. } | Parent::Collections { .. })
}

/// The recorded names, by node.
#[derive(Default)]
pub(crate) struct Unanswered {
    nodes: FxHashMap<Arc<str>, BTreeMap<ResourceType, Names>>,
    /// The nodes, oldest first.
    order: VecDeque<Arc<str>>,
}

impl Unanswered {
    /// Records the unanswered resources of a stream that ended or was replaced.
    pub(crate) fn note(&mut self, types: &ResourceTypes, stream: &Stream<impl Sized>) {
        let left = types.iter().filter(|kind| is_remembered(*kind));
        let left = left.map(|kind| (kind, Names::of(stream, kind)));
        let left: Vec<_> = left.filter(|(_, names)| !names.is_empty()).collect();
        if left.is_empty() {
            return;
        }
        let node = &stream.proxy.id;
        if !self.nodes.contains_key(node) {
            if self.order.len() >= NODES
                && let Some(oldest) = self.order.pop_front()
            {
                self.nodes.remove(&oldest);
            }
            self.order.push_back(node.clone());
        }
        let known = self.nodes.entry(node.clone()).or_default();
        left.into_iter().for_each(|(kind, names)| known.entry(kind).or_default().add(names));
    }

    /// Takes the names that earlier streams of a node left unanswered.
    pub(crate) fn take(&mut self, node: &str, kind: ResourceType) -> Names {
        let Some(known) = self.nodes.get_mut(node) else {
            return Names::default();
        };
        let taken = known.remove(&kind).unwrap_or_default();
        if known.is_empty() {
            self.nodes.remove(node);
            self.order.retain(|other| **other != *node);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_names_are_bounded() {
        let some = |count: usize, length: usize| {
            let mut left = Names::default();
            let names = (0..count).map(|number| Name::from(format!("{number:0length$}")));
            left.add(Names::Some(names.collect()));
            left
        };
        assert!(some(0, 1).is_empty());
        assert!(matches!(some(NAMES, 60), Names::Some(_)));
        assert_eq!(some(NAMES + 1, 60), Names::All);
        assert_eq!(some(20, 1000), Names::All);
        let mut left = some(NAMES, 60);
        left.add(Names::Some(["another".into()].into()));
        assert_eq!(left, Names::All);
    }
}
