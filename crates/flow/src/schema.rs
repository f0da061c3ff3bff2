//! Which relations an engine has, in which order, and how each is settled; and the builder that says so.

use std::any::TypeId;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::compare;
use crate::core::Core;
use crate::engine::Engine;
use crate::settle::{adopt, index, input, rule};
use crate::table::{AnyTable, Table};
use crate::tx::Tx;
use crate::{Batch, Index, Input, Relation, Rule};

/// How the rows of a relation come about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Committed from outside.
    Input,
    /// Groups the keys of another relation.
    Index,
    /// Derived for each key of another relation.
    World,
    /// Derived while somebody subscribes to it or reads it.
    View,
}

/// All that is known of a relation without its types.
pub(crate) struct RelationInfo {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The relation that an index groups, or for whose keys a world rule is derived.
    pub(crate) base: Option<usize>,
    pub(crate) new_table: fn() -> Box<dyn AnyTable>,
    /// Applies what a commit means for this relation.
    pub(crate) settle: fn(&mut Core, &mut Tx, usize),
    /// Gives its fresh cells their numbers.
    pub(crate) adopt: fn(&mut Core, &mut Tx, usize),
    /// The cell of the base relation with the same key: world rules.
    pub(crate) base_cell: fn(&Core, u32, usize) -> Vec<u32>,
    /// Puts all rows of an input into a batch.
    pub(crate) copy_rows: fn(&Core, usize, &mut Batch),
    /// Subscribes another engine to what is subscribed here: views.
    pub(crate) copy_subscriptions: fn(&Core, usize, &mut Engine),
}

/// The relations of an engine.
pub(crate) struct Schema {
    pub(crate) relations: Vec<RelationInfo>,
    pub(crate) ids: FxHashMap<TypeId, u16>,
    pub(crate) threads: usize,
    pub(crate) parallel_from: usize,
}

/// Says which relations an engine has. The order matters: a relation may read only those that were registered before
/// it, and is settled after them.
///
/// A relation is registered once; registering it again, or before the one that it is built over, panics with names.
pub struct Builder {
    schema: Schema,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            schema: Schema {
                relations: Vec::new(),
                ids: FxHashMap::default(),
                threads: 1,
                parallel_from: 32,
            },
        }
    }

    /// A table that is committed from outside.
    pub fn input<T: Input>(&mut self) -> &mut Self {
        let settle = input::settle::<T>;
        self.add::<T>(RelationInfo {
            copy_rows: compare::copy_rows::<T>,
            ..info::<T>(Kind::Input, None, settle)
        })
    }

    /// Groups the keys of `I::Of`, which is an input, an index or a world rule registered before.
    pub fn index<I: Index>(&mut self) -> &mut Self {
        let base = self.enumerable::<I, I::Of>();
        let base_cell = index::member_cells::<I>;
        self.add::<I>(RelationInfo {
            base_cell,
            ..info::<I>(Kind::Index, Some(base), index::settle::<I>)
        })
    }

    /// Derives `R` for each key that has a row in `Over`, which is an input, an index or a world rule registered before.
    pub fn world<R: Rule, Over: Relation<Key = R::Key>>(&mut self) -> &mut Self {
        let base = self.enumerable::<R, Over>();
        let base_cell = rule::over_cell::<R, Over>;
        self.add::<R>(RelationInfo {
            base_cell,
            ..info::<R>(Kind::World, Some(base), rule::settle_world::<R, Over>)
        })
    }

    /// Derives `V` for the keys that are subscribed to, or read by a cell that lives.
    pub fn view<V: Rule>(&mut self) -> &mut Self {
        self.add::<V>(RelationInfo {
            new_table: || Box::new(Table::<V>::new(Some(V::derive))),
            copy_subscriptions: compare::copy_subscriptions::<V>,
            ..info::<V>(Kind::View, None, rule::settle_view::<V>)
        })
    }

    /// On how many threads rules run at most, the caller's included; 1 unless said otherwise. Results do not depend on it.
    pub fn threads(&mut self, threads: usize) -> &mut Self {
        self.schema.threads = threads.max(1);
        self
    }

    /// From how many cells of a relation on they are derived on several threads; 32 unless said otherwise. Starting
    /// threads costs some tens of microseconds.
    pub fn parallel_from(&mut self, cells: usize) -> &mut Self {
        self.schema.parallel_from = cells;
        self
    }

    /// The engine, without any rows.
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
        let Some(over) = over else {
            panic!("flow: {} is over {}, which is not registered yet", R::NAME, Over::NAME)
        };
        let kind = self.schema.relations[over].kind;
        assert!(
            kind != Kind::View,
            "flow: {} is over the view {}, which has no key set",
            R::NAME,
            Over::NAME
        );
        over
    }
}

/// What all kinds have in common.
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
