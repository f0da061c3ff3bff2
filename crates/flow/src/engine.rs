//! The engine: commits, subscriptions, forks and queries.

use std::any::TypeId;
use std::sync::Arc;

use crate::core::Core;
use crate::delta::{Panic, Runs};
use crate::graph::CellId;
use crate::order;
use crate::schema::{Kind, Schema};
use crate::settle::adopt_all;
use crate::table::{Slot, Table};
use crate::tx::Tx;
use crate::{Batch, Builder, Delta, Members, Reads, Relation, Rule};

/// The maximum number of panics of subscriptions that are kept for the next commit's delta.
const WAITING_PANICS: usize = 1_000;

/// Input tables and everything that rules derive from them.
///
/// One thread changes it at a time (`&mut`); any number may read (`&`). It can be sent to other threads.
pub struct Engine {
    pub(crate) core: Core,
    pub(crate) epoch: u64,
    /// The work done for each relation since the engine was built.
    pub(crate) totals: Vec<Runs>,
    /// The number of subscriptions of each relation.
    pub(crate) subscriptions: Vec<usize>,
    waiting_panics: Vec<Panic>,
}

impl Engine {
    /// Creates a builder, which registers the relations.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn empty(schema: Arc<Schema>) -> Self {
        let relations = schema.relations.len();
        Self {
            core: Core::new(schema),
            epoch: 0,
            totals: vec![Runs::default(); relations],
            subscriptions: vec![0; relations],
            waiting_panics: Vec::new(),
        }
    }

    /// Applies input changes and brings all derived rows up to date.
    ///
    /// # Panics The batch writes to a table that is not registered as an input.
    pub fn commit(&mut self, batch: Batch) -> Delta {
        let schema = self.core.schema.clone();
        for (id, rows) in &batch.inputs {
            let kind = schema.ids.get(id).map(|relation| schema.relations[usize::from(*relation)].kind);
            assert!(kind == Some(Kind::Input), "flow: {} is not registered as an input", rows.name());
        }
        let mut tx = Tx::new(schema.relations.len(), batch.inputs);
        for (relation, info) in schema.relations.iter().enumerate() {
            let base_changed = info.base.is_some_and(|base| tx.changes[base].is_some());
            if base_changed || info.kind == Kind::Input || !tx.dirty[relation].is_empty() {
                (info.settle)(&mut self.core, &mut tx, relation);
            }
        }
        self.core.collect(&mut tx);
        self.epoch += 1;
        self.delta(tx)
    }

    /// Subscribes to a view: its cell is derived now and updated by every commit. Subscriptions are counted;
    /// [`Engine::unsubscribe`] ends one. Panics if `V` is not registered as a view.
    pub fn subscribe<V: Rule>(&mut self, key: V::Key) -> CellId {
        self.subscribe_to::<V>(&key)
    }

    /// Subscribes to many cells of a view, deriving them on several threads if that pays. Returns one cell per key, in
    /// order.
    pub fn subscribe_all<V: Rule>(&mut self, keys: &[V::Key]) -> Vec<CellId> {
        let (relation, table) = self.view::<V>();
        let missing: Vec<&V::Key> = keys.iter().filter(|key| table.find(&self.core.graph, key).is_none()).collect();
        self.derive_missing::<V>(relation, &missing);
        keys.iter().map(|key| self.subscribe_to::<V>(key)).collect()
    }

    /// Ends a subscription. After the last one the cell is dropped, unless another cell reads it, and with it the views
    /// that only it read. Returns false if the cell has no subscription.
    pub fn unsubscribe(&mut self, cell: CellId) -> bool {
        let Some((relation, _)) = self.core.graph.locate(cell.0) else {
            return false;
        };
        if self.core.graph.node(cell.0).subscriptions == 0 {
            return false;
        }
        let node = self.core.graph.node_mut(cell.0);
        node.subscriptions -= 1;
        node.held = node.subscriptions > 0;
        self.subscriptions[relation] -= 1;
        let mut tx = Tx::new(0, Default::default());
        tx.orphans.push(cell.0);
        self.core.collect(&mut tx);
        true
    }

    /// The row of a cell of `R`; `None` if it has no row or is not a cell of `R`.
    pub fn row<R: Relation>(&self, cell: CellId) -> Option<Arc<R::Row>> {
        self.slot_of::<R>(cell)?.row.clone()
    }

    /// The key of a cell of `R`; `None` if it is not a cell of `R`.
    pub fn key<R: Relation>(&self, cell: CellId) -> Option<R::Key> {
        self.slot_of::<R>(cell).map(|slot| slot.key.clone())
    }

    /// The name of a cell's relation.
    pub fn relation(&self, cell: CellId) -> Option<&'static str> {
        let (relation, _) = self.core.graph.locate(cell.0)?;
        Some(self.core.schema.relations[relation].name)
    }

    /// The row of a key. `None` for a view that is not live.
    pub fn get<R: Relation>(&self, key: &R::Key) -> Option<Arc<R::Row>> {
        let (_, table) = self.table::<R>();
        let cell = table.find(&self.core.graph, key)?;
        table.slot(&self.core.graph, cell)?.row.clone()
    }

    /// The keys of `R` that have rows, in order. Panics if `R` is a view.
    pub fn keys<R: Relation>(&self) -> Members<R::Key> {
        let (relation, table) = self.table::<R>();
        let kind = self.core.schema.relations[relation].kind;
        assert!(kind != Kind::View, "flow: the view {} has no key set", R::NAME);
        self.core.keys(table, relation)
    }

    /// The keys that have rows and their rows, in key order. For a view: the live ones.
    pub fn iter<R: Relation>(&self) -> impl Iterator<Item = (&R::Key, &Arc<R::Row>)> {
        let (relation, table) = self.table::<R>();
        let slots = self.core.graph.cells_of(relation).filter_map(|cell| table.slot(&self.core.graph, cell));
        let mut rows: Vec<_> = slots.filter_map(|slot| Some((&slot.key, slot.row.as_ref()?))).collect();
        order::sort(&mut rows, |a, b| a.0.cmp(b.0));
        rows.into_iter()
    }

    /// The number of commits.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Returns a copy for trying out changes. Unchanged pages are shared, and neither engine sees the other's changes.
    /// It costs one reference per page of 64 cells.
    pub fn fork(&self) -> Self {
        Self {
            core: self.core.fork(),
            epoch: self.epoch,
            totals: self.totals.clone(),
            subscriptions: self.subscriptions.clone(),
            waiting_panics: self.waiting_panics.clone(),
        }
    }

    pub(crate) fn subscribe_to<V: Rule>(&mut self, key: &V::Key) -> CellId {
        let (relation, table) = self.view::<V>();
        if table.find(&self.core.graph, key).is_none() {
            self.derive_missing::<V>(relation, &[key]);
        }
        let cell = self.core.find_or_add::<V>(relation, key);
        let node = self.core.graph.node_mut(cell);
        node.subscriptions += 1;
        node.held = true;
        self.subscriptions[relation] += 1;
        CellId(cell)
    }

    fn derive_missing<V: Rule>(&mut self, relation: usize, keys: &[&V::Key]) {
        let core = &self.core;
        let top = core.schema.relations.len();
        // Reading a view without a cell derives it.
        core.spread(keys, |key| Some(Reads::new(core, top, &[]).contains::<V>(key)));
        let mut tx = Tx::new(0, Default::default());
        adopt_all(&mut self.core, &mut tx);
        debug_assert!(keys.iter().all(|key| self.core.table::<V>(relation).find(&self.core.graph, key).is_some()));
        tx.runs.add_to(&mut self.totals);
        let room = WAITING_PANICS.saturating_sub(self.waiting_panics.len());
        self.waiting_panics.extend(tx.panics.into_iter().take(room));
    }

    fn delta(&mut self, mut tx: Tx) -> Delta {
        let schema = self.core.schema.clone();
        let gone = std::mem::take(&mut tx.freed);
        for (relation, changes) in tx.changes.iter_mut().enumerate() {
            if let Some(changes) = changes.as_mut().filter(|_| schema.relations[relation].kind == Kind::View) {
                changes.retain(&|cell| !gone.contains(&cell.0));
            }
        }
        tx.runs.add_to(&mut self.totals);
        let mut runs = vec![Runs::default(); schema.relations.len()];
        tx.runs.add_to(&mut runs);
        let mut panics = std::mem::take(&mut self.waiting_panics);
        panics.append(&mut tx.panics);
        Delta {
            epoch: self.epoch,
            cells: tx.changes.iter().flatten().flat_map(|changes| changes.cells()).collect(),
            changes: tx.changes,
            runs,
            panics,
            schema,
        }
    }

    fn slot_of<R: Relation>(&self, cell: CellId) -> Option<&Slot<R>> {
        let (relation, page) = self.core.graph.locate(cell.0)?;
        let expected = self.core.schema.ids.get(&TypeId::of::<R>())?;
        if usize::from(*expected) != relation {
            return None;
        }
        self.core.table::<R>(relation).slot_at(page, cell.0)
    }

    fn view<V: Rule>(&self) -> (usize, &Table<V>) {
        let (relation, table) = self.table::<V>();
        let kind = self.core.schema.relations[relation].kind;
        assert!(kind == Kind::View, "flow: {} is not a view, and only views can be subscribed to", V::NAME);
        (relation, table)
    }

    pub(crate) fn table<R: Relation>(&self) -> (usize, &Table<R>) {
        match self.core.typed::<R>() {
            Some(found) => found,
            None => panic!("flow: {} is not registered", R::NAME),
        }
    }
}
