//! The relations of an engine, their order, and the builder that registers them.

use std::any::TypeId;
use std::fmt;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::engine::Engine;
use crate::erased::{self, AnyKey, AnyRow, SharedRow};
use crate::run::{self, Outcome};
use crate::table::{AnyPages, Pages};
use crate::{Index, Input, Reads, Relation, Rule};

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

/// Derives a row and compares it with the previous one: [`run::derive`] for a rule.
pub(crate) type Derive = fn(&Reads<'_>, &dyn AnyKey, Option<&SharedRow>) -> Outcome;

/// The index keys of a row, see [`Index::keys`].
pub(crate) type IndexKeys = fn(&dyn AnyKey, &dyn AnyRow) -> Vec<Box<dyn AnyKey>>;

/// The description of a relation, without its types.
pub(crate) struct RelationInfo {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The relation that an index groups, or whose keys a world rule follows.
    pub(crate) base: Option<usize>,
    /// Creates the pages of its table.
    pub(crate) pages: fn() -> Box<dyn AnyPages>,
    /// The rule of a world rule or a view.
    pub(crate) derive: Option<Derive>,
    /// The keys of an index.
    pub(crate) keys: Option<IndexKeys>,
}

/// The relations of an engine.
pub(crate) struct Schema {
    pub(crate) relations: Vec<RelationInfo>,
    pub(crate) ids: FxHashMap<TypeId, u16>,
    pub(crate) threads: usize,
    pub(crate) parallel_from: usize,
}

impl Schema {
    /// The number of a relation, if it is registered.
    #[inline]
    pub(crate) fn relation<R: Relation>(&self) -> Option<usize> {
        self.ids.get(&TypeId::of::<R>()).map(|id| usize::from(*id))
    }
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
        self.add(info::<T>(Kind::Input, None))
    }

    /// Registers an index over `I::Of`, which must be an input, an index or a world rule.
    pub fn index<I: Index>(&mut self) -> &mut Self {
        let base = self.enumerable::<I, I::Of>();
        self.add(RelationInfo { keys: Some(index_keys::<I>), ..info::<I>(Kind::Index, Some(base)) })
    }

    /// Registers a rule that derives `R` for each key with a row in `Over`, which must be an input, an index or a world
    /// rule.
    pub fn world<R: Rule, Over: Relation<Key = R::Key>>(&mut self) -> &mut Self {
        let base = self.enumerable::<R, Over>();
        self.add(RelationInfo { derive: Some(run::derive::<R>), ..info::<R>(Kind::World, Some(base)) })
    }

    /// Registers a rule that derives `V` for keys that are subscribed to or read by a live cell.
    pub fn view<V: Rule>(&mut self) -> &mut Self {
        self.add(RelationInfo { derive: Some(run::derive::<V>), ..info::<V>(Kind::View, None) })
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

    fn add(&mut self, info: RelationInfo) -> &mut Self {
        let id = self.schema.relations.len() as u16;
        assert!(id < u16::MAX, "flow: too many relations");
        let before = self.schema.ids.insert(info.id, id);
        assert!(before.is_none(), "flow: {} is registered twice", info.name);
        self.schema.relations.push(info);
        self
    }

    fn enumerable<R: Relation, Over: Relation>(&self) -> usize {
        let Some(over) = self.schema.relation::<Over>() else {
            panic!("flow: {} is over {}, which is not registered yet", R::NAME, Over::NAME)
        };
        let kind = self.schema.relations[over].kind;
        assert!(kind != Kind::View, "flow: {} is over the view {}, which has no key set", R::NAME, Over::NAME);
        over
    }
}

/// The description that all kinds start from.
fn info<R: Relation>(kind: Kind, base: Option<usize>) -> RelationInfo {
    let (id, pages) = (TypeId::of::<R>(), Pages::<R::Key>::boxed as fn() -> _);
    RelationInfo { id, name: R::NAME, kind, base, pages, derive: None, keys: None }
}

fn index_keys<I: Index>(key: &dyn AnyKey, row: &dyn AnyRow) -> Vec<Box<dyn AnyKey>> {
    let keys = I::keys(erased::key(key), erased::row(row));
    keys.into_iter().map(|key| Box::new(key) as Box<dyn AnyKey>).collect()
}
