//! The engine: commits, subscriptions, forks and queries.

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::core::Core;
use crate::delta::{Panic, Runs};
use crate::erased::{self, AnyKey};
use crate::graph::CellId;
use crate::schema::{Kind, RelationInfo, Schema};
use crate::settle::{adopt_all, index, input, rule};
use crate::tx::Tx;
use crate::{Batch, Builder, Delta, Members, Reads, Relation, Rule};

/// The maximum number of cells at which the end of a subscription looks. Others are removed later, so that dropping what thousands of
/// cells derived holds up nothing.
const DROPPED_AT_ONCE: usize = 256;
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
            assert!(kind == Some(Kind::Input), "flow: {} is not registered as an input", rows.name);
        }
        self.core.collect_waiting(usize::MAX);
        let mut tx = Tx::new(schema.relations.len(), batch.inputs);
        for (relation, info) in schema.relations.iter().enumerate() {
            settle(&mut self.core, &mut tx, relation, info);
        }
        self.core.collect(&mut tx);
        self.epoch += 1;
        self.delta(tx)
    }

    /// Subscribes to a view: its cell is derived now and updated by every commit. Subscriptions are counted;
    /// [`Engine::unsubscribe`] ends one. Panics if `V` is not registered as a view.
    pub fn subscribe<V: Rule>(&mut self, key: V::Key) -> CellId {
        self.subscribe_to(self.view::<V>(), &key)
    }

    /// Subscribes to many cells of a view, deriving them on several threads if that pays. Returns one cell per key, in
    /// order.
    pub fn subscribe_all<V: Rule>(&mut self, keys: &[V::Key]) -> Vec<CellId> {
        let keys: Vec<&dyn AnyKey> = keys.iter().map(|key| key as &dyn AnyKey).collect();
        self.subscribe_to_all(self.view::<V>(), &keys)
    }

    /// Ends a subscription. After the last one the cell is dropped, unless another cell reads it, and with it the views
    /// that only it read; if they are many, most of them by [`Engine::drop_unused`] or the next commit. Returns false if the cell
    /// has no subscription.
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
        self.core.orphans.push(cell.0);
        self.core.collect_waiting(DROPPED_AT_ONCE);
        true
    }

    /// Whether cells that nothing keeps alive may remain from ended subscriptions.
    pub fn has_unused(&self) -> bool {
        !self.core.orphans.is_empty()
    }

    /// Drops some of the cells that remain from ended subscriptions.
    pub fn drop_unused(&mut self) {
        self.core.collect_waiting(DROPPED_AT_ONCE);
    }

    /// The row of a cell of `R`; `None` if it has no row or is not a cell of `R`.
    pub fn row<R: Relation>(&self, cell: CellId) -> Option<Arc<R::Row>> {
        self.core.row(self.relation_of::<R>(cell)?, cell.0).map(erased::shared)
    }

    /// The key of a cell of `R`; `None` if it is not a cell of `R`.
    pub fn key<R: Relation>(&self, cell: CellId) -> Option<R::Key> {
        self.core.key(self.relation_of::<R>(cell)?, cell.0).map(|key| erased::key::<R::Key>(key).clone())
    }

    /// The name of a cell's relation.
    pub fn relation(&self, cell: CellId) -> Option<&'static str> {
        let (relation, _) = self.core.graph.locate(cell.0)?;
        Some(self.core.schema.relations[relation].name)
    }

    /// The row of a key. `None` for a view that is not live.
    pub fn get<R: Relation>(&self, key: &R::Key) -> Option<Arc<R::Row>> {
        let relation = self.registered::<R>();
        self.core.row(relation, self.core.find(relation, key)?).map(erased::shared)
    }

    /// The keys of `R` that have rows, in order. Panics if `R` is a view.
    pub fn keys<R: Relation>(&self) -> Members<R::Key> {
        let relation = self.registered::<R>();
        let kind = self.core.schema.relations[relation].kind;
        assert!(kind != Kind::View, "flow: the view {} has no key set", R::NAME);
        self.core.keys(relation)
    }

    /// The keys that have rows and their rows, in key order. For a view: the live ones.
    pub fn iter<R: Relation>(&self) -> impl Iterator<Item = (&R::Key, &R::Row)> {
        let relation = self.registered::<R>();
        let mut cells: Vec<u32> = self.core.graph.cells_of(relation).collect();
        self.core.sort_cells(relation, &mut cells);
        cells.into_iter().filter_map(move |cell| {
            let (key, row) = (self.core.key(relation, cell)?, self.core.row(relation, cell)?);
            Some((erased::key(key), erased::row(&**row)))
        })
    }

    /// Whether a cell lacks a row, or a part of one, because of a panic: its rule panicked and it has no earlier row, or that is
    /// true of a view that it reads, directly or through other views.
    pub fn is_failed(&self, cell: CellId) -> bool {
        let core = &self.core;
        let is_view = |relation: usize| core.schema.relations[relation].kind == Kind::View;
        let panicked = core.poisoned.iter().enumerate();
        if !panicked.into_iter().any(|(relation, count)| *count > 0 && is_view(relation)) {
            return false;
        }
        let (mut open, mut seen) = (vec![cell.0], FxHashSet::from_iter([cell.0]));
        while let Some(cell) = open.pop() {
            let Some((relation, _)) = core.graph.locate(cell).filter(|(relation, _)| is_view(*relation)) else {
                continue;
            };
            let node = core.graph.node(cell);
            if node.poisoned && core.row(relation, cell).is_none() {
                return true;
            }
            open.extend(node.reads.as_slice().iter().copied().filter(|read| seen.insert(*read)));
        }
        false
    }

    /// The panics of subscriptions since the last commit or call. The next [`Delta`] does not contain them.
    pub fn take_panics(&mut self) -> Vec<Panic> {
        std::mem::take(&mut self.waiting_panics)
    }

    /// Limits the threads that run rules from now on, including the caller's. [`Builder::threads`] stays the maximum. A caller
    /// that must not wait for another thread to be scheduled sets 1.
    pub fn limit_threads(&mut self, threads: usize) {
        self.core.threads = threads.clamp(1, self.core.schema.threads);
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

    pub(crate) fn subscribe_to_all(&mut self, relation: usize, keys: &[&dyn AnyKey]) -> Vec<CellId> {
        let missing: Vec<_> = keys.iter().copied().filter(|key| self.core.find(relation, *key).is_none()).collect();
        self.derive_missing(relation, &missing);
        keys.iter().map(|key| self.subscribe_to(relation, *key)).collect()
    }

    fn subscribe_to(&mut self, relation: usize, key: &dyn AnyKey) -> CellId {
        if self.core.find(relation, key).is_none() {
            self.derive_missing(relation, &[key]);
        }
        let cell = self.core.find_or_add(relation, key);
        let node = self.core.graph.node_mut(cell);
        node.subscriptions += 1;
        node.held = true;
        self.subscriptions[relation] += 1;
        CellId(cell)
    }

    fn derive_missing(&mut self, relation: usize, keys: &[&dyn AnyKey]) {
        let core = &self.core;
        let top = core.schema.relations.len();
        // Reading a view without a cell derives it.
        core.spread(keys, |key| Some(Reads::new(core, top, &[]).demand(relation, *key)));
        let mut tx = Tx::new(0, Default::default());
        adopt_all(&mut self.core, &mut tx);
        debug_assert!(keys.iter().all(|key| self.core.find(relation, *key).is_some()));
        tx.runs.add_to(&mut self.totals);
        let room = WAITING_PANICS.saturating_sub(self.waiting_panics.len());
        self.waiting_panics.extend(tx.panics.into_iter().take(room));
    }

    fn delta(&mut self, mut tx: Tx) -> Delta {
        let schema = self.core.schema.clone();
        let gone = std::mem::take(&mut tx.freed);
        for (changes, info) in tx.changes.iter_mut().zip(&schema.relations) {
            changes.retain(|change| info.kind != Kind::View || !gone.contains(&change.cell.0));
        }
        tx.runs.add_to(&mut self.totals);
        let mut runs = vec![Runs::default(); schema.relations.len()];
        tx.runs.add_to(&mut runs);
        let mut panics = std::mem::take(&mut self.waiting_panics);
        panics.append(&mut tx.panics);
        Delta {
            epoch: self.epoch,
            cells: tx.changes.iter().flatten().map(|change| change.cell).collect(),
            changes: tx.changes,
            runs,
            panics,
            schema,
        }
    }

    /// The number of `R`, if it is the cell's relation.
    fn relation_of<R: Relation>(&self, cell: CellId) -> Option<usize> {
        let (relation, _) = self.core.graph.locate(cell.0)?;
        self.core.schema.relation::<R>().filter(|expected| *expected == relation)
    }

    fn view<V: Rule>(&self) -> usize {
        let relation = self.registered::<V>();
        let kind = self.core.schema.relations[relation].kind;
        assert!(kind == Kind::View, "flow: {} is not a view, and only views can be subscribed to", V::NAME);
        relation
    }

    pub(crate) fn registered<R: Relation>(&self) -> usize {
        match self.core.schema.relation::<R>() {
            Some(relation) => relation,
            None => panic!("flow: {} is not registered", R::NAME),
        }
    }
}

/// Settles a relation, if what it is derived from changed.
fn settle(core: &mut Core, tx: &mut Tx, relation: usize, info: &RelationInfo) {
    let base = info.base.filter(|base| !tx.changes[*base].is_empty());
    match (info.keys, info.derive, base) {
        (Some(keys), _, Some(base)) => index::settle(core, tx, relation, base, keys),
        (_, Some(derive), Some(base)) => rule::settle_world(core, tx, relation, base, derive),
        (_, Some(derive), None) if !tx.dirty[relation].is_empty() => rule::settle(core, tx, relation, derive),
        _ => {
            if let Some(writes) = tx.inputs.remove(&info.id) {
                input::settle(core, tx, relation, writes);
            }
        }
    }
}
