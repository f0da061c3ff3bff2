//! The traits that users of the engine implement: relations (keyed tables) and how their rows are produced.

use std::fmt::Debug;
use std::hash::Hash;

use crate::{Members, Reads};

/// The key of a cell. Implemented for every type that fits.
///
/// `Ord` determines the order in which rows are shown and applied. No implementation may panic.
pub trait Key: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static> Key for T {}

/// The row of a cell. Implemented for every type that fits.
///
/// Equality stops propagation: a re-derived row that is equal to the previous one does not reach its readers.
pub trait Row: PartialEq + Debug + Send + Sync + 'static {}

impl<T: PartialEq + Debug + Send + Sync + 'static> Row for T {}

/// A keyed table. The implementing type is only a name and is never instantiated.
pub trait Relation: 'static {
    /// The relation's name in errors, in [`Why`](crate::Why) and in [`Stats`](crate::Stats).
    const NAME: &'static str;
    /// The key of a row.
    type Key: Key;
    /// The type of the rows.
    type Row: Row;
}

/// A relation whose rows are committed from outside, see [`Batch`](crate::Batch).
pub trait Input: Relation {}

/// A relation whose rows are derived by a pure function of the key and the rows it reads.
pub trait Rule: Relation {
    /// Returns the row of `key`, or `None` if there is none.
    ///
    /// Everything that the row depends on, apart from the key, must be read through `cx`: a change of these reads runs
    /// the rule again. A panic is contained; see [`Delta::panics`](crate::Delta::panics).
    fn derive(cx: &Reads<'_>, key: &Self::Key) -> Option<Self::Row>;
}

/// A relation that groups the keys of another one. Its row is the sorted list of the keys of [`Index::Of`] whose rows
/// name the index key. A key that no row names has no row.
pub trait Index: Relation<Row = Members<<<Self as Index>::Of as Relation>::Key>> {
    /// The relation that is grouped: an input, an index or a world rule.
    type Of: Relation;
    /// Returns the index keys of this row; duplicates count once. It must be pure. If it panics, the row is not indexed
    /// and the panic is reported.
    fn keys(key: &<Self::Of as Relation>::Key, row: &<Self::Of as Relation>::Row) -> Vec<Self::Key>;
}
