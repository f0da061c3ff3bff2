//! Settling a relation: applying to it what a commit changed below it. One module for each way in which rows come about,
//! and here what they share.

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

/// Gives the fresh cells of all relations their numbers. Rules do not run meanwhile.
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

/// Gives the fresh cells of one relation their numbers, in the order of their keys. What they read is of relations
/// before it, which have theirs already.
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

/// Ends a relation: its changes come into the order of their keys, and who read its key set is marked if that changed.
fn finish<R: Relation>(core: &mut Core, tx: &mut Tx, relation: usize) {
    let mut changes = tx.take_changes::<R>(relation);
    order::sort(&mut changes, |a, b| a.key.cmp(&b.key));
    let came_or_went = changes
        .iter()
        .filter(|change| change.before.is_some() != change.after.is_some());
    let mut edits = came_or_went
        .map(|change| (&change.key, change.after.is_some()))
        .peekable();
    if edits.peek().is_some() {
        let key_set = Graph::key_set(relation);
        let read = !core.graph.node(key_set).readers.is_empty();
        let (table, _) = core.table_mut::<R>(relation);
        if let Some(keys) = table.keys.take().filter(|_| read) {
            // Who reads it will ask again, and editing is cheaper than collecting and sorting. Otherwise it is forgotten.
            let _ = table.keys.set(keys.edited(edits));
        }
        core.mark_readers(tx, key_set);
    }
    tx.return_changes(relation, changes);
}
