//! The messages that the world's thread has not processed.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::core::Message;

/// The maximum number of messages that are taken from the queue and not processed.
const TAKEN: usize = 1024;

/// Messages in order.
pub(crate) struct Inbox {
    queue: mpsc::Receiver<Message>,
    taken: VecDeque<Message>,
}

impl Inbox {
    pub(crate) fn new(queue: mpsc::Receiver<Message>) -> Inbox {
        Inbox { queue, taken: VecDeque::new() }
    }

    /// Takes messages that have arrived, if there are not too many already.
    pub(crate) fn fill(&mut self) {
        while self.taken.len() < TAKEN
            && let Ok(message) = self.queue.try_recv()
        {
            self.taken.push_back(message);
        }
    }

    /// Waits for a message. Returns false if there will be none.
    pub(crate) async fn wait(&mut self) -> bool {
        let message = self.queue.recv().await;
        let is_open = message.is_some();
        self.taken.extend(message);
        is_open
    }

    /// The next message that was taken.
    pub(crate) fn pop(&mut self) -> Option<Message> {
        self.taken.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// Puts messages back, before all others.
    pub(crate) fn put_back(&mut self, mut messages: VecDeque<Message>) {
        messages.append(&mut self.taken);
        self.taken = messages;
    }
}
