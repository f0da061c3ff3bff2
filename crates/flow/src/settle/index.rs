//! Settles indexes: updates lists of keys by the changes of the indexed relation.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::core::Core;
use crate::erased::{self, AnyKey, SharedRow};
use crate::run::message;
use crate::schema::IndexKeys;
use crate::settle::finish;
use crate::tx::Tx;

/// An edit of a list: the list's cell, the key, and whether it is added.
type Edit<'a> = (u32, &'a dyn AnyKey, bool);

/// Moves changed keys between lists. Each list is rebuilt at most once, however many of its keys change.
pub(crate) fn settle(core: &mut Core, tx: &mut Tx, relation: usize, base: usize, index: IndexKeys) {
    let changes = std::mem::take(&mut tx.changes[base]);
    let name = core.schema.relations[relation].name;
    let mut edits: Vec<Edit<'_>> = Vec::new();
    for change in &changes {
        let key = &*change.key;
        // A row that panics here panicked when it was added, too, and that panic has been reported.
        let before = keys(index, key, change.before.as_ref()).unwrap_or_default();
        let after = keys(index, key, change.after.as_ref()).unwrap_or_else(|text| {
            tx.panicked(relation, name, key, text);
            Vec::new()
        });
        let mut edit = |list: &dyn AnyKey, add| edits.push((core.find_or_add(relation, list), key, add));
        before.iter().filter(|list| !contains(&after, &***list)).for_each(|list| edit(&**list, false));
        after.iter().filter(|list| !contains(&before, &***list)).for_each(|list| edit(&**list, true));
    }
    // Stable: the edits of each list remain in the order of the changes, which is that of their keys.
    edits.sort_by_key(|(cell, _, _)| *cell);
    for list in edits.chunk_by(|a, b| a.0 == b.0) {
        set_members(core, tx, relation, base, list);
    }
    tx.changes[base] = changes;
    finish(core, tx, relation);
}

fn set_members(core: &mut Core, tx: &mut Tx, relation: usize, base: usize, edits: &[Edit<'_>]) {
    let cell = edits[0].0;
    let edits: Vec<_> = edits.iter().map(|(_, key, add)| (*key, *add)).collect();
    let before = core.row(relation, cell);
    let after = core.tables[base].edited(before, &edits);
    tx.runs.of(relation).runs += 1;
    if erased::same(before, after.as_ref()) {
        tx.runs.of(relation).cut_offs += 1;
        return;
    }
    core.graph.node_mut(cell).held = after.is_some();
    if after.is_none() {
        tx.orphans.push(cell);
    }
    core.set_row(tx, relation, cell, after);
}

/// The index keys of a row, sorted and unique, or the message of a panic.
fn keys(index: IndexKeys, key: &dyn AnyKey, row: Option<&SharedRow>) -> Result<Vec<Box<dyn AnyKey>>, String> {
    let Some(row) = row else { return Ok(Vec::new()) };
    // The function sees only its arguments, so unwinding cannot leave inconsistent state.
    let keys = catch_unwind(AssertUnwindSafe(|| index(key, &**row)));
    let mut keys = keys.map_err(|panic| message(&*panic))?;
    keys.sort_unstable_by(|a, b| a.order(&**b));
    keys.dedup_by(|a, b| a.is(&**b));
    Ok(keys)
}

fn contains(keys: &[Box<dyn AnyKey>], key: &dyn AnyKey) -> bool {
    keys.binary_search_by(|other| other.order(key)).is_ok()
}
