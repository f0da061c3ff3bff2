//! Input changes that are committed together.

use std::any::TypeId;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Input;
use crate::erased::{AnyKey, SharedRow};
use crate::keymap::Found;
use crate::slots::Slots;

/// Input changes. The last write to a key wins.
#[derive(Default)]
pub struct Batch {
    pub(crate) inputs: FxHashMap<TypeId, Writes>,
}

impl Batch {
    /// A batch that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the row of `key`.
    pub fn put<T: Input>(&mut self, key: T::Key, row: T::Row) {
        self.put_shared::<T>(key, Arc::new(row));
    }

    /// Sets the row of `key` without copying it.
    pub fn put_shared<T: Input>(&mut self, key: T::Key, row: Arc<T::Row>) {
        self.write(TypeId::of::<T>(), T::NAME, Box::new(key), Some(row));
    }

    /// Removes the row of `key`, if it has one.
    pub fn remove<T: Input>(&mut self, key: T::Key) {
        self.write(TypeId::of::<T>(), T::NAME, Box::new(key), None);
    }

    /// Appends another batch, whose writes override those of this one.
    pub fn merge(&mut self, later: Self) {
        for (input, writes) in later.inputs {
            for (key, row) in writes.rows {
                self.write(input, writes.name, key, row);
            }
        }
    }

    /// The number of keys written.
    pub fn len(&self) -> usize {
        self.inputs.values().map(|writes| writes.rows.len()).sum()
    }

    /// Whether the batch writes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn write(&mut self, input: TypeId, name: &'static str, key: Box<dyn AnyKey>, row: Option<SharedRow>) {
        let empty = || Writes { name, places: Slots::new(), rows: Vec::new() };
        let Writes { places, rows, .. } = self.inputs.entry(input).or_insert_with(empty);
        let tag = key.tag();
        match places.find(tag, |found| rows[found.cell as usize].0.is(&*key)) {
            Some(known) => rows[known.cell as usize].1 = row,
            None => {
                places.insert(Found { tag, cell: rows.len() as u32 });
                rows.push((key, row));
            }
        }
    }
}

/// The writes to one input.
pub(crate) struct Writes {
    /// The input's name.
    pub(crate) name: &'static str,
    /// From the hash of a key to its index in `rows`.
    places: Slots<Found>,
    rows: Vec<(Box<dyn AnyKey>, Option<SharedRow>)>,
}

impl Writes {
    /// The keys and rows, by key.
    pub(crate) fn sorted(mut self) -> Vec<(Box<dyn AnyKey>, Option<SharedRow>)> {
        self.rows.sort_unstable_by(|a, b| a.0.order(&*b.0));
        self.rows
    }
}
