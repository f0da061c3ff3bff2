//! Settles rules: world rules, derived for each key of another relation, and views, derived on demand.

use crate::core::Core;
use crate::erased::AnyKey;
use crate::run::{Derived, Outcome};
use crate::schema::{Derive, Kind};
use crate::settle::{adopt_all, finish};
use crate::tx::Tx;

/// Adds and removes the cells of a world rule as keys of the relation `base` come and go, then derives new and dirty
/// cells.
pub(crate) fn settle_world(core: &mut Core, tx: &mut Tx, relation: usize, base: usize, derive: Derive) {
    let changes = std::mem::take(&mut tx.changes[base]);
    for change in &changes {
        match (&change.before, &change.after) {
            (None, Some(_)) => {
                let cell = core.find_or_add(relation, &*change.key);
                core.graph.node_mut(cell).held = true;
                tx.dirty[relation].push(cell);
            }
            (Some(_), None) => drop_cell(core, tx, relation, &*change.key),
            _ => {}
        }
    }
    tx.changes[base] = changes;
    settle(core, tx, relation, derive);
}

/// Drops the row of a cell. The cell remains as an absent key if it is read.
fn drop_cell(core: &mut Core, tx: &mut Tx, relation: usize, key: &dyn AnyKey) {
    let Some(cell) = core.find(relation, key) else { return };
    let present = core.row(relation, cell).is_some();
    core.clear_reads(tx, relation, cell);
    core.set_poisoned(relation, cell, false);
    core.graph.node_mut(cell).held = false;
    tx.orphans.push(cell);
    if present {
        core.set_row(tx, relation, cell, None);
    }
}

/// Derives the dirty cells of a rule.
pub(crate) fn settle(core: &mut Core, tx: &mut Tx, relation: usize, derive: Derive) {
    let mut cells = std::mem::take(&mut tx.dirty[relation]);
    cells.sort_unstable();
    cells.dedup();
    // A cell that was just dropped may have been marked dirty before.
    let world = core.schema.relations[relation].kind == Kind::World;
    cells.retain(|cell| !world || core.graph.node(*cell).held);
    core.sort_cells(relation, &mut cells);
    let results = core.run_all(relation, derive, &cells);
    adopt_all(core, tx);
    for (cell, derived) in results {
        apply(core, tx, relation, cell, derived);
    }
    finish(core, tx, relation);
}

fn apply(core: &mut Core, tx: &mut Tx, relation: usize, cell: u32, derived: Derived) {
    core.set_reads(tx, relation, cell, derived.reads);
    tx.runs.of(relation).runs += 1;
    let panicked = matches!(derived.outcome, Outcome::Panicked(_));
    core.set_poisoned(relation, cell, panicked);
    match derived.outcome {
        Outcome::Same => tx.runs.of(relation).cut_offs += 1,
        Outcome::Row(row) => core.set_row(tx, relation, cell, row),
        Outcome::Panicked(message) => {
            if let Some(key) = core.key(relation, cell) {
                tx.panicked(relation, core.schema.relations[relation].name, key, message);
            }
        }
    }
}
