//! Objects that several sources may define, and the object that is in effect.
//!
//! ```text
//!  source ─► BySource (key, rank) ─► Ranks (key) ─┐
//!                           SelectedNamespaces ───┴─► table (key): the object in effect
//! ```
//!
//! Of objects with the same key, the one of the lowest rank is in effect, if its namespace is selected
//! (`MeshConfig.discoverySelectors`). A deletion puts the object of the next rank into effect.

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use config::{AnyObject, ChangeSet, Kind, ObjectKey};
use flow::{Batch, Builder, Delta, Engine, Index, Input, Members, Reads, Relation, Rule};
use model::service::{ObjectId, SourceId};

use crate::inputs::{ClusterName, CredentialKey, Mesh, Namespaces, RoutingKey, ServiceObjectKey, WorkloadObjectKey};

/// Label that every namespace has, with its name.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The rank of a source. Of sources that define the same object, the one with the lowest rank takes precedence.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Rank(pub u16);

/// A relation with the objects of some kinds that are in effect.
pub trait Table: Rule<Key: TableKey, Row: Clone> {
    /// The label of the objects of all sources.
    const BY_SOURCE: &'static str;
    /// The label of the sources of an object.
    const RANKS: &'static str;

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

flow::rule! {
    /// Namespaces that `MeshConfig.discoverySelectors` selects: all if there are no selectors.
    pub SelectedNamespaces: ClusterName => () = "selected namespaces", derive_selected_namespace;
}

fn derive_selected_namespace(cx: &Reads<'_>, namespace: &ClusterName) -> Option<()> {
    let mesh = cx.get::<Mesh>(&())?;
    let selectors = &mesh.config.discovery_selectors;
    if selectors.is_empty() {
        return Some(());
    }
    let object = cx.get::<Namespaces>(namespace);
    let mut labels = object.map(|object| object.meta.labels.clone()).unwrap_or_default();
    labels.insert(NAME_LABEL.into(), namespace.1.clone());
    selectors.iter().any(|selector| selector.matches(&labels)).then_some(())
}

/// The row that is in effect: the implementation of [`Rule::derive`] of every table.
pub(crate) fn in_effect<T: Table>(cx: &Reads<'_>, key: &T::Key) -> Option<T::Row> {
    if let Some(namespace) = key.namespace() {
        cx.get::<SelectedNamespaces>(&namespace)?;
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
    name: &'static str,
    /// The label of the sources of its objects.
    ranks: &'static str,
    pub(crate) put: fn(&mut Batch, Rank, AnyObject),
    pub(crate) remove: fn(&mut Batch, Rank, &ObjectKey),
    remove_others: fn(&Engine, &mut Batch, (Rank, &str), &ChangeSet),
    changes: fn(&Delta, &mut ChangeSet),
    overridden: fn(&Engine, &Delta, &mut Vec<Overridden>),
}

impl Operations {
    pub(crate) fn of<T: Table>() -> Operations {
        Operations {
            name: T::NAME,
            ranks: T::RANKS,
            put: |batch, rank, object| {
                let key = T::Key::of(&object.key());
                if let Some(row) = T::row(object) {
                    batch.put::<BySource<T>>((key, rank), row);
                }
            },
            remove: |batch, rank, key| batch.remove::<BySource<T>>((T::Key::of(key), rank)),
            remove_others: remove_others::<T>,
            changes: |delta, to| {
                for change in delta.changes::<T>() {
                    match (&change.before, &change.after) {
                        (_, Some(row)) => to.upsert(T::object(row)),
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
        let Some([(_, by), others @ ..]) = change.after.as_deref().map(|ranks| &**ranks) else {
            continue;
        };
        let before: BTreeSet<_> = change.before.iter().flat_map(|ranks| ranks.iter().skip(1)).collect();
        for key in others.iter().filter(|key| !before.contains(key)) {
            to.extend(engine.get::<BySource<T>>(key).map(|row| Overridden {
                object: T::object(&row),
                rank: key.1,
                by: *by,
            }));
        }
    }
}

/// Adds the changes of a source to a batch.
pub fn apply(batch: &mut Batch, rank: Rank, change: ChangeSet) {
    for key in &change.deletes {
        (crate::inputs::operations(key.kind).remove)(batch, rank, key);
    }
    for object in change.upserts.into_values() {
        (crate::inputs::operations(object.kind()).put)(batch, rank, object);
    }
}

/// Adds an object of the source with the lowest rank.
pub fn put(batch: &mut Batch, object: AnyObject) {
    (crate::inputs::operations(object.kind()).put)(batch, Rank(0), object);
}

/// Removes an object of the source with the lowest rank.
pub fn remove(batch: &mut Batch, key: &ObjectKey) {
    (crate::inputs::operations(key.kind).remove)(batch, Rank(0), key);
}

/// Removes the objects that a source has in a cluster, except those in `keep`.
pub fn remove_absent(engine: &Engine, batch: &mut Batch, (rank, cluster): (Rank, &str), keep: &ChangeSet) {
    for table in crate::inputs::TABLES {
        (table().remove_others)(engine, batch, (rank, cluster), keep);
    }
}

/// The objects that took effect, changed, or ceased to be in effect in a commit.
pub fn changes(delta: &Delta) -> ChangeSet {
    let mut all = ChangeSet::default();
    crate::inputs::TABLES
        .iter()
        .for_each(|table| (table().changes)(delta, &mut all));
    all
}

/// The objects that were overridden by another source in a commit.
pub fn newly_overridden(engine: &Engine, delta: &Delta) -> Vec<Overridden> {
    let mut all = Vec::new();
    crate::inputs::TABLES
        .iter()
        .for_each(|table| (table().overridden)(engine, delta, &mut all));
    all
}

/// Whether a relation only selects the objects in effect, and derives nothing from them.
pub fn is_table(relation: &str) -> bool {
    [SelectedNamespaces::NAME, Mesh::NAME].contains(&relation)
        || crate::inputs::TABLES
            .iter()
            .map(|table| table())
            .any(|table| table.name == relation || table.ranks == relation)
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
        ObjectId {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((Arc::default(), self.namespace.clone()))
    }
}

impl TableKey for SourceId {
    fn of(key: &ObjectKey) -> SourceId {
        SourceId {
            cluster: key.cluster.clone(),
            id: ObjectId::of(key),
        }
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

impl TableKey for ServiceObjectKey {
    fn of(key: &ObjectKey) -> ServiceObjectKey {
        use model::service::Registry;
        ServiceObjectKey {
            registry: match key.kind {
                Kind::ServiceEntry => Registry::ServiceEntry,
                Kind::ServiceImport => Registry::Import,
                _ => Registry::Kubernetes,
            },
            cluster: key.cluster.clone(),
            id: ObjectId::of(key),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for WorkloadObjectKey {
    fn of(key: &ObjectKey) -> WorkloadObjectKey {
        WorkloadObjectKey {
            pod: key.kind == Kind::Pod,
            cluster: key.cluster.clone(),
            id: ObjectId::of(key),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for CredentialKey {
    fn of(key: &ObjectKey) -> CredentialKey {
        CredentialKey {
            config_map: key.kind == Kind::ConfigMap,
            cluster: key.cluster.clone(),
            id: ObjectId::of(key),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((self.cluster.clone(), self.id.namespace.clone()))
    }
}

impl TableKey for RoutingKey {
    fn of(key: &ObjectKey) -> RoutingKey {
        let id = ObjectId::of(key);
        match key.kind {
            Kind::Gateway => RoutingKey::gateway(id),
            Kind::Ingress => RoutingKey::ingress(id),
            _ => RoutingKey::virtual_service(id),
        }
    }

    fn namespace(&self) -> Option<ClusterName> {
        Some((Arc::default(), self.id.namespace.clone()))
    }
}
