//! The current state, its recent history, and the effect of transactions on them. Pure: no locks, no waiting.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::time::SystemTime;

use crate::prepared::Prepared;
use crate::ring::{Batch, Ring};
use crate::{
    At, Change, Committed, Continue, Error, GroupResource, Key, Limits, List, Operation, Query, Revision, Scope, Stored,
};

type Name = (Arc<str>, Arc<str>);
/// The objects of one type.
type Objects = BTreeMap<Name, Stored>;

/// All current objects, and the recent changes.
#[derive(Debug)]
pub(crate) struct State {
    types: BTreeMap<GroupResource, Objects>,
    pub(crate) ring: Ring,
}

impl State {
    /// The revision of a new store.
    pub(crate) const FIRST: Revision = 1;

    /// A new store at [`State::FIRST`].
    pub(crate) fn empty(limits: &Limits) -> State {
        State::of(limits, State::FIRST, [])
    }

    /// A state with these objects at a revision and without history. Batches may then be pushed into the ring.
    pub(crate) fn of(limits: &Limits, oldest: Revision, objects: impl IntoIterator<Item = Stored>) -> State {
        let mut types = BTreeMap::<GroupResource, Objects>::new();
        for object in objects {
            let name = name_of(&object.key);
            types.entry(object.key.resource.clone()).or_default().insert(name, object);
        }
        State { types, ring: Ring::new(limits, oldest) }
    }

    /// The number of current objects, by type.
    pub(crate) fn counts(&self) -> Vec<(GroupResource, usize)> {
        self.types.iter().map(|(resource, objects)| (resource.clone(), objects.len())).collect()
    }

    /// The newest revision.
    pub(crate) fn revision(&self) -> Revision {
        self.ring.newest()
    }

    /// The current version of an object.
    pub(crate) fn get(&self, key: &Key) -> Option<&Stored> {
        self.types.get(&key.resource)?.get(&name_of(key))
    }

    /// Applies the next batch.
    pub(crate) fn apply(&mut self, batch: Batch) {
        for change in &batch.changes {
            let resource = &change.key.resource;
            match &change.after {
                Some(object) => {
                    let objects = match self.types.get_mut(resource) {
                        Some(objects) => objects,
                        None => self.types.entry(resource.clone()).or_default(),
                    };
                    objects.insert(name_of(&change.key), object.clone());
                }
                None => {
                    if let Some(objects) = self.types.get_mut(resource) {
                        objects.remove(&name_of(&change.key));
                        if objects.is_empty() {
                            self.types.remove(resource);
                        }
                    }
                }
            }
        }
        self.ring.push(batch);
    }

    /// Answers a query, if the ring contains its revision.
    ///
    /// # Errors
    /// [`Error::Compacted`] or [`Error::Future`].
    pub(crate) fn list(&self, query: &Query) -> Result<List, Error> {
        let revision = read_revision(query, self.revision())?;
        if revision < self.ring.oldest() {
            return Err(Error::Compacted { requested: revision, oldest: self.ring.oldest() });
        }
        let mut page = Page::new(query);
        let empty = Objects::new();
        let now = self.types.get(&query.resource).unwrap_or(&empty);
        let mut now =
            now.range((start(query), Bound::Unbounded)).take_while(|(name, _)| in_namespace(query, name)).peekable();
        let undone = self.undone(query, revision);
        let mut undone = undone.range((start(query), Bound::Unbounded)).peekable();
        // Both are ordered by name. An entry of `undone` replaces the current object.
        loop {
            let take_undone = match (now.peek(), undone.peek()) {
                (None, None) => break,
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some((current, _)), Some((old, _))) => old <= current,
            };
            let object = if take_undone {
                let Some((name, object)) = undone.next() else { break };
                now.next_if(|(current, _)| *current == name);
                object.as_ref()
            } else {
                now.next().map(|(_, object)| object)
            };
            if object.is_some_and(|object| !page.offer(object)) {
                break;
            }
        }
        Ok(page.finish(revision))
    }

    /// All current objects of a scope.
    pub(crate) fn snapshot(&self, scope: &Scope) -> List {
        let types =
            self.types.iter().filter(|(resource, _)| scope.resource.as_ref().is_none_or(|wanted| wanted == *resource));
        let objects = types.flat_map(|(_, objects)| objects.values());
        List {
            items: objects.filter(|object| scope.contains(&object.key)).cloned().collect(),
            revision: self.revision(),
            next: None,
            remaining: None,
        }
    }

    /// The versions at a revision of those objects of a type and namespace that changed since; `None` if absent then.
    fn undone(&self, query: &Query, revision: Revision) -> BTreeMap<Name, Option<Stored>> {
        let mut undone = BTreeMap::new();
        for batch in self.ring.touching(Some(&query.resource), revision) {
            for change in batch.changes.iter().filter(|change| change.key.resource == query.resource) {
                let name = name_of(&change.key);
                if in_namespace(query, &name) {
                    undone.entry(name).or_insert_with(|| change.before.clone());
                }
            }
        }
        undone
    }
}

/// The revision at which a query is answered.
///
/// # Errors
/// [`Error::Future`].
pub(crate) fn read_revision(query: &Query, newest: Revision) -> Result<Revision, Error> {
    let (requested, revision) = match (&query.after, query.at) {
        (Some(token), _) => (token.revision, token.revision),
        (None, At::Latest) => return Ok(newest),
        (None, At::NotOlderThan(least)) => (least, newest),
        (None, At::Exactly(revision)) => (revision, revision),
    };
    if requested > newest {
        return Err(Error::Future { requested, newest });
    }
    Ok(revision)
}

/// One page of a list.
pub(crate) struct Page<'q> {
    query: &'q Query,
    items: Vec<Stored>,
    remaining: u64,
}

impl<'q> Page<'q> {
    pub(crate) fn new(query: &'q Query) -> Page<'q> {
        Page { query, items: Vec::new(), remaining: 0 }
    }

    /// Adds the next object if it matches and there is room. Returns false when no more objects are needed.
    pub(crate) fn offer(&mut self, object: &Stored) -> bool {
        if !self.query.selects(object) {
            return true;
        }
        if self.query.limit == 0 || self.items.len() < self.query.limit {
            self.items.push(object.clone());
            return true;
        }
        self.remaining += 1;
        self.counts()
    }

    pub(crate) fn finish(self, revision: Revision) -> List {
        let last = self.items.last().filter(|_| self.remaining > 0);
        List {
            next: last.map(|last| Continue {
                revision,
                namespace: last.key.namespace.clone(),
                name: last.key.name.clone(),
            }),
            remaining: last.filter(|_| self.counts()).map(|_| self.remaining),
            items: self.items,
            revision,
        }
    }

    /// Whether the objects after the page are counted. With selectors that would require evaluating all of them.
    fn counts(&self) -> bool {
        self.query.labels.is_empty() && self.query.fields.is_empty()
    }
}

/// Transactions, each with its own revision, on top of a state that they do not modify.
#[derive(Debug)]
pub(crate) struct Draft {
    /// The results of the transactions so far.
    written: HashMap<Key, Option<Stored>>,
    /// The batches to apply, ascending.
    pub(crate) batches: Vec<Batch>,
    newest: Revision,
    object_bytes: usize,
}

impl Draft {
    /// An empty draft on top of this state.
    pub(crate) fn new(state: &State, limits: &Limits) -> Draft {
        Draft {
            written: HashMap::new(),
            batches: Vec::new(),
            newest: state.revision(),
            object_bytes: limits.object_bytes,
        }
    }

    /// Adds a transaction atomically.
    ///
    /// # Errors
    /// A failed precondition, or [`Error::TooLarge`].
    pub(crate) fn add(&mut self, state: &State, transaction: Prepared, time: SystemTime) -> Result<Committed, Error> {
        let revision = self.newest + 1;
        let (mut objects, mut changes) = (Vec::new(), Vec::new());
        for operation in transaction.operations {
            let before = match self.written.get(operation.key()) {
                Some(written) => written.clone(),
                None => state.get(operation.key()).cloned(),
            };
            operation.expect().check(operation.key(), before.as_ref().map(|object| object.revision))?;
            match operation {
                Operation::Put { key, value, .. } => {
                    let after = self.fitting(value.seal(key.clone(), revision))?;
                    changes.push(Arc::new(Change::new(key, revision, before, Some(after.clone()))));
                    objects.push(Some(after));
                }
                Operation::Delete { key, .. } => {
                    if before.is_some() {
                        changes.push(Arc::new(Change::new(key, revision, before.clone(), None)));
                    }
                    objects.push(before);
                }
                Operation::Check { .. } => objects.push(before),
            }
        }
        if changes.is_empty() {
            let revision = self.newest;
            return Ok(Committed { revision, objects });
        }
        self.newest = revision;
        for change in &changes {
            self.written.insert(change.key.clone(), change.after.clone());
        }
        self.batches.push(Batch { revision, time, changes });
        Ok(Committed { revision, objects })
    }

    fn fitting(&self, object: Stored) -> Result<Stored, Error> {
        if object.json.len() <= self.object_bytes {
            return Ok(object);
        }
        Err(Error::TooLarge { key: object.key, bytes: object.json.len(), limit: self.object_bytes })
    }
}

fn name_of(key: &Key) -> Name {
    (key.namespace.clone(), key.name.clone())
}

fn in_namespace(query: &Query, name: &Name) -> bool {
    query.namespace.as_ref().is_none_or(|namespace| *namespace == name.0)
}

/// The start of the range of a query.
fn start(query: &Query) -> Bound<Name> {
    let namespace = query.namespace.clone().unwrap_or_else(|| Arc::from(""));
    match &query.after {
        Some(token) if token.namespace >= namespace => Bound::Excluded((token.namespace.clone(), token.name.clone())),
        _ => Bound::Included((namespace, Arc::from(""))),
    }
}
