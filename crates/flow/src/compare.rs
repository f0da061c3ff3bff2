//! The oracle: a recomputation from the inputs must equal the result of incremental commits.

use std::cmp::Ordering;
use std::fmt;

use rustc_hash::FxHashSet;

use crate::Batch;
use crate::core::Core;
use crate::engine::Engine;
use crate::erased::SharedRow;
use crate::schema::Kind;
use crate::show::shown;

/// The maximum length of a displayed row, in bytes.
const SHOWN: usize = 2_000;

/// The first difference between two engines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The relation's name.
    pub relation: &'static str,
    /// The key, as `Debug` shows it.
    pub key: String,
    /// The state in the first engine: the row as `Debug` shows it, shortened if long, or why there is none.
    pub left: String,
    /// The state in the second engine.
    pub right: String,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {} is not {}", self.relation, self.key, self.left, self.right)
    }
}

impl std::error::Error for Mismatch {}

impl Engine {
    /// Returns a new engine with the same inputs and subscriptions, in which everything is derived from scratch.
    pub fn recompute(&self) -> Self {
        let mut fresh = self.rebuilt();
        (0..self.core.schema.relations.len()).for_each(|relation| self.copy_subscriptions(relation, &mut fresh));
        fresh
    }

    /// Derives everything again from the inputs, without subscriptions. It uses nothing else of this engine, which may be
    /// inconsistent because a commit panicked.
    pub fn rebuilt(&self) -> Self {
        let schema = &self.core.schema;
        let mut fresh = Self::empty(schema.clone());
        let mut batch = Batch::new();
        let core = &self.core;
        for (relation, info) in schema.relations.iter().enumerate().filter(|(_, info)| info.kind == Kind::Input) {
            for cell in core.graph.cells_of(relation) {
                if let (Some(key), Some(row)) = (core.key(relation, cell), core.row(relation, cell)) {
                    batch.write(info.id, info.name, key.boxed(), Some(row.clone()));
                }
            }
        }
        drop(fresh.commit(batch));
        fresh
    }

    /// Copies the subscriptions of a relation, with their counts, to another engine.
    fn copy_subscriptions(&self, relation: usize, engine: &mut Self) {
        let core = &self.core;
        let cells = core.graph.cells_of(relation);
        let subscribed =
            cells.filter_map(|cell| Some((core.key(relation, cell)?, core.graph.node(cell).subscriptions)));
        let (keys, counts): (Vec<_>, Vec<u32>) = subscribed.filter(|(_, count)| *count > 0).unzip();
        for (cell, count) in engine.subscribe_to_all(relation, &keys).into_iter().zip(counts) {
            engine.core.graph.node_mut(cell.0).subscriptions = count;
            engine.subscriptions[relation] += count as usize - 1;
        }
    }

    /// Compares the rows of another engine with the same relations: all inputs, indexes and world rules, and subscribed
    /// views.
    ///
    /// A cell whose rule panicked keeps an old row, which a recomputed engine cannot have. For such cells only the
    /// panic is compared, and cells that depend on them are not compared.
    ///
    /// # Errors The first difference.
    pub fn agree(&self, other: &Self) -> Result<(), Mismatch> {
        if self.core.schema.ids != other.core.schema.ids {
            let none = String::new;
            return Err(Mismatch { relation: "the relations themselves", key: none(), left: none(), right: none() });
        }
        let (left, right) = (Side::new(&self.core), Side::new(&other.core));
        let relations = 0..self.core.schema.relations.len();
        relations.into_iter().find_map(|relation| difference(&left, &right, relation)).map_or(Ok(()), Err)
    }
}

/// One of the two compared engines.
pub(crate) struct Side<'a> {
    core: &'a Core,
    /// Cells that depend on a cell whose rule panicked.
    tainted: FxHashSet<u32>,
}

impl<'a> Side<'a> {
    fn new(core: &'a Core) -> Self {
        let mut side = Self { core, tainted: FxHashSet::default() };
        if core.poisoned.iter().any(|count| *count > 0) {
            side.spread_taint();
        }
        side
    }

    fn spread_taint(&mut self) {
        let (core, graph) = (self.core, &self.core.graph);
        let mut bad_relations = vec![false; core.schema.relations.len()];
        for relation in 0..core.schema.relations.len() {
            for cell in graph.cells_of(relation) {
                let base = core.base_cells(relation, cell);
                let mut needed = graph.node(cell).reads.as_slice().iter().chain(&base);
                let tainted = needed.any(|needed| match graph.as_key_set(*needed) {
                    Some(of) => bad_relations[of],
                    None => graph.node(*needed).poisoned || self.tainted.contains(needed),
                });
                if tainted {
                    self.tainted.insert(cell);
                }
                bad_relations[relation] |= tainted || graph.node(cell).poisoned;
            }
        }
    }

    /// The compared cells, in key order.
    fn cells(&self, relation: usize) -> Vec<u32> {
        let (core, graph) = (self.core, &self.core.graph);
        let all = core.schema.relations[relation].kind != Kind::View;
        let mut cells: Vec<u32> = graph.cells_of(relation).collect();
        cells.retain(|cell| all || graph.node(*cell).subscriptions > 0);
        core.sort_cells(relation, &mut cells);
        cells
    }

    fn state(&self, relation: usize, cell: Option<u32>) -> State<'a> {
        let Some(cell) = cell else { return State::Missing };
        match self.core.row(relation, cell) {
            _ if self.tainted.contains(&cell) => State::Tainted,
            _ if self.core.graph.node(cell).poisoned => State::Panicked,
            Some(row) => State::Row(row),
            None => State::Absent,
        }
    }
}

enum State<'a> {
    Missing,
    Tainted,
    Panicked,
    Absent,
    Row(&'a SharedRow),
}

impl State<'_> {
    fn show(&self) -> String {
        match self {
            Self::Missing => "no cell".to_owned(),
            Self::Tainted => "a cell that depends on a panic".to_owned(),
            Self::Panicked => "a panic".to_owned(),
            Self::Absent => "no row".to_owned(),
            Self::Row(row) => shown(row, SHOWN),
        }
    }
}

/// The first difference in one relation.
fn difference(left: &Side<'_>, right: &Side<'_>, relation: usize) -> Option<Mismatch> {
    let (lefts, rights) = (left.cells(relation), right.cells(relation));
    let (mut lefts, mut rights) = (lefts.into_iter().peekable(), rights.into_iter().peekable());
    let info = &left.core.schema.relations[relation];
    loop {
        let keys = [(left, lefts.peek()), (right, rights.peek())]
            .map(|(side, cell)| cell.and_then(|cell| side.core.key(relation, *cell)));
        let order = match keys {
            [Some(a), Some(b)] => a.order(b),
            [Some(_), None] => Ordering::Less,
            [None, Some(_)] => Ordering::Greater,
            [None, None] => return None,
        };
        let a = if order.is_le() { lefts.next() } else { None };
        let b = if order.is_ge() { rights.next() } else { None };
        let (left, right) = (left.state(relation, a), right.state(relation, b));
        if !same(info.kind == Kind::View, &left, &right) {
            let [key, other] = keys;
            let key = key.filter(|_| a.is_some()).or(other).map(|key| shown(&key, SHOWN)).unwrap_or_default();
            return Some(Mismatch { relation: info.name, key, left: left.show(), right: right.show() });
        }
    }
}

/// Whether two states agree. A view is subscribed to in both engines or in neither; in other relations, an absent row
/// may or may not have a cell.
fn same(view: bool, left: &State<'_>, right: &State<'_>) -> bool {
    match (left, right) {
        (State::Missing, State::Absent) | (State::Absent, State::Missing) => !view,
        (State::Tainted, other) | (other, State::Tainted) => !(view && matches!(other, State::Missing)),
        (State::Row(a), State::Row(b)) => a.is(&***b),
        (State::Absent, State::Absent) | (State::Panicked, State::Panicked) => true,
        _ => false,
    }
}
