//! What streams leave unanswered when they end.
//!
//! A cluster that is sent again is a new one to Envoy, which waits for its assignment, even for one that it has. A stream that
//! breaks in between leaves it waiting: on return it names both versions, and both are those that there are. So what was
//! sent, or about to be sent, again is remembered by node, and is sent when the node returns, whatever it says that it has.
//! The same holds for virtual hosts, which follow their table.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use model::xds::ResourceType;
use rustc_hash::FxHashMap;

use crate::Name;
use crate::stream::Stream;

/// Nodes that are remembered; the oldest are forgotten first.
const NODES: usize = 4096;
/// Names that are remembered of a node and type, and the bytes in them; more stand for all. Clients choose names.
const NAMES: usize = 128;
const NAME_BYTES: usize = 16 << 10;
/// The types that follow another one.
const FOLLOWING: [ResourceType; 2] = [ResourceType::Endpoints, ResourceType::VirtualHost];

/// Names, or more than can be listed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Left {
    All,
    Some(BTreeSet<Name>),
}

impl Default for Left {
    fn default() -> Left {
        Left::Some(BTreeSet::new())
    }
}

impl Left {
    pub(crate) fn contains(&self, name: &Name) -> bool {
        match self {
            Left::All => true,
            Left::Some(names) => names.contains(name),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Left::Some(names) if names.is_empty())
    }

    fn add(&mut self, other: Left) {
        *self = match (std::mem::take(self), other) {
            (Left::Some(mut names), Left::Some(more)) => {
                names.extend(more);
                let bytes: usize = names.iter().map(|name| name.len()).sum();
                if names.len() > NAMES || bytes > NAME_BYTES {
                    Left::All
                } else {
                    Left::Some(names)
                }
            }
            _ => Left::All,
        };
    }

    fn of(stream: &Stream<impl Sized>, kind: ResourceType) -> Left {
        let mut left = Left::default();
        match stream.watch(kind) {
            // They are owed only when their table has been answered.
            _ if kind == ResourceType::VirtualHost && !stream.tables.is_empty() => return Left::All,
            Some(watch) => {
                let sent = watch.inflight.iter().flat_map(|inflight| &inflight.pending.owed);
                let names = watch.pending.owed.iter().chain(&watch.rewarm).chain(sent);
                left.add(Left::Some(names.cloned().collect()));
            }
            None if kind == ResourceType::Endpoints => {
                left.add(stream.early_clusters.clone().map_or(Left::All, Left::Some));
            }
            None => {}
        }
        left
    }
}

/// What is remembered, by node.
#[derive(Default)]
pub(crate) struct Unanswered {
    nodes: FxHashMap<Arc<str>, [Left; FOLLOWING.len()]>,
    /// In the order in which they were noted first.
    order: VecDeque<Arc<str>>,
}

impl Unanswered {
    /// Notes what a stream leaves that has ended, or that its node has given up.
    pub(crate) fn note(&mut self, stream: &Stream<impl Sized>) {
        let left = FOLLOWING.map(|kind| Left::of(stream, kind));
        if left.iter().all(Left::is_empty) {
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
        known.iter_mut().zip(left).for_each(|(known, left)| known.add(left));
    }

    /// What earlier streams of a node left of a type; from now on this stream stands for it.
    pub(crate) fn take(&mut self, node: &str, kind: ResourceType) -> Left {
        let Some(known) = self.nodes.get_mut(node) else {
            return Left::default();
        };
        let at = FOLLOWING.iter().position(|following| *following == kind);
        let taken = at.map(|at| std::mem::take(&mut known[at])).unwrap_or_default();
        if known.iter().all(Left::is_empty) {
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
    fn what_is_remembered_is_bounded() {
        let some = |count: usize, length: usize| {
            let mut left = Left::default();
            let names = (0..count).map(|number| Name::from(format!("{number:0length$}")));
            left.add(Left::Some(names.collect()));
            left
        };
        assert!(some(0, 1).is_empty());
        assert!(matches!(some(NAMES, 60), Left::Some(_)));
        assert_eq!(some(NAMES + 1, 60), Left::All);
        assert_eq!(some(20, 1000), Left::All);
        let mut left = some(NAMES, 60);
        left.add(Left::Some(["another".into()].into()));
        assert!(left == Left::All && left.contains(&"anything".into()));
    }
}
