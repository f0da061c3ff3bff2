//! Settles inputs: rows come from the batch.

use crate::batch::Writes;
use crate::core::Core;
use crate::erased;
use crate::settle::finish;
use crate::tx::Tx;

/// Applies the writes of a batch to an input. An equal row is not a change.
pub(crate) fn settle(core: &mut Core, tx: &mut Tx, relation: usize, writes: Writes) {
    for (key, row) in writes.sorted() {
        let known = core.find(relation, &*key);
        if erased::same(known.and_then(|cell| core.row(relation, cell)), row.as_ref()) {
            tx.runs.of(relation).cut_offs += usize::from(row.is_some());
            continue;
        }
        let cell = core.find_or_add(relation, &*key);
        core.graph.node_mut(cell).held = row.is_some();
        if row.is_none() {
            tx.orphans.push(cell);
        }
        core.set_row(tx, relation, cell, row);
    }
    finish(core, tx, relation);
}
