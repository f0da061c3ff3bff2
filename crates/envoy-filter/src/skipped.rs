//! The patches of an EnvoyFilter that are left out of served resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Kind, ObjectKey};
use flow::{CellId, Delta, Engine, Relation, Rule};
use model::audience::{FilterRef, ResourceKey};
use model::service::ObjectId;

use crate::error::PatchError;
use crate::{
    Left, PatchId, Patched, PatchedCatalogue, PatchedClusterCatalogue, PatchedClusters, PatchedHostCatalogue,
    PatchedHostList, PatchedListenerCatalogue, PatchedListeners, PatchedRouteConfigs, PatchedRouteShells,
    PatchedVirtualHostResources, patch_ids,
};

/// A patch that is left out of some or all resources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmade {
    /// The index of the patch in the EnvoyFilter.
    pub index: u16,
    /// The number of resources that it is left out of; 0: it matches nothing that a connected proxy has.
    pub resources: usize,
    /// One of them, the first by name.
    pub resource: Arc<str>,
    /// The reason for that one.
    pub why: Arc<str>,
}

/// The outcome of one patch so far.
#[derive(Default)]
struct PatchState {
    applied: bool,
    /// The number of resources that it was left out of.
    count: usize,
    /// The first of them by name, and the reason.
    first: Option<(Arc<str>, Arc<str>)>,
}

/// The outcome of the patches of one EnvoyFilter so far.
struct PatchStates<'a> {
    filter: &'a ObjectId,
    of: BTreeMap<u16, PatchState>,
}

/// The patches of an EnvoyFilter that are left out of some or all of these cells, which are all that it can change if
/// `complete`.
pub fn unmade(engine: &Engine, filter: &ObjectId, cells: &[CellId], complete: bool) -> Vec<Unmade> {
    let mut states = PatchStates { filter, of: BTreeMap::new() };
    for cell in cells {
        states.add::<PatchedClusters>(engine, *cell, |key| &key.filters, PatchStates::resource);
        states.add::<PatchedListeners>(engine, *cell, |key| &key.filters, PatchStates::resource);
        states.add::<PatchedRouteConfigs>(engine, *cell, |(audience, _)| &audience.filters, PatchStates::resource);
        states.add::<PatchedRouteShells>(engine, *cell, |(audience, _)| &audience.filters, PatchStates::resource);
        states.add::<PatchedVirtualHostResources>(engine, *cell, |(_, host)| &host.filters, PatchStates::resource);
        states.add::<PatchedHostCatalogue>(engine, *cell, |(audience, _)| audience.filters(), PatchStates::hosts);
        states.add_catalogue::<PatchedClusterCatalogue>(engine, *cell);
        states.add_catalogue::<PatchedListenerCatalogue>(engine, *cell);
    }
    states.into_report(complete)
}

impl PatchStates<'_> {
    /// Adds the outcome of patches in a cell, if it is one of this relation.
    fn add<R: Rule>(
        &mut self,
        engine: &Engine,
        cell: CellId,
        filters: impl Fn(&R::Key) -> &[FilterRef],
        add: impl Fn(&mut Self, &[FilterRef], &R::Row),
    ) {
        if let (Some(key), Some(row)) = (engine.key::<R>(cell), engine.row::<R>(cell)) {
            add(self, filters(&key), &row);
        }
    }

    /// Adds the outcome of patches in a cell, if it is one of this relation of catalogues.
    fn add_catalogue<R: Rule<Row = PatchedCatalogue>>(&mut self, engine: &Engine, cell: CellId) {
        if let Some(row) = engine.row::<R>(cell) {
            self.catalogue(&row);
        }
    }

    fn state(&mut self, patch: &PatchId) -> &mut PatchState {
        self.of.entry(patch.index).or_default()
    }

    fn own<'f>(&self, filters: &'f [FilterRef]) -> impl Iterator<Item = PatchId> + use<'f> {
        let own = filters.iter().position(|filter| filter.id == *self.filter);
        patch_ids(own.map(|at| &filters[at..=at]).unwrap_or_default())
    }

    fn resource(&mut self, filters: &[FilterRef], row: &Patched) {
        self.left(filters, row.resource.name(), &row.left);
    }

    fn hosts(&mut self, filters: &[FilterRef], row: &PatchedHostList) {
        self.left(filters, &row.table, &row.left);
    }

    fn left(&mut self, filters: &[FilterRef], name: &Arc<str>, left: &[Left]) {
        for patch in self.own(filters) {
            match left.iter().find(|left| left.patch == patch) {
                None => self.state(&patch).applied = true,
                Some(Left { why: Some(why), .. }) => self.state(&patch).skip(1, name, why),
                Some(Left { why: None, .. }) => drop(self.state(&patch)),
            }
        }
    }

    fn catalogue(&mut self, row: &PatchedCatalogue) {
        let entries = row.catalogue.entries.iter();
        let added: BTreeSet<u16> = entries
            .filter_map(|(_, key)| match key {
                ResourceKey::Added(id, index) if id == self.filter => Some(*index),
                _ => None,
            })
            .collect();
        for patch in self.own(&row.patches) {
            let does = added.contains(&patch.index) || row.removed.contains(&patch);
            self.state(&patch).applied |= does;
            if let Some((_, name)) = row.taken.iter().find(|(taken, _)| *taken == patch) {
                self.state(&patch).skip(1, name, &Arc::from("another resource has this name"));
            }
        }
        for (patch, (count, name)) in row.excessive.iter().filter(|(patch, _)| patch.filter == *self.filter) {
            self.state(patch).skip(*count, name, &PatchError::TooMuchForMany.to_string().into());
        }
    }

    /// Reports patches. `complete`: all resources were examined.
    fn into_report(self, complete: bool) -> Vec<Unmade> {
        let unmade = self.of.into_iter().filter_map(|(index, state)| {
            if state.first.is_none() && (state.applied || !complete) {
                return None;
            }
            let (resource, why) = state.first.unwrap_or_default();
            Some(Unmade { index, resources: state.count, resource, why })
        });
        unmade.collect()
    }
}

impl PatchState {
    /// Adds resources that the patch was left out of: their number, and the first by name.
    fn skip(&mut self, count: usize, resource: &Arc<str>, why: &Arc<str>) {
        self.count += count;
        if self.first.as_ref().is_none_or(|(name, _)| resource < name) {
            self.first = Some((resource.clone(), why.clone()));
        }
    }
}

/// EnvoyFilters of which a commit changed the patches that are left out.
pub fn changed_patches(delta: &Delta) -> Vec<ObjectKey> {
    let mut found = BTreeSet::new();
    let patched = |row: &Patched| row.left.clone();
    add::<PatchedClusters>(delta, &mut found, patched);
    add::<PatchedListeners>(delta, &mut found, patched);
    add::<PatchedRouteConfigs>(delta, &mut found, patched);
    add::<PatchedRouteShells>(delta, &mut found, patched);
    add::<PatchedVirtualHostResources>(delta, &mut found, patched);
    add::<PatchedHostCatalogue>(delta, &mut found, |row| row.left.clone());
    add_listed::<PatchedClusterCatalogue>(delta, &mut found);
    add_listed::<PatchedListenerCatalogue>(delta, &mut found);
    let keys = found.into_iter().map(|id| ObjectKey::new(Kind::EnvoyFilter, &*id.namespace, &*id.name));
    keys.collect()
}

fn add<R: Relation>(delta: &Delta, to: &mut BTreeSet<ObjectId>, left: impl Fn(&R::Row) -> Box<[Left]>) {
    for change in delta.changes::<R>() {
        let left = |row: &Option<Arc<R::Row>>| row.as_ref().map(|row| left(row)).unwrap_or_default();
        let (before, after) = (left(&change.before), left(&change.after));
        if before != after {
            to.extend(before.iter().chain(&after).map(|left| left.patch.filter.clone()));
        }
    }
}

fn add_listed<R: Relation<Row = PatchedCatalogue>>(delta: &Delta, to: &mut BTreeSet<ObjectId>) {
    for change in delta.changes::<R>() {
        let excessive = |row: &Option<Arc<PatchedCatalogue>>| row.as_ref().map(|row| row.excessive.clone());
        let (before, after) =
            (excessive(&change.before).unwrap_or_default(), excessive(&change.after).unwrap_or_default());
        if before != after {
            to.extend(before.keys().chain(after.keys()).map(|patch| patch.filter.clone()));
        }
    }
}
