//! The state of a running commit.

use std::any::{Any, TypeId};
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::Relation;
use crate::batch::AnyRows;
use crate::delta::{AnyChanges, Change, Panic, Runs};
use crate::graph::{CellId, FRESH};
use crate::show::shown;

/// The work done, for each relation with any.
#[derive(Default)]
pub(crate) struct Work(Vec<(usize, Runs)>);

impl Work {
    /// The work done for this relation. Relations are settled in order, so it is among the last entries.
    pub(crate) fn of(&mut self, relation: usize) -> &mut Runs {
        let at = self.0.iter().rposition(|(other, _)| *other == relation);
        let at = at.unwrap_or_else(|| {
            self.0.push((relation, Runs::default()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    /// Adds the work to the totals of each relation.
    pub(crate) fn add_to(&self, totals: &mut [Runs]) {
        for (relation, more) in &self.0 {
            let total = &mut totals[*relation];
            total.runs += more.runs;
            total.cut_offs += more.cut_offs;
            total.changed += more.changed;
            total.panics += more.panics;
        }
    }
}

/// A running commit or subscription.
pub(crate) struct Tx {
    /// The writes to inputs.
    pub(crate) inputs: FxHashMap<TypeId, Box<dyn AnyRows>>,
    /// The dirty cells of each relation; may contain duplicates.
    pub(crate) dirty: Vec<Vec<u32>>,
    /// The changes of each relation.
    pub(crate) changes: Vec<Option<Box<dyn AnyChanges>>>,
    pub(crate) runs: Work,
    pub(crate) panics: Vec<Panic>,
    /// Cells that may have lost the last thing that kept them alive.
    pub(crate) orphans: Vec<u32>,
    /// Cells that were removed.
    pub(crate) freed: FxHashSet<u32>,
    /// The cells of stand-ins, by the stand-in's number.
    pub(crate) stand_ins: Vec<u32>,
}

impl Tx {
    pub(crate) fn new(relations: usize, inputs: FxHashMap<TypeId, Box<dyn AnyRows>>) -> Self {
        Self {
            inputs,
            dirty: vec![Vec::new(); relations],
            changes: (0..relations).map(|_| None).collect(),
            runs: Work::default(),
            panics: Vec::new(),
            orphans: Vec::new(),
            freed: FxHashSet::default(),
            stand_ins: Vec::new(),
        }
    }

    /// Records a changed row.
    pub(crate) fn changed<R: Relation>(
        &mut self,
        relation: usize,
        cell: u32,
        key: R::Key,
        before: Option<Arc<R::Row>>,
        after: Option<Arc<R::Row>>,
    ) {
        let list = self.changes[relation].get_or_insert_with(|| Box::new(Vec::<Change<R>>::new()));
        let list: &mut dyn Any = &mut **list;
        if let Some(list) = list.downcast_mut::<Vec<Change<R>>>() {
            list.push(Change { cell: CellId(cell), key, before, after });
        }
        self.runs.of(relation).changed += 1;
    }

    /// Sorts the changes of a relation by key and returns them. Follow with [`Tx::return_changes`].
    pub(crate) fn take_changes<R: Relation>(&mut self, relation: usize) -> Vec<Change<R>> {
        let Some(list) = &mut self.changes[relation] else {
            return Vec::new();
        };
        let list: &mut dyn Any = &mut **list;
        list.downcast_mut::<Vec<Change<R>>>().map(std::mem::take).unwrap_or_default()
    }

    /// Puts back the changes taken by [`Tx::take_changes`].
    pub(crate) fn return_changes<R: Relation>(&mut self, relation: usize, changes: Vec<Change<R>>) {
        self.changes[relation] = (!changes.is_empty()).then(|| Box::new(changes) as Box<dyn AnyChanges>);
    }

    /// Records a panic of a rule.
    pub(crate) fn panicked(&mut self, relation: usize, rule: &'static str, key: &dyn std::fmt::Debug, message: String) {
        self.runs.of(relation).panics += 1;
        self.panics.push(Panic { rule, key: shown(key, 200), message });
    }

    /// Replaces stand-ins of fresh cells by their numbers.
    pub(crate) fn resolve_stand_ins(&self, cells: &mut [u32]) {
        for cell in cells.iter_mut().filter(|cell| **cell >= FRESH) {
            *cell = self.stand_ins[(*cell - FRESH) as usize];
        }
    }
}
