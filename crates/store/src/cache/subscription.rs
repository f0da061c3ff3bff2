//! Subscriptions to a cache.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TryRecvError};

use super::view::{Batch, Board};
use crate::{GroupResource, Stored};

/// An event of a cached type.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object was added.
    Added(Stored),
    /// An object was modified.
    Modified {
        /// The previous version.
        before: Stored,
        /// The new version.
        now: Stored,
    },
    /// An object was deleted: its last version.
    Deleted(Stored),
    /// The subscriber was too slow and missed events. The current objects follow as added.
    Restart,
}

/// A subscription to the objects of one type. Holds a bounded queue and the initial objects.
pub struct Subscription {
    board: Arc<Board>,
    resource: GroupResource,
    /// Received or initial events that were not returned yet.
    ready: VecDeque<Event>,
    queue: Option<mpsc::Receiver<Batch>>,
}

impl Subscription {
    pub(super) fn new(board: Arc<Board>, resource: GroupResource) -> Subscription {
        let mut subscription = Subscription {
            board,
            resource,
            ready: VecDeque::new(),
            queue: None,
        };
        subscription.join(None);
        subscription
    }

    /// Waits for the next event. `None` when the cache has ended. Cancel safe.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            match self.queue.as_mut()?.recv().await {
                Some(batch) => self.ready.extend(batch.iter().cloned()),
                None => self.join(Some(Event::Restart)),
            }
        }
    }

    /// Returns the next event if one is available.
    pub fn try_next(&mut self) -> Option<Event> {
        if self.ready.is_empty() {
            match self.queue.as_mut()?.try_recv() {
                Ok(batch) => self.ready.extend(batch.iter().cloned()),
                Err(TryRecvError::Disconnected) => self.join(Some(Event::Restart)),
                Err(TryRecvError::Empty) => {}
            }
        }
        self.ready.pop_front()
    }

    /// Takes the current objects and a new queue: initially, and when the old queue ended because it was full or the
    /// cache has ended.
    fn join(&mut self, first: Option<Event>) {
        self.queue = None;
        if let Some((objects, queue)) = self.board.join(&self.resource) {
            self.ready.extend(first);
            self.ready.extend(objects.into_iter().map(Event::Added));
            self.queue = Some(queue);
        }
    }
}
