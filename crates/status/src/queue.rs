//! A queue of objects by time: each object is in it at most once, and the one that waits longest comes first.

use std::collections::{BTreeMap, BTreeSet};

use config::ObjectKey;

use crate::Elapsed;

#[derive(Default)]
pub(crate) struct Queue {
    order: BTreeSet<(Elapsed, ObjectKey)>,
    when: BTreeMap<ObjectKey, Elapsed>,
}

impl Queue {
    /// Schedules an object, unless it is scheduled earlier already.
    pub(crate) fn put(&mut self, key: &ObjectKey, at: Elapsed) {
        if self.when.get(key).is_some_and(|known| *known <= at) {
            return;
        }
        self.take_out(key);
        self.when.insert(key.clone(), at);
        self.order.insert((at, key.clone()));
    }

    pub(crate) fn take_out(&mut self, key: &ObjectKey) {
        if let Some(at) = self.when.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// Removes and returns the first object that is due.
    pub(crate) fn pop(&mut self, now: Elapsed) -> Option<ObjectKey> {
        let first = self.order.first().filter(|(at, _)| *at <= now)?.1.clone();
        self.take_out(&first);
        Some(first)
    }

    /// The time of the first object.
    pub(crate) fn next(&self) -> Option<Elapsed> {
        self.order.first().map(|(at, _)| *at)
    }

    pub(crate) fn len(&self) -> usize {
        self.when.len()
    }
}
