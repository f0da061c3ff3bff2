//! Objects that several sources may define, and the object that is in effect.
//!
//! ```text
//!  source ─► BySource (key, rank) ─► Ranks (key) ─┐
//!                           SelectedNamespaces ───┴─► table (key): the object in effect
//! ```
//!
//! If several objects have the same key, the one of the lowest rank is in effect, if its namespace is selected
//! (`MeshConfig.discoverySelectors`). A deletion puts the object of the next rank into effect.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use config::{AnyObject, ChangeSet, Kind, ObjectKey};
use flow::{Batch, Builder, Delta, Engine, Index, Input, Members, Reads, Relation, Rule};
use model::service::{ObjectId, SourceId};

/// The rank of a source. Of sources that define the same object, the one with the lowest rank takes precedence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Rank(pub u16);

/// A cluster (empty for the configuration cluster) and the name of a cluster-scoped object.
pub type ClusterName = (Arc<str>, Arc<str>);

/// Makes a row that keeps parts of the row before; `None` if it keeps none.
pub type Keeping<R> = fn(&R, &R) -> Option<R>;

/// A relation with the objects of some kinds that are in effect.
pub trait Table: Rule<Key: TableKey, Row: Clone> {
    /// The label of the objects of all sources.
    const BY_SOURCE: &'static str;
    /// The label of the sources of an object.
    const RANKS: &'static str;
    /// The part that an object keeps of the one that it replaces, if any. It becomes part of the input row, so that derivation
    /// does not depend on earlier commits.
    const KEEPING: Option<Keeping<Self::Row>> = None;

    /// The row of an object; `None` if the table does not have objects of its kind.
    fn row(object: AnyObject) -> Option<Self::Row>;

    /// The object of a row.
    fn object(row: &Self::Row) -> AnyObject;
}

/// The key of a table.
pub trait TableKey: flow::Key {
    /// The key of an object.
    fn of(key: &ObjectKey) -> Self;

    /// Cluster and namespace of the object. `None` for cluster-scoped objects, which are always selected.
    fn namespace(&self) -> Option<ClusterName>;
}

/// The objects of a table with their sources.
pub struct BySource<T>(PhantomData<T>);

impl<T: Table> Relation for BySource<T> {
    const NAME: &'static str = T::BY_SOURCE;
    type Key = (T::Key, Rank);
    type Row = T::Row;
}

impl<T: Table> Input for BySource<T> {}

/// The sources of an object, lowest rank first.
pub struct Ranks<T>(PhantomData<T>);

impl<T: Table> Relation for Ranks<T> {
    const NAME: &'static str = T::RANKS;
    type Key = T::Key;
    type Row = Members<(T::Key, Rank)>;
}

impl<T: Table> Index for Ranks<T> {
    type Of = BySource<T>;

    fn keys((key, _): &(T::Key, Rank), _: &T::Row) -> Vec<T::Key> {
        vec![key.clone()]
    }
}

/// The row that is in effect: the implementation of [`Rule::derive`] of every table. `Selected` are the namespaces whose
/// objects take effect.
pub(crate) fn in_effect<T: Table, Selected: Relation<Key = ClusterName>>(
    cx: &Reads<'_>,
    key: &T::Key,
) -> Option<T::Row> {
    if let Some(namespace) = key.namespace() {
        cx.get::<Selected>(&namespace)?;
    }
    let ranks = cx.get::<Ranks<T>>(key)?;
    cx.get::<BySource<T>>(ranks.first()?).map(|row| (*row).clone())
}

/// Registers the relations of a table.
pub(crate) fn register<T: Table>(b: &mut Builder) {
    b.input::<BySource<T>>();
    b.index::<Ranks<T>>();
    b.world::<T, Ranks<T>>();
}

/// An object that does not take effect, because a source with a lower rank defines it, too.
#[derive(Clone, Debug)]
pub struct Overridden {
    /// The object.
    pub object: AnyObject,
    /// The rank of its source.
    pub rank: Rank,
    /// The rank of the source that takes precedence.
    pub by: Rank,
}

/// The operations of a table, without its type.
#[derive(Clone, Copy)]
pub(crate) struct Operations {
    /// The label of the table.
    pub(crate) name: &'static str,
    /// The label of the sources of its objects.
    pub(crate) ranks: &'static str,
    /// Adds or replaces an object. The engine has the objects before.
    pub(crate) put: fn(Option<&Engine>, &mut Batch, Rank, AnyObject),
    pub(crate) remove: fn(&mut Batch, Rank, &ObjectKey),
    pub(crate) remove_others: fn(&Engine, &mut Batch, (Rank, &str), &ChangeSet),
    pub(crate) changes: fn(&Delta, &mut ChangeSet, &mut BTreeMap<Kind, u64>),
    pub(crate) overridden: fn(&Engine, &Delta, &mut Vec<Overridden>),
}

impl Operations {
    pub(crate) fn of<T: Table>() -> Operations {
        Operations {
            name: T::NAME,
            ranks: T::RANKS,
            put: |engine, batch, rank, object| {
                let key = (T::Key::of(&object.key()), rank);
                let Some(row) = T::row(object) else { return };
                let kept = T::KEEPING.zip(engine).and_then(|(keeping, engine)| {
                    let before = engine.get::<BySource<T>>(&key)?;
                    keeping(&row, &before)
                });
                batch.put::<BySource<T>>(key, kept.unwrap_or(row));
            },
            remove: |batch, rank, key| batch.remove::<BySource<T>>((T::Key::of(key), rank)),
            remove_others: remove_others::<T>,
            changes: |delta, to, added| {
                for change in delta.changes::<T>() {
                    match (&change.before, &change.after) {
                        (before, Some(row)) => {
                            let object = T::object(row);
                            if before.is_none() {
                                *added.entry(object.kind()).or_default() += 1;
                            }
                            to.upsert(object);
                        }
                        (Some(row), None) => to.delete(T::object(row).key()),
                        (None, None) => {}
                    }
                }
            },
            overridden: overridden::<T>,
        }
    }
}

fn remove_others<T: Table>(engine: &Engine, batch: &mut Batch, (rank, cluster): (Rank, &str), keep: &ChangeSet) {
    for (key, row) in engine.iter::<BySource<T>>().filter(|(key, _)| key.1 == rank) {
        let object = T::object(row).key();
        if *object.cluster == *cluster && !keep.upserts.contains_key(&object) {
            batch.remove::<BySource<T>>(key.clone());
        }
    }
}

fn overridden<T: Table>(engine: &Engine, delta: &Delta, to: &mut Vec<Overridden>) {
    for change in delta.changes::<Ranks<T>>() {
        let mut ranks = change.after.iter().flat_map(|ranks| ranks.iter());
        let Some((_, by)) = ranks.next() else { continue };
        let before: BTreeSet<_> = change.before.iter().flat_map(|ranks| ranks.iter().skip(1)).collect();
        for key in ranks.filter(|key| !before.contains(key)) {
            to.extend(engine.get::<BySource<T>>(key).map(|row| Overridden {
                object: T::object(&row),
                rank: key.1,
                by: *by,
            }));
        }
    }
}

impl TableKey for () {
    fn of(_: &ObjectKey) {}

    fn namespace(&self) -> Option<ClusterName> {
        None
    }
}

impl TableKey for Arc<str> {
    fn of(key: &ObjectKey) -> Arc<str> {
        key.name.clone()
    }

    fn namespace(&self) -> Option<ClusterName> {
        None
    }
}

impl TableKey for ClusterName {
    fn of(key: &ObjectKey) -> ClusterName {
        (key.cluster.clone(), key.name.clone())
    }

    fn namespace(&self) -> Option<ClusterName> {
        None
    }
}

impl TableKey for ObjectId {
    fn of(key: &ObjectKey) -> ObjectId {
        ObjectId { namespace: key.namespace.clone(), name: key.name.clone() }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((Arc::default(), self.namespace.clone()))
    }
}

impl TableKey for SourceId {
    fn of(key: &ObjectKey) -> SourceId {
        SourceId { cluster: key.cluster.clone(), id: ObjectId::of(key) }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for ObjectKey {
    fn of(key: &ObjectKey) -> ObjectKey {
        key.clone()
    }

    fn namespace(&self) -> Option<ClusterName> {
        let namespaced = self.kind.is_namespaced();
        namespaced.then(|| (self.cluster.clone(), self.namespace.clone()))
    }
}
