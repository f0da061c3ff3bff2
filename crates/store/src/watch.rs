//! Watches.

use std::sync::{Arc, OnceLock};

use crate::{Error, Key, Revision, Stored};

/// A change of one object. All watches share it.
#[derive(Debug)]
pub struct Change {
    /// The object.
    pub key: Key,
    /// The revision.
    pub revision: Revision,
    /// The previous version; `None` if the object did not exist. A backend that no longer has the previous version ends
    /// the watch instead.
    pub before: Option<Stored>,
    /// The new version; `None` if the object was deleted.
    pub after: Option<Stored>,
    /// Created on first use, once for all watches.
    gone: OnceLock<Option<Stored>>,
}

impl Change {
    /// Creates a change.
    pub fn new(key: Key, revision: Revision, before: Option<Stored>, after: Option<Stored>) -> Change {
        Change { key, revision, before, after, gone: OnceLock::new() }
    }

    /// The object for deletion events: the previous version with this revision. `None` if there was none.
    pub fn gone(&self) -> Option<&Stored> {
        let gone = self.gone.get_or_init(|| self.before.as_ref().map(|before| before.restamped(self.revision)));
        gone.as_ref()
    }

    /// The approximate size in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const OVERHEAD: usize = 256;
        let json = |object: &Option<Stored>| object.as_ref().map_or(0, |object| object.json.len());
        OVERHEAD + json(&self.before) + json(&self.after)
    }
}

/// An event of a watch.
#[derive(Clone, Debug)]
pub enum WatchEvent {
    /// Changes, ascending by revision. The changes of one transaction are never split.
    Changes(Vec<Arc<Change>>),
    /// All changes up to this revision were yielded.
    Bookmark(Revision),
}

/// The source of a [`Watch`]'s events.
#[async_trait::async_trait]
pub trait Feed: Send + Sync {
    /// Waits for the next event. Cancel safe: an event that was not returned is not lost.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the watch fell behind; or the backend failed permanently. Nothing follows an error.
    async fn next(&mut self) -> Result<WatchEvent, Error>;
}

/// Watches the changes of a scope. It holds a position in the store's history instead of a queue: an unread watch uses
/// no memory and falls behind.
pub struct Watch(Box<dyn Feed>);

impl Watch {
    /// Creates a watch from a feed.
    pub fn new(feed: impl Feed + 'static) -> Watch {
        Watch(Box::new(feed))
    }

    /// Waits for the next event. Cancel safe.
    ///
    /// # Errors
    /// [`Error::Compacted`] if the watch fell behind; or the backend failed permanently. Nothing follows an error.
    pub async fn next(&mut self) -> Result<WatchEvent, Error> {
        self.0.next().await
    }
}
