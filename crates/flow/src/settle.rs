//! Settles relations: applies the changes of a commit. One module for each kind; shared code is here.

use std::sync::Arc;

use crate::Relation;
use crate::core::Core;
use crate::graph::{FRESH, Graph};
use crate::order;
use crate::reads::ReadsNow;
use crate::run::Outcome;
use crate::tx::Tx;

pub(crate) mod index;
pub(crate) mod input;
pub(crate) mod rule;

/// Assigns numbers to the fresh cells of all relations. No rule may run meanwhile.
pub(crate) fn adopt_all(core: &mut Core, tx: &mut Tx) {
    let (count, relations) = core.waiting.take();
    if count == 0 {
        return;
    }
    tx.stand_ins = vec![u32::MAX; count as usize];
    for relation in relations {
        let adopt = core.schema.relations[relation].adopt;
        adopt(core, tx, relation);
    }
}

/// Assigns numbers to the fresh cells of one relation, in key order. Their reads belong to earlier relations, which
/// have been adopted already.
pub(crate) fn adopt<R: Relation>(core: &mut Core, tx: &mut Tx, relation: usize) {
    for (key, fresh) in core.table_mut::<R>(relation).0.fresh.take() {
        let cell = core.find_or_add::<R>(relation, &key);
        let at = (fresh.stand_in - FRESH) as usize;
        tx.stand_ins[at] = cell;
        let Some(derived) = fresh.derived.get() else { continue };
        if let ReadsNow::New(reads) = &derived.reads {
            core.set_reads(tx, relation, cell, ReadsNow::New(reads.clone()));
        }
        tx.runs.of(relation).runs += 1;
        if let Outcome::Panicked(message) = &derived.outcome {
            core.set_poisoned(relation, cell, true);
            tx.panicked(relation, R::NAME, &key, message.clone());
        }
        if let Some(row) = derived.row() {
            let (table, graph) = core.table_mut::<R>(relation);
            if let Some(slot) = table.slot_mut(graph, cell) {
                slot.row = Some(Arc::clone(row));
                table.present += 1;
            }
        }
    }
}

/// Finishes a relation: sorts its changes by key and, if the key set changed, marks the readers of the key set.
fn finish<R: Relation>(core: &mut Core, tx: &mut Tx, relation: usize) {
    let mut changes = tx.take_changes::<R>(relation);
    order::sort(&mut changes, |a, b| a.key.cmp(&b.key));
    let came_or_went = changes.iter().filter(|change| change.before.is_some() != change.after.is_some());
    let mut edits = came_or_went.map(|change| (&change.key, change.after.is_some())).peekable();
    if edits.peek().is_some() {
        let key_set = Graph::key_set(relation);
        let read = !core.graph.node(key_set).readers.is_empty();
        let (table, _) = core.table_mut::<R>(relation);
        if let Some(keys) = table.keys.take().filter(|_| read) {
            // A key set with readers will be read again, and editing it is cheaper than rebuilding it. Others are
            // dropped.
            let _ = table.keys.set(keys.edited(edits));
        }
        core.mark_readers(tx, key_set);
    }
    tx.return_changes(relation, changes);
}
