//! Follows the objects of some types of a store: lists them, then yields their changes.
//!
//! After a gap (the watch fell behind, or the store was restored from a backup) everything is listed again. While the
//! store is unavailable, attempts are repeated with backoff.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::{At, Change, Error, GroupResource, Query, Revision, Scope, Store, Stored, Watch, WatchEvent};

/// The backoff after a first failure. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The maximum backoff.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// An event of a [`Follower`].
#[derive(Clone, Debug)]
pub enum Event {
    /// All objects, at one revision. Objects that are not listed do not exist any more.
    Listed(Vec<Stored>),
    /// Later changes, in whole transactions.
    Changed(Vec<Arc<Change>>),
}

/// Follows some types of a store. An unread follower uses no memory and falls behind.
pub struct Follower {
    store: Arc<dyn Store>,
    types: Vec<GroupResource>,
    watch: Option<Watch>,
    /// All changes up to this revision were yielded; `None` to list again.
    place: Option<Revision>,
    /// The time of the next attempt.
    at: Instant,
    wait: Duration,
}

impl Follower {
    /// Creates a follower of these types. Nothing is read before [`Follower::next`].
    pub fn new(store: Arc<dyn Store>, types: Vec<GroupResource>) -> Follower {
        Follower { store, types, watch: None, place: None, at: Instant::now(), wait: FIRST_WAIT }
    }

    /// Waits for the next event; the first is a list. `None` when the store was closed. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let error = match self.step().await {
                Ok(Some(event)) => return Some(event),
                Ok(None) => continue,
                Err(error) => error,
            };
            self.watch = None;
            match error {
                Error::Closed => return None,
                // The watch fell behind, or the store was replaced.
                Error::Compacted { .. } | Error::Future { .. } if self.place.is_some() => self.place = None,
                error => {
                    tracing::debug!(%error, "cannot follow the store, will retry");
                    self.at = Instant::now() + self.wait;
                    self.wait = (self.wait * 2).min(LONGEST_WAIT);
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Option<Event>, Error> {
        sleep_until(self.at).await;
        let Some(place) = self.place else {
            let (objects, revision) = self.list().await?;
            self.watch = Some(self.store.watch(&self.scope(), revision).await?);
            self.place = Some(revision);
            return Ok(Some(Event::Listed(objects)));
        };
        let Some(watch) = &mut self.watch else {
            self.watch = Some(self.store.watch(&self.scope(), place).await?);
            return Ok(None);
        };
        let event = watch.next().await?;
        self.wait = FIRST_WAIT;
        match event {
            WatchEvent::Bookmark(revision) => {
                self.place = Some(place.max(revision));
                Ok(None)
            }
            WatchEvent::Changes(mut changes) => {
                self.place = changes.last().map(|change| change.revision).or(self.place);
                changes.retain(|change| self.types.contains(&change.key.resource));
                Ok((!changes.is_empty()).then_some(Event::Changed(changes)))
            }
        }
    }

    /// The watched scope: one type, or everything if there are several types.
    fn scope(&self) -> Scope {
        Scope {
            resource: match &self.types[..] {
                [only] => Some(only.clone()),
                _ => None,
            },
            ..Scope::default()
        }
    }

    /// Lists all objects at one revision.
    async fn list(&self) -> Result<(Vec<Stored>, Revision), Error> {
        let (mut objects, mut at) = (Vec::new(), At::Latest);
        let mut revision = self.store.revision().await?;
        for resource in &self.types {
            let query = Query { at, ..Query::of(resource.clone()) };
            let list = self.store.list(&query).await?;
            objects.extend(list.items);
            revision = list.revision;
            at = At::Exactly(revision);
        }
        Ok((objects, revision))
    }
}
