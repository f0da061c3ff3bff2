//! Who is looked at when: each object at most once in it, the one that waits longest first.

use std::collections::{BTreeMap, BTreeSet};

use config::ObjectKey;

use crate::Moment;

#[derive(Default)]
pub(crate) struct Queue {
    order: BTreeSet<(Moment, ObjectKey)>,
    when: BTreeMap<ObjectKey, Moment>,
}

impl Queue {
    /// Looks at an object at this time, unless that is to happen earlier anyway.
    pub(crate) fn put(&mut self, key: &ObjectKey, at: Moment) {
        if self.when.get(key).is_some_and(|known| *known <= at) {
            return;
        }
        self.take_out(key);
        self.when.insert(key.clone(), at);
        self.order.insert((at, key.clone()));
    }

    /// Not at all.
    pub(crate) fn take_out(&mut self, key: &ObjectKey) {
        if let Some(at) = self.when.remove(key) {
            self.order.remove(&(at, key.clone()));
        }
    }

    /// The next one whose time has come.
    pub(crate) fn pop(&mut self, now: Moment) -> Option<ObjectKey> {
        let first = self.order.first().filter(|(at, _)| *at <= now)?.1.clone();
        self.take_out(&first);
        Some(first)
    }

    /// When the next one's time comes.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.order.first().map(|(at, _)| *at)
    }

    pub(crate) fn len(&self) -> usize {
        self.when.len()
    }
}
