//! Objects of sources into and out of the tables of all kinds.

use std::collections::BTreeMap;

use config::{AnyObject, ChangeSet, Kind, ObjectKey};
use flow::{Batch, Delta, Engine, Relation as _};

use crate::inputs;
use crate::tables::{Overridden, Rank};

/// Adds the changes of a source to a batch for this engine.
pub fn apply(engine: &Engine, batch: &mut Batch, rank: Rank, change: ChangeSet) {
    for key in &change.deletes {
        (inputs::operations(key.kind).remove)(batch, rank, key);
    }
    for object in change.upserts.into_values() {
        (inputs::operations(object.kind()).put)(Some(engine), batch, rank, object);
    }
}

/// Adds an object of the source with the lowest rank.
pub fn put(batch: &mut Batch, object: AnyObject) {
    (inputs::operations(object.kind()).put)(None, batch, Rank(0), object);
}

/// Removes an object of the source with the lowest rank.
pub fn remove(batch: &mut Batch, key: &ObjectKey) {
    (inputs::operations(key.kind).remove)(batch, Rank(0), key);
}

/// Removes the objects that a source has in a cluster, except those in `keep`.
pub fn remove_absent(engine: &Engine, batch: &mut Batch, (rank, cluster): (Rank, &str), keep: &ChangeSet) {
    for table in inputs::TABLES {
        (table().remove_others)(engine, batch, (rank, cluster), keep);
    }
}

/// The objects that took effect, changed, or ceased to be in effect in a commit, and how many of each kind were not in
/// effect before.
pub fn changes(delta: &Delta) -> (ChangeSet, BTreeMap<Kind, u64>) {
    let (mut all, mut added) = (ChangeSet::default(), BTreeMap::new());
    inputs::TABLES.iter().for_each(|table| (table().changes)(delta, &mut all, &mut added));
    (all, added)
}

/// The objects that were overridden by another source in a commit.
pub fn newly_overridden(engine: &Engine, delta: &Delta) -> Vec<Overridden> {
    let mut all = Vec::new();
    inputs::TABLES.iter().for_each(|table| (table().overridden)(engine, delta, &mut all));
    all
}

/// Whether a relation only selects the objects in effect, and derives nothing from them.
pub fn is_table(relation: &str) -> bool {
    [inputs::SelectedNamespaces::NAME, inputs::Mesh::NAME].contains(&relation)
        || inputs::TABLES.iter().map(|table| table()).any(|table| table.name == relation || table.ranks == relation)
}
