//! What became of an EnvoyFilter's patches in what is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{Kind, ObjectKey};
use envoy_filter::{
    Left, PatchId, Patched, PatchedCatalogue, PatchedClusterCatalogue, PatchedClusters, PatchedListenerCatalogue,
    PatchedListeners, PatchedRouteConfigs, patch_ids,
};
use flow::{CellId, Delta, Relation, Rule};
use model::audience::{FilterRef, ResourceKey};
use model::service::ObjectId;

use crate::World;

/// A patch that is not made, or not everywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unmade {
    /// Which of the EnvoyFilter's patches.
    pub index: u16,
    /// How many resources it is left out of; 0: nothing that a connected proxy has is what it matches.
    pub resources: usize,
    /// One of them, the first by name.
    pub resource: Arc<str>,
    /// Why it is left out of that one.
    pub why: Arc<str>,
}

/// What became of one patch so far.
#[derive(Default)]
struct Fate {
    made: bool,
    /// How many resources it was left out of.
    count: usize,
    /// The first of them by name, and why.
    first: Option<(Arc<str>, Arc<str>)>,
}

/// What became of the patches of one EnvoyFilter so far.
struct Fates<'a> {
    filter: &'a ObjectId,
    of: BTreeMap<u16, Fate>,
}

impl World {
    /// What became of an EnvoyFilter's patches in these cells, where that is something else than being made.
    pub(crate) fn unmade(&self, filter: &ObjectId, cells: &[CellId], complete: bool) -> Vec<Unmade> {
        let mut fates = Fates {
            filter,
            of: BTreeMap::new(),
        };
        for cell in cells {
            self.resource::<PatchedClusters>(*cell, &mut fates, |key| &key.filters);
            self.resource::<PatchedListeners>(*cell, &mut fates, |key| &key.filters);
            self.resource::<PatchedRouteConfigs>(*cell, &mut fates, |(audience, _)| &audience.filters);
            self.catalogue::<PatchedClusterCatalogue>(*cell, &mut fates, |audience| &audience.filters);
            self.catalogue::<PatchedListenerCatalogue>(*cell, &mut fates, |audience| &audience.filters);
        }
        fates.told(complete)
    }

    fn resource<R: Rule<Row = Patched>>(
        &self,
        cell: CellId,
        fates: &mut Fates<'_>,
        filters: impl Fn(&R::Key) -> &[FilterRef],
    ) {
        if let (Some(key), Some(row)) = (self.engine.key::<R>(cell), self.engine.row::<R>(cell)) {
            fates.resource(filters(&key), &row);
        }
    }

    fn catalogue<R: Rule<Row = PatchedCatalogue>>(
        &self,
        cell: CellId,
        fates: &mut Fates<'_>,
        filters: impl Fn(&R::Key) -> &[FilterRef],
    ) {
        if let (Some(key), Some(row)) = (self.engine.key::<R>(cell), self.engine.row::<R>(cell)) {
            fates.catalogue(filters(&key), &row);
        }
    }
}

impl Fates<'_> {
    fn fate(&mut self, patch: &PatchId) -> &mut Fate {
        self.of.entry(patch.index).or_default()
    }

    fn own<'f>(&self, filters: &'f [FilterRef]) -> impl Iterator<Item = PatchId> + use<'f> {
        let own = filters.iter().position(|filter| filter.id == *self.filter);
        patch_ids(own.map(|at| &filters[at..=at]).unwrap_or_default())
    }

    fn resource(&mut self, filters: &[FilterRef], row: &Patched) {
        for patch in self.own(filters) {
            match row.left.iter().find(|left| left.patch == patch) {
                None => self.fate(&patch).made = true,
                Some(Left { why: Some(why), .. }) => self.fate(&patch).skip(row.resource.name(), why),
                Some(Left { why: None, .. }) => drop(self.fate(&patch)),
            }
        }
    }

    fn catalogue(&mut self, filters: &[FilterRef], row: &PatchedCatalogue) {
        let entries = row.catalogue.entries.iter();
        let added: BTreeSet<u16> = entries
            .filter_map(|(_, key)| match key {
                ResourceKey::Added(id, index) if id == self.filter => Some(*index),
                _ => None,
            })
            .collect();
        for patch in self.own(filters) {
            let does = added.contains(&patch.index) || row.removed.contains(&patch);
            self.fate(&patch).made |= does;
            if let Some((_, name)) = row.taken.iter().find(|(taken, _)| *taken == patch) {
                self.fate(&patch)
                    .skip(name, &Arc::from("another resource has this name"));
            }
        }
    }

    /// `complete`: what was not looked at does not matter.
    fn told(self, complete: bool) -> Vec<Unmade> {
        let unmade = self.of.into_iter().filter_map(|(index, fate)| {
            if fate.first.is_none() && (fate.made || !complete) {
                return None;
            }
            let (resource, why) = fate.first.unwrap_or_default();
            Some(Unmade {
                index,
                resources: fate.count,
                resource,
                why,
            })
        });
        unmade.collect()
    }
}

impl Fate {
    fn skip(&mut self, resource: &Arc<str>, why: &Arc<str>) {
        self.count += 1;
        if self.first.as_ref().is_none_or(|(name, _)| resource < name) {
            self.first = Some((resource.clone(), why.clone()));
        }
    }
}

/// EnvoyFilters of whose patches something else became by a commit.
pub(crate) fn of(delta: &Delta) -> Vec<ObjectKey> {
    let mut found = BTreeSet::new();
    add::<PatchedClusters>(delta, &mut found);
    add::<PatchedListeners>(delta, &mut found);
    add::<PatchedRouteConfigs>(delta, &mut found);
    let keys = found
        .into_iter()
        .map(|id| ObjectKey::new(Kind::EnvoyFilter, &*id.namespace, &*id.name));
    keys.collect()
}

fn add<R: Relation<Row = Patched>>(delta: &Delta, to: &mut BTreeSet<ObjectId>) {
    for change in delta.changes::<R>() {
        let left = |row: &Option<Arc<Patched>>| row.clone().map(|row| row.left.clone()).unwrap_or_default();
        let (before, after) = (left(&change.before), left(&change.after));
        if before != after {
            to.extend(before.iter().chain(&after).map(|left| left.patch.filter.clone()));
        }
    }
}
