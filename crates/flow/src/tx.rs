//! The state of a running commit.

use std::any::TypeId;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::batch::Writes;
use crate::delta::{Changed, Panic, Runs};
use crate::erased::{AnyKey, SharedRow};
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
    pub(crate) inputs: FxHashMap<TypeId, Writes>,
    /// The dirty cells of each relation; may contain duplicates.
    pub(crate) dirty: Vec<Vec<u32>>,
    /// The changes of each relation, by key once it is settled.
    pub(crate) changes: Vec<Vec<Changed>>,
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
    pub(crate) fn new(relations: usize, inputs: FxHashMap<TypeId, Writes>) -> Self {
        Self {
            inputs,
            dirty: vec![Vec::new(); relations],
            changes: (0..relations).map(|_| Vec::new()).collect(),
            runs: Work::default(),
            panics: Vec::new(),
            orphans: Vec::new(),
            freed: FxHashSet::default(),
            stand_ins: Vec::new(),
        }
    }

    /// Records a changed row.
    pub(crate) fn changed(
        &mut self,
        relation: usize,
        cell: u32,
        key: Box<dyn AnyKey>,
        before: Option<SharedRow>,
        after: Option<SharedRow>,
    ) {
        self.changes[relation].push(Changed { cell: CellId(cell), key, before, after });
        self.runs.of(relation).changed += 1;
    }

    /// Records a panic of a rule.
    pub(crate) fn panicked(&mut self, relation: usize, rule: &'static str, key: &dyn AnyKey, message: String) {
        self.runs.of(relation).panics += 1;
        self.panics.push(Panic { rule, key: shown(&key, 200), message });
    }

    /// Replaces stand-ins of fresh cells by their numbers.
    pub(crate) fn resolve_stand_ins(&self, cells: &mut [u32]) {
        for cell in cells.iter_mut().filter(|cell| **cell >= FRESH) {
            *cell = self.stand_ins[(*cell - FRESH) as usize];
        }
    }
}
