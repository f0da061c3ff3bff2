//! What a user of the engine declares: relations (keyed tables), and how their rows come about.

use std::fmt::Debug;
use std::hash::Hash;

use crate::{Members, Reads};

/// What names a cell of a relation. Implemented for every type that fits.
///
/// `Ord` decides the order in which rows are shown and applied; none of the traits may panic.
pub trait Key: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Ord + Debug + Send + Sync + 'static> Key for T {}

/// What a cell holds. Implemented for every type that fits.
///
/// Equality is what stops a change: a row that comes out equal to the one before reaches no reader.
pub trait Row: PartialEq + Debug + Send + Sync + 'static {}

impl<T: PartialEq + Debug + Send + Sync + 'static> Row for T {}

/// A keyed table. The implementing type is only a name and holds nothing.
pub trait Relation: 'static {
    /// The relation's name in errors, in [`Why`](crate::Why) and in [`Stats`](crate::Stats).
    const NAME: &'static str;
    /// What names a row.
    type Key: Key;
    /// What a row is.
    type Row: Row;
}

/// A relation whose rows are committed from outside, see [`Batch`](crate::Batch).
pub trait Input: Relation {}

/// A relation whose rows are derived: a pure function of the key and of what it reads.
pub trait Rule: Relation {
    /// The row of `key`, or `None` if there is none.
    ///
    /// Everything that the row depends on, apart from the key, must be read through `cx`: those reads are the list of
    /// what makes it run again. A panic is contained, see [`Delta::panics`](crate::Delta::panics).
    fn derive(cx: &Reads<'_>, key: &Self::Key) -> Option<Self::Row>;
}

/// A relation that groups the keys of another one. Its row is the sorted list of the keys of [`Index::Of`] whose rows
/// name the index key; a key that no row names has no row.
pub trait Index: Relation<Row = Members<<<Self as Index>::Of as Relation>::Key>> {
    /// The relation that is grouped: an input, an index or a world rule.
    type Of: Relation;
    /// The index keys under which this row is found; repeated keys count once. It must be pure. If it panics, the row
    /// is found nowhere, and the panic is reported.
    fn keys(key: &<Self::Of as Relation>::Key, row: &<Self::Of as Relation>::Row) -> Vec<Self::Key>;
}
