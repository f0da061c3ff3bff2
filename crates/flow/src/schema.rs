//! The relations of an engine, their order, and the builder that registers them.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::compare;
use crate::core::Core;
use crate::engine::Engine;
use crate::settle::{adopt, index, input, rule};
use crate::table::{AnyTable, Table};
use crate::tx::Tx;
use crate::{Batch, Index, Input, Relation, Rule};

/// How the rows of a relation are produced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Committed from outside.
    Input,
    /// Groups of keys of another relation.
    Index,
    /// Derived for each key of another relation.
    World,
    /// Derived while a cell is subscribed to or read.
    View,
}

/// The description of a relation, without its types.
pub(crate) struct RelationInfo {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The relation that an index groups, or whose keys a world rule follows.
    pub(crate) base: Option<usize>,
    pub(crate) new_table: fn() -> Box<dyn AnyTable>,
    /// Settles the relation in a commit.
    pub(crate) settle: fn(&mut Core, &mut Tx, usize),
    /// Assigns numbers to its fresh cells.
    pub(crate) adopt: fn(&mut Core, &mut Tx, usize),
    /// The cells of the base relation that a cell exists for: indexes and world rules.
    pub(crate) base_cell: fn(&Core, u32, usize) -> Vec<u32>,
    /// Copies all rows of an input into a batch.
    pub(crate) copy_rows: fn(&Core, usize, &mut Batch),
    /// Copies the subscriptions to another engine: views.
    pub(crate) copy_subscriptions: fn(&Core, usize, &mut Engine),
}

/// The relations of an engine.
pub(crate) struct Schema {
    pub(crate) relations: Vec<RelationInfo>,
    pub(crate) ids: FxHashMap<TypeId, u16>,
    pub(crate) threads: usize,
    pub(crate) parallel_from: usize,
}

/// A relation reads another one that is not registered before it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderError {
    /// The name of the relation that reads.
    pub reader: String,
    /// The name of the relation that it reads.
    pub read: String,
}

impl fmt::Display for OrderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads {}, which is not registered before it", self.reader, self.read)
    }
}

impl std::error::Error for OrderError {}

/// Registers the relations of an engine. The order matters: a relation may read only those registered before it, and is
/// settled after them.
///
/// Registering a relation twice, or before the one that it is built over, panics with the names.
pub struct Builder {
    schema: Schema,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self { schema: Schema { relations: Vec::new(), ids: FxHashMap::default(), threads: 1, parallel_from: 32 } }
    }

    /// Registers a table that is committed from outside.
    pub fn input<T: Input>(&mut self) -> &mut Self {
        let settle = input::settle::<T>;
        self.add::<T>(RelationInfo { copy_rows: compare::copy_rows::<T>, ..info::<T>(Kind::Input, None, settle) })
    }

    /// Registers an index over `I::Of`, which must be an input, an index or a world rule.
    pub fn index<I: Index>(&mut self) -> &mut Self {
        let base = self.enumerable::<I, I::Of>();
        let base_cell = index::member_cells::<I>;
        self.add::<I>(RelationInfo { base_cell, ..info::<I>(Kind::Index, Some(base), index::settle::<I>) })
    }

    /// Registers a rule that derives `R` for each key with a row in `Over`, which must be an input, an index or a world
    /// rule.
    pub fn world<R: Rule, Over: Relation<Key = R::Key>>(&mut self) -> &mut Self {
        let base = self.enumerable::<R, Over>();
        let base_cell = rule::over_cell::<R, Over>;
        self.add::<R>(RelationInfo { base_cell, ..info::<R>(Kind::World, Some(base), rule::settle_world::<R, Over>) })
    }

    /// Registers a rule that derives `V` for keys that are subscribed to or read by a live cell.
    pub fn view<V: Rule>(&mut self) -> &mut Self {
        self.add::<V>(RelationInfo {
            new_table: || Box::new(Table::<V>::new(Some(V::derive))),
            copy_subscriptions: compare::copy_subscriptions::<V>,
            ..info::<V>(Kind::View, None, rule::settle_view::<V>)
        })
    }

    /// Sets the maximum number of threads that run rules, including the caller's; 1 by default. It does not affect
    /// results.
    pub fn threads(&mut self, threads: usize) -> &mut Self {
        self.schema.threads = threads.max(1);
        self
    }

    /// Sets the number of cells of a relation from which they are derived on several threads; 32 by default. Starting
    /// threads costs tens of microseconds.
    pub fn parallel_from(&mut self, cells: usize) -> &mut Self {
        self.schema.parallel_from = cells;
        self
    }

    /// Checks that these relations can read each other, given as (reader, read). Unknown readers are ignored.
    ///
    /// Without this check, a wrong order of registration shows at the first read, as a panic of the rule.
    ///
    /// # Errors
    /// A reader was registered before a relation that it reads, or that relation is not registered.
    pub fn check_order<'a>(&self, reads: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), OrderError> {
        let position = |name: &str| self.schema.relations.iter().position(|relation| relation.name == name);
        for (reader, read) in reads {
            if let Some(at) = position(reader)
                && position(read).is_none_or(|read| read >= at)
            {
                return Err(OrderError { reader: reader.to_owned(), read: read.to_owned() });
            }
        }
        Ok(())
    }

    /// Builds the engine, without any rows.
    pub fn build(self) -> Engine {
        Engine::empty(Arc::new(self.schema))
    }

    fn add<R: Relation>(&mut self, info: RelationInfo) -> &mut Self {
        let id = self.schema.relations.len() as u16;
        assert!(id < u16::MAX, "flow: too many relations");
        let before = self.schema.ids.insert(TypeId::of::<R>(), id);
        assert!(before.is_none(), "flow: {} is registered twice", R::NAME);
        self.schema.relations.push(info);
        self
    }

    fn enumerable<R: Relation, Over: Relation>(&self) -> usize {
        let over = self.schema.ids.get(&TypeId::of::<Over>()).map(|id| usize::from(*id));
        let Some(over) = over else { panic!("flow: {} is over {}, which is not registered yet", R::NAME, Over::NAME) };
        let kind = self.schema.relations[over].kind;
        assert!(kind != Kind::View, "flow: {} is over the view {}, which has no key set", R::NAME, Over::NAME);
        over
    }
}

/// The description that all kinds start from.
fn info<R: Relation>(kind: Kind, base: Option<usize>, settle: fn(&mut Core, &mut Tx, usize)) -> RelationInfo {
    RelationInfo {
        name: R::NAME,
        kind,
        base,
        new_table: || Box::new(Table::<R>::new(None)),
        settle,
        adopt: adopt::<R>,
        base_cell: |_, _, _| Vec::new(),
        copy_rows: |_, _, _| {},
        copy_subscriptions: |_, _, _| {},
    }
}
