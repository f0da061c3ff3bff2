//! Following changes.

use std::sync::{Arc, OnceLock};

use crate::{Error, Key, Revision, Stored};

/// One object's change. All watches share it.
#[derive(Debug)]
pub struct Change {
    /// The object.
    pub key: Key,
    /// When.
    pub revision: Revision,
    /// What it was; none: it was not there. A home that does not know any more what it was ends the watch instead.
    pub before: Option<Stored>,
    /// What it is; none: it was deleted.
    pub after: Option<Stored>,
    /// Made when first asked for, once for all watches.
    gone: OnceLock<Option<Stored>>,
}

impl Change {
    /// A change of an object at a revision.
    pub fn new(key: Key, revision: Revision, before: Option<Stored>, after: Option<Stored>) -> Change {
        Change {
            key,
            revision,
            before,
            after,
            gone: OnceLock::new(),
        }
    }

    /// The last word about the object to somebody for whom it is gone: what it was, at this revision. None: it was not
    /// there before.
    pub fn gone(&self) -> Option<&Stored> {
        let gone = self
            .gone
            .get_or_init(|| self.before.as_ref().map(|before| before.restamped(self.revision)));
        gone.as_ref()
    }

    /// How many bytes it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        const OVERHEAD: usize = 256;
        let json = |object: &Option<Stored>| object.as_ref().map_or(0, |object| object.json.len());
        OVERHEAD + json(&self.before) + json(&self.after)
    }
}

/// What a watch yields.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// Changes, ascending by revision; those of one transaction are never torn apart.
    Changes(Vec<Arc<Change>>),
    /// Everything up to this revision was yielded.
    Bookmark(Revision),
}

/// Where a [`Watch`] gets its moments from.
#[async_trait::async_trait]
pub trait Feed: Send + Sync {
    /// Waits for the next moment. Safe to cancel: a moment that was not returned comes again.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the watch fell behind; or the home went away for good. Nothing comes after an error.
    async fn next(&mut self) -> Result<WatchEvent, Error>;
}

/// Follows the changes of a scope. It holds a place in the store's history and no queue of its own: one that is not read
/// costs nothing, and falls behind.
pub struct Watch(Box<dyn Feed>);

impl Watch {
    /// A watch over this feed.
    pub fn new(feed: impl Feed + 'static) -> Watch {
        Watch(Box::new(feed))
    }

    /// Waits for the next moment. Safe to cancel.
    ///
    /// # Errors
    /// [`Error::Compacted`] when the watch fell behind; or the home went away for good. Nothing comes after an error.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        self.0.next().await
    }
}
