//! Settles inputs: rows come from the batch.

use std::any::{Any, TypeId};

use crate::Input;
use crate::batch::TypedRows;
use crate::core::Core;
use crate::order;
use crate::settle::finish;
use crate::tx::Tx;

/// Applies the writes of a batch to an input. An equal row is not a change.
pub(crate) fn settle<T: Input>(core: &mut Core, tx: &mut Tx, relation: usize) {
    let Some(rows) = tx.inputs.remove(&TypeId::of::<T>()) else {
        return;
    };
    let rows: Box<dyn Any> = rows;
    let Ok(rows) = rows.downcast::<TypedRows<T>>() else {
        return;
    };
    let mut writes: Vec<_> = rows.0.into_iter().collect();
    order::sort(&mut writes, |a, b| a.0.cmp(&b.0));
    for (key, row) in writes {
        let table = core.table::<T>(relation);
        let known = table.find(&core.graph, &key);
        let before = known.and_then(|cell| table.slot(&core.graph, cell)?.row.as_ref());
        if before == row.as_ref() {
            tx.runs.of(relation).cut_offs += usize::from(row.is_some());
            continue;
        }
        let cell = core.find_or_add::<T>(relation, &key);
        core.graph.node_mut(cell).held = row.is_some();
        if row.is_none() {
            tx.orphans.push(cell);
        }
        core.set_row::<T>(tx, relation, cell, row);
    }
    finish::<T>(core, tx, relation);
}
