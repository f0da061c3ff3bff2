//! A rule's access to rows, and the record of its reads.

use std::cell::RefCell;
use std::sync::Arc;

use crate::core::Core;
use crate::edges;
use crate::erased::{self, AnyKey, SharedRow};
use crate::fresh::FreshCell;
use crate::graph::Graph;
use crate::run::Derived;
use crate::schema::Kind;
use crate::table::Typed;
use crate::{Key, Members, Relation};

/// The reads of one run of a rule.
///
/// A rule may read relations that were registered before its own. Any other read panics with both names; like every
/// panic of a rule, it is contained and reported.
pub struct Reads<'a> {
    core: &'a Core,
    /// The relation that is being derived. All relations before it are settled.
    layer: usize,
    /// The reads of the cell's previous run.
    before: &'a [u32],
    log: RefCell<Log>,
}

#[derive(Default)]
struct Log {
    cells: Vec<u32>,
    /// The index in `before` of the expected next read.
    expected: usize,
}

/// The reads of a run, compared with those of the previous run.
pub(crate) enum ReadsNow {
    /// The same cells in the same order.
    Same,
    /// Other cells: unique, in the order of the first read; fresh cells by their stand-ins.
    New(Vec<u32>),
}

impl<'a> Reads<'a> {
    pub(crate) fn new(core: &'a Core, layer: usize, before: &'a [u32]) -> Self {
        Self { core, layer, before, log: RefCell::default() }
    }

    /// The row of `key`, if it has one. A view without a cell is derived now.
    ///
    /// A cell whose rule panicked has its last good row, if there was one.
    pub fn get<R: Relation>(&self, key: &R::Key) -> Option<Arc<R::Row>> {
        self.resolve(self.relation::<R>(), key).row().map(erased::shared)
    }

    /// Whether `key` has a row. This counts as a read of the row.
    pub fn contains<R: Relation>(&self, key: &R::Key) -> bool {
        self.resolve(self.relation::<R>(), key).row().is_some()
    }

    /// Calls `f` with the row of `key`. Unlike [`Reads::get`], it does not touch the row's reference count; for rules
    /// that read thousands of rows.
    pub fn with<R: Relation, T>(&self, key: &R::Key, f: impl FnOnce(Option<&R::Row>) -> T) -> T {
        f(self.resolve(self.relation::<R>(), key).row().map(|row| erased::row(&**row)))
    }

    /// The keys of an input, index or world rule that have rows, in order.
    ///
    /// This is a wide read: the rule runs again whenever a key comes or goes, and the engine keeps a list of all keys.
    pub fn keys<R: Relation>(&self) -> Members<R::Key> {
        let relation = self.relation::<R>();
        assert!(
            self.core.schema.relations[relation].kind != Kind::View,
            "flow: {} reads the keys of the view {}, which has no key set",
            self.name(),
            R::NAME
        );
        self.record(Graph::key_set(relation));
        self.core.keys(relation)
    }

    /// Ends the run and returns its reads.
    pub(crate) fn finish(self) -> ReadsNow {
        let mut cells = self.log.into_inner().cells;
        if cells == self.before {
            return ReadsNow::Same;
        }
        edges::keep_first(&mut cells);
        if cells == self.before { ReadsNow::Same } else { ReadsNow::New(cells) }
    }

    fn resolve<K: Key>(&self, relation: usize, key: &K) -> Resolved<'a> {
        let table = self.core.tables[relation].typed::<K>();
        if let Some(row) = self.expected(relation, &table, key) {
            return Resolved::Known(row);
        }
        let graph = &self.core.graph;
        if let Some(cell) = table.find(graph, key) {
            self.record(cell);
            return Resolved::Known(table.slot(graph.page(cell), cell).and_then(|(_, row)| row));
        }
        Resolved::Fresh(self.demand(relation, key))
    }

    /// Reads a key that has no cell. A view is derived now.
    pub(crate) fn demand(&self, relation: usize, key: &dyn AnyKey) -> Arc<FreshCell> {
        let fresh = self.core.fresh.demand(relation, key);
        let info = &self.core.schema.relations[relation];
        if let Some(derive) = info.derive.filter(|_| info.kind == Kind::View) {
            fresh.derived.get_or_init(|| self.core.run(relation, derive, key, &[], None));
        }
        self.record(fresh.stand_in);
        fresh
    }

    /// The row of `key`, if the previous run read it at this position or the next. Most runs repeat the reads of the
    /// previous one, and comparing a key is cheaper than looking it up.
    #[inline]
    fn expected<K: Key>(&self, relation: usize, table: &Typed<'a, K>, key: &K) -> Option<Option<&'a SharedRow>> {
        let mut log = self.log.borrow_mut();
        for ahead in 0..2 {
            let cell = *self.before.get(log.expected + ahead)?;
            let Some((of, page)) = self.core.graph.locate(cell) else {
                continue;
            };
            if of != relation {
                continue;
            }
            if let Some((_, row)) = table.slot(page, cell).filter(|(other, _)| **other == *key) {
                log.expected += ahead + 1;
                log.cells.push(cell);
                return Some(row);
            }
        }
        None
    }

    fn record(&self, cell: u32) {
        let mut log = self.log.borrow_mut();
        if self.before.get(log.expected) == Some(&cell) {
            log.expected += 1;
        }
        if log.cells.last() != Some(&cell) {
            log.cells.push(cell);
        }
    }

    /// The number of a relation that may be read.
    #[inline]
    fn relation<R: Relation>(&self) -> usize {
        match self.core.schema.relation::<R>() {
            Some(relation) if relation < self.layer => relation,
            found => self.refuse(R::NAME, found.is_some()),
        }
    }

    #[cold]
    fn refuse(&self, read: &str, registered: bool) -> ! {
        let reader = self.name();
        match registered {
            true => panic!(
                "flow: {reader} reads {read}, which is registered after it; a relation may read only those before it"
            ),
            false => panic!("flow: {reader} reads {read}, which is not registered"),
        }
    }

    fn name(&self) -> &'static str {
        self.core.schema.relations.get(self.layer).map_or("a subscription", |relation| relation.name)
    }
}

/// The row of a key that was read.
enum Resolved<'a> {
    Known(Option<&'a SharedRow>),
    Fresh(Arc<FreshCell>),
}

impl Resolved<'_> {
    fn row(&self) -> Option<&SharedRow> {
        match self {
            Self::Known(row) => *row,
            Self::Fresh(fresh) => fresh.derived.get().and_then(Derived::row),
        }
    }
}
