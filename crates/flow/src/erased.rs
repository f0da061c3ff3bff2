//! Keys and rows without their types.
//!
//! The engine works on these, so that it is compiled once and not for each relation. Only finding a key and running a
//! rule know the types.

use std::any::Any;
use std::cmp::Ordering;
use std::fmt::Debug;
use std::sync::Arc;

use crate::keymap;
use crate::{Key, Row};

/// A key. Methods with another key expect one of the same type.
pub(crate) trait AnyKey: Any + Debug + Send + Sync {
    /// The hash by which [`KeyMap`](keymap::KeyMap) finds it.
    fn tag(&self) -> u32;
    /// Compares the keys.
    fn order(&self, other: &dyn AnyKey) -> Ordering;
    /// Whether the keys are equal.
    fn is(&self, other: &dyn AnyKey) -> bool;
    /// Returns a copy.
    fn boxed(&self) -> Box<dyn AnyKey>;
}

impl<K: Key> AnyKey for K {
    fn tag(&self) -> u32 {
        keymap::tag(self)
    }

    fn order(&self, other: &dyn AnyKey) -> Ordering {
        self.cmp(key(other))
    }

    fn is(&self, other: &dyn AnyKey) -> bool {
        self == key(other)
    }

    fn boxed(&self) -> Box<dyn AnyKey> {
        Box::new(self.clone())
    }
}

/// A row.
pub(crate) trait AnyRow: Any + Debug + Send + Sync {
    /// Whether the rows are equal; the other row is of the same type.
    fn is(&self, other: &dyn AnyRow) -> bool;
}

impl<R: Row> AnyRow for R {
    fn is(&self, other: &dyn AnyRow) -> bool {
        self == row(other)
    }
}

/// A shared row.
pub(crate) type SharedRow = Arc<dyn AnyRow>;

/// The key with its type.
#[inline]
pub(crate) fn key<K: Key>(key: &dyn AnyKey) -> &K {
    (key as &dyn Any).downcast_ref().unwrap_or_else(|| wrong_type())
}

/// The row with its type.
#[inline]
pub(crate) fn row<R: Row>(row: &dyn AnyRow) -> &R {
    (row as &dyn Any).downcast_ref().unwrap_or_else(|| wrong_type())
}

/// The shared row with its type.
#[inline]
pub(crate) fn shared<R: Row>(row: &SharedRow) -> Arc<R> {
    let row: Arc<dyn Any + Send + Sync> = row.clone();
    row.downcast().unwrap_or_else(|_| wrong_type())
}

/// Whether both rows are equal or absent.
pub(crate) fn same(left: Option<&SharedRow>, right: Option<&SharedRow>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => left.is(&**right),
        (left, right) => left.is_none() && right.is_none(),
    }
}

#[cold]
pub(crate) fn wrong_type() -> ! {
    panic!("flow: a key or row has an unexpected type, which is a bug in the engine")
}
