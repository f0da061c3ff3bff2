//! A subscriber's end.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::mpsc::{self, error::TryRecvError};

use super::view::{Batch, Board};
use crate::{GroupResource, Stored};

/// What happens to the objects of a type in a view.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object is there that was not.
    Added(Stored),
    /// An object is another than it was.
    Modified {
        /// What it was.
        before: Stored,
        /// What it is.
        now: Stored,
    },
    /// An object is gone. What it was.
    Deleted(Stored),
    /// The subscriber was too slow and has missed something: what it knows is void. The objects as they are follow, as
    /// added.
    Restart,
}

/// Follows the objects of one type. Holds a queue with an end, and the objects that it was given to begin with.
pub struct Subscription {
    board: Arc<Board>,
    resource: GroupResource,
    /// Taken from the queue, or the objects to begin with; not yet returned.
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

    /// Waits for the next event. None: the view has ended. Safe to cancel.
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

    /// The next event if there is one already.
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

    /// Takes the objects as they are and a new queue: at the beginning, and when the view let go of the old queue, for it
    /// was full or the view has ended.
    fn join(&mut self, first: Option<Event>) {
        self.queue = None;
        if let Some((objects, queue)) = self.board.join(&self.resource) {
            self.ready.extend(first);
            self.ready.extend(objects.into_iter().map(Event::Added));
            self.queue = Some(queue);
        }
    }
}
