//! Settles indexes: updates lists of keys by the changes of the indexed relation.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::core::Core;
use crate::run::message;
use crate::settle::finish;
use crate::tx::Tx;
use crate::{Index, Members, Relation};

type KeyOf<I> = <<I as Index>::Of as Relation>::Key;
type RowOf<I> = <<I as Index>::Of as Relation>::Row;

/// Moves changed keys between lists. Each list is rebuilt at most once, however many of its keys change.
pub(crate) fn settle<I: Index>(core: &mut Core, tx: &mut Tx, relation: usize) {
    let Some(base) = core.schema.relations[relation].base else {
        return;
    };
    let changes = tx.take_changes::<I::Of>(base);
    let mut edits: BTreeMap<I::Key, Vec<(&KeyOf<I>, bool)>> = BTreeMap::new();
    for change in &changes {
        // A row that panics here panicked when it was added, too, and that panic has been reported.
        let before = keys::<I>(&change.key, change.before.as_deref()).unwrap_or_default();
        let after = keys::<I>(&change.key, change.after.as_deref()).unwrap_or_else(|text| {
            tx.panicked(relation, I::NAME, &change.key, text);
            Vec::new()
        });
        for key in before.iter().filter(|key| after.binary_search(key).is_err()) {
            edits.entry(key.clone()).or_default().push((&change.key, false));
        }
        for key in after.into_iter().filter(|key| before.binary_search(key).is_err()) {
            edits.entry(key).or_default().push((&change.key, true));
        }
    }
    for (key, edits) in edits {
        set_members::<I>(core, tx, relation, &key, &edits);
    }
    tx.return_changes(base, changes);
    finish::<I>(core, tx, relation);
}

fn set_members<I: Index>(core: &mut Core, tx: &mut Tx, relation: usize, key: &I::Key, edits: &[(&KeyOf<I>, bool)]) {
    let cell = core.find_or_add::<I>(relation, key);
    let table = core.table::<I>(relation);
    let before = table.slot(&core.graph, cell).and_then(|slot| slot.row.clone()).unwrap_or_default();
    let after = before.edited(edits.iter().copied());
    tx.runs.of(relation).runs += 1;
    if after == *before {
        tx.runs.of(relation).cut_offs += 1;
        return;
    }
    core.graph.node_mut(cell).held = !after.is_empty();
    if after.is_empty() {
        tx.orphans.push(cell);
    }
    core.set_row::<I>(tx, relation, cell, (!after.is_empty()).then(|| Arc::new(after)));
}

/// The index keys of a row, sorted and unique, or the message of a panic.
fn keys<I: Index>(key: &KeyOf<I>, row: Option<&RowOf<I>>) -> Result<Vec<I::Key>, String> {
    let Some(row) = row else { return Ok(Vec::new()) };
    // The function sees only its arguments, so unwinding cannot leave inconsistent state.
    let mut keys = catch_unwind(AssertUnwindSafe(|| I::keys(key, row))).map_err(|panic| message(&*panic))?;
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

/// The cells of the keys that an index row lists.
pub(crate) fn member_cells<I: Index>(core: &Core, cell: u32, base: usize) -> Vec<u32> {
    let row: Option<&Arc<Members<KeyOf<I>>>> =
        core.typed::<I>().and_then(|(_, table)| table.slot(&core.graph, cell)?.row.as_ref());
    let table = core.table::<I::Of>(base);
    row.map(|row| row.iter().filter_map(|key| table.find(&core.graph, key)).collect()).unwrap_or_default()
}
