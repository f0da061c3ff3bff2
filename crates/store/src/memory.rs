//! A store in memory: for tests, demonstrations, and processes that read everything from elsewhere at each start.
//!
//! History is kept within the [`Limits`]. Older revisions are compacted automatically.

use std::sync::Arc;
use std::time::SystemTime;

use crate::prepared::Prepared;
use crate::shared::Shared;
use crate::state::{Draft, State};
use crate::{
    Committed, Error, Key, Limits, List, Query, Revision, Scope, Store, StoreSize, Stored, Transaction, Version, Watch,
};

/// A store in memory. Clones share it.
#[derive(Clone)]
pub struct Memory {
    shared: Arc<Shared>,
}

impl Memory {
    /// Creates an empty store.
    pub fn new(limits: Limits) -> Memory {
        Memory { shared: Arc::new(Shared::new(State::empty(&limits), limits)) }
    }

    /// Creates an empty store at this revision. Earlier ones are compacted.
    pub fn starting_at(first: Revision, limits: Limits) -> Memory {
        Memory { shared: Arc::new(Shared::new(State::of(&limits, first.max(State::FIRST), []), limits)) }
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new(Limits::default())
    }
}

#[async_trait::async_trait]
impl Store for Memory {
    async fn get(&self, key: &Key) -> Result<Option<Stored>, Error> {
        Ok(self.shared.open()?.get(key).cloned())
    }

    async fn list(&self, query: &Query) -> Result<List, Error> {
        self.shared.open()?.list(query)
    }

    async fn snapshot(&self, scope: &Scope) -> Result<List, Error> {
        Ok(self.shared.open()?.snapshot(scope))
    }

    async fn commit(&self, transaction: Transaction) -> Result<Committed, Error> {
        drop(self.shared.open()?);
        let transaction = Prepared::new(transaction)?;
        self.shared.write(|state| {
            let mut draft = Draft::new(state, self.shared.limits());
            let result = draft.add(state, transaction, SystemTime::now());
            (draft.batches, result)
        })
    }

    async fn watch(&self, scope: &Scope, after: Revision) -> Result<Watch, Error> {
        self.shared.watch(scope, after)
    }

    async fn revision(&self) -> Result<Revision, Error> {
        Ok(self.shared.open()?.revision())
    }

    async fn history(&self, key: &Key, limit: usize) -> Result<Vec<Version>, Error> {
        let state = self.shared.open()?;
        Ok(state.ring.versions(key, state.get(key), limit))
    }

    async fn compact(&self, upto: Revision) -> Result<(), Error> {
        let newest = self.shared.open()?.revision();
        if upto > newest {
            let requested = upto;
            return Err(Error::Future { requested, newest });
        }
        self.shared.forget(upto);
        Ok(())
    }

    fn size(&self) -> Option<StoreSize> {
        Some(StoreSize { objects: self.shared.read().counts(), file_bytes: None })
    }

    async fn close(&self) {
        self.shared.close();
    }
}
