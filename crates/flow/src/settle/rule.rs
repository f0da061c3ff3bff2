//! Settles rules: world rules, derived for each key of another relation, and views, derived on demand.

use crate::core::Core;
use crate::run::{Derived, Outcome};
use crate::settle::{adopt_all, finish};
use crate::table::Derive;
use crate::tx::Tx;
use crate::{Relation, Rule};

/// Adds and removes the cells of a world rule as keys of `Over` come and go, then derives new and dirty cells.
pub(crate) fn settle_world<R: Rule, Over: Relation<Key = R::Key>>(core: &mut Core, tx: &mut Tx, relation: usize) {
    let Some(base) = core.schema.relations[relation].base else {
        return;
    };
    let changes = tx.take_changes::<Over>(base);
    for change in &changes {
        match (&change.before, &change.after) {
            (None, Some(_)) => {
                let cell = core.find_or_add::<R>(relation, &change.key);
                core.graph.node_mut(cell).held = true;
                tx.dirty[relation].push(cell);
            }
            (Some(_), None) => drop_cell::<R>(core, tx, relation, &change.key),
            _ => {}
        }
    }
    tx.return_changes(base, changes);
    derive_marked::<R>(core, tx, relation, R::derive);
}

/// Derives the dirty cells of a view.
pub(crate) fn settle_view<V: Rule>(core: &mut Core, tx: &mut Tx, relation: usize) {
    derive_marked::<V>(core, tx, relation, V::derive);
}

/// The cell of `Over` that a world rule's cell exists for.
pub(crate) fn over_cell<R: Relation, Over: Relation<Key = R::Key>>(core: &Core, cell: u32, base: usize) -> Vec<u32> {
    let slot = core.typed::<R>().and_then(|(_, table)| table.slot(&core.graph, cell));
    let over = slot.and_then(|slot| core.table::<Over>(base).find(&core.graph, &slot.key));
    over.into_iter().collect()
}

/// Drops the row of a cell. The cell remains as an absent key if it is read.
fn drop_cell<R: Rule>(core: &mut Core, tx: &mut Tx, relation: usize, key: &R::Key) {
    let table = core.table::<R>(relation);
    let Some(cell) = table.find(&core.graph, key) else {
        return;
    };
    let present = table.slot(&core.graph, cell).is_some_and(|slot| slot.row.is_some());
    core.clear_reads(tx, relation, cell);
    core.set_poisoned(relation, cell, false);
    core.graph.node_mut(cell).held = false;
    tx.orphans.push(cell);
    if present {
        core.set_row::<R>(tx, relation, cell, None);
    }
}

fn derive_marked<R: Relation>(core: &mut Core, tx: &mut Tx, relation: usize, derive: Derive<R>) {
    let mut cells = std::mem::take(&mut tx.dirty[relation]);
    cells.sort_unstable();
    cells.dedup();
    // A cell that was just dropped may have been marked dirty before.
    let world = core.table::<R>(relation).on_demand.is_none();
    cells.retain(|cell| !world || core.graph.node(*cell).held);
    core.sort_cells(relation, &mut cells);
    let results = core.run_all::<R>(relation, derive, &cells);
    adopt_all(core, tx);
    for (cell, derived) in results {
        apply(core, tx, relation, cell, derived);
    }
    finish::<R>(core, tx, relation);
}

fn apply<R: Relation>(core: &mut Core, tx: &mut Tx, relation: usize, cell: u32, derived: Derived<R>) {
    core.set_reads(tx, relation, cell, derived.reads);
    tx.runs.of(relation).runs += 1;
    let panicked = matches!(derived.outcome, Outcome::Panicked(_));
    core.set_poisoned(relation, cell, panicked);
    match derived.outcome {
        Outcome::Same => tx.runs.of(relation).cut_offs += 1,
        Outcome::Row(row) => core.set_row::<R>(tx, relation, cell, row),
        Outcome::Panicked(message) => {
            if let Some(slot) = core.table::<R>(relation).slot(&core.graph, cell) {
                tx.panicked(relation, R::NAME, &slot.key, message);
            }
        }
    }
}
