//! Settles relations: applies the changes of a commit. One module for each kind; shared code is here.

use crate::core::Core;
use crate::delta::Changed;
use crate::graph::{FRESH, Graph};
use crate::reads::ReadsNow;
use crate::run::Outcome;
use crate::tx::Tx;

pub(crate) mod index;
pub(crate) mod input;
pub(crate) mod rule;

/// Assigns numbers to the fresh cells of all relations, by relation and in key order: their reads belong to earlier
/// relations. No rule may run meanwhile.
pub(crate) fn adopt_all(core: &mut Core, tx: &mut Tx) {
    let fresh = core.fresh.take();
    tx.stand_ins = vec![u32::MAX; fresh.len()];
    for fresh in fresh {
        let (relation, key) = (fresh.relation, &*fresh.key);
        let cell = core.find_or_add(relation, key);
        tx.stand_ins[(fresh.stand_in - FRESH) as usize] = cell;
        let Some(derived) = fresh.derived.get() else { continue };
        if let ReadsNow::New(reads) = &derived.reads {
            core.set_reads(tx, relation, cell, ReadsNow::New(reads.clone()));
        }
        tx.runs.of(relation).runs += 1;
        if let Outcome::Panicked(message) = &derived.outcome {
            core.set_poisoned(relation, cell, true);
            tx.panicked(relation, core.schema.relations[relation].name, key, message.clone());
        }
        if let Some(row) = derived.row() {
            core.tables[relation].replace(&core.graph, cell, Some(row.clone()));
        }
    }
}

/// Finishes a relation: sorts its changes by key and, if the key set changed, marks the readers of the key set.
fn finish(core: &mut Core, tx: &mut Tx, relation: usize) {
    let mut changes = std::mem::take(&mut tx.changes[relation]);
    changes.sort_unstable_by(|a, b| a.key.order(&*b.key));
    let came_or_went = |change: &&Changed| change.before.is_some() != change.after.is_some();
    let edits: Vec<_> =
        changes.iter().filter(came_or_went).map(|change| (&*change.key, change.after.is_some())).collect();
    if !edits.is_empty() {
        let key_set = Graph::key_set(relation);
        let read = !core.graph.node(key_set).readers.is_empty();
        let table = &mut core.tables[relation];
        if let Some(keys) = table.keys.take().filter(|_| read) {
            // A key set with readers will be read again, and editing it is cheaper than rebuilding it. Others are
            // dropped.
            let _ = table.keys.set(table.edited(keys.as_ref(), &edits));
        }
        core.mark_readers(tx, key_set);
    }
    tx.changes[relation] = changes;
}
