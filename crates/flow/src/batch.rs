//! Input changes that are committed together.

use std::any::{Any, TypeId};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::{Input, Relation};

/// Input changes. The last write to a key wins.
#[derive(Default)]
pub struct Batch {
    pub(crate) inputs: FxHashMap<TypeId, Box<dyn AnyRows>>,
}

/// The writes to one input.
pub(crate) type Rows<T> = FxHashMap<<T as Relation>::Key, Option<Arc<<T as Relation>::Row>>>;

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
        self.write::<T>(key, Some(row));
    }

    /// Removes the row of `key`, if it has one.
    pub fn remove<T: Input>(&mut self, key: T::Key) {
        self.write::<T>(key, None);
    }

    /// Appends another batch, whose writes override those of this one.
    pub fn merge(&mut self, later: Self) {
        for (input, rows) in later.inputs {
            match self.inputs.get_mut(&input) {
                Some(mine) => mine.extend(rows),
                None => {
                    self.inputs.insert(input, rows);
                }
            }
        }
    }

    /// The number of keys written.
    pub fn len(&self) -> usize {
        self.inputs.values().map(|rows| rows.len()).sum()
    }

    /// Whether the batch writes nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn write<T: Relation>(&mut self, key: T::Key, row: Option<Arc<T::Row>>) {
        let rows =
            self.inputs.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(TypedRows::<T>(Rows::<T>::default())));
        let rows: &mut dyn Any = &mut **rows;
        if let Some(TypedRows(rows)) = rows.downcast_mut::<TypedRows<T>>() {
            rows.insert(key, row);
        }
    }
}

/// The writes to one input, without its type.
pub(crate) trait AnyRows: Any + Send + Sync {
    /// The input's name.
    fn name(&self) -> &'static str;
    /// The number of keys written.
    fn len(&self) -> usize;
    /// Adds later writes to the same input.
    fn extend(&mut self, later: Box<dyn AnyRows>);
}

/// The writes to `T`.
pub(crate) struct TypedRows<T: Relation>(pub(crate) Rows<T>);

impl<T: Relation> AnyRows for TypedRows<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn extend(&mut self, later: Box<dyn AnyRows>) {
        let later: Box<dyn Any> = later;
        if let Ok(later) = later.downcast::<Self>() {
            self.0.extend(later.0);
        }
    }
}
