//! The queue of certificate requests: signatures are made on threads that may block, one for each processor, and an address
//! has a limited number of requests in the queue.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::per_address::PerAddress;

/// The number of requests in the queue. When it is reached, further ones are refused.
const QUEUED: usize = 4096;
/// The number of requests of one address in the queue. Further ones of this address wait outside of it; the number of streams
/// on a connection limits them.
const QUEUED_PER_ADDRESS: usize = 32;

/// The queue.
pub(super) struct Queue {
    running: Semaphore,
    queued: Semaphore,
    clients: PerAddress<Semaphore>,
}

/// The place of a request in the queue.
#[allow(dead_code, reason = "it is only dropped")]
pub(super) struct Place<'q>(OwnedSemaphorePermit, tokio::sync::SemaphorePermit<'q>, Arc<Semaphore>);

impl Queue {
    pub(super) fn new() -> Queue {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Queue { running: Semaphore::new(processors), queued: Semaphore::new(QUEUED), clients: PerAddress::default() }
    }

    /// Waits for a place among those of an address. `None` if the queue is full.
    pub(super) async fn place(&self, client: Option<IpAddr>) -> Option<Place<'_>> {
        let own = self.clients.get(client, || Semaphore::new(QUEUED_PER_ADDRESS));
        let place = own.clone().acquire_owned().await.ok()?;
        let queued = self.queued.try_acquire().ok()?;
        Some(Place(place, queued, own))
    }

    /// Runs work that takes processor time. `None` if the queue is full, or if the work panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        client: Option<IpAddr>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _place = self.place(client).await?;
        let _running = self.running.acquire().await.ok()?;
        tokio::task::spawn_blocking(work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn an_address_does_not_use_up_the_queue() {
        let queue = Queue::new();
        let (one, other) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        let mut places = Vec::new();
        while let Some(place) = queue.place(one).now_or_never() {
            places.push(place.expect("the queue is not full"));
        }
        assert_eq!(places.len(), QUEUED_PER_ADDRESS);
        assert_eq!(queue.run(other, || 5).await, Some(5));
        places.pop();
        assert!(queue.place(one).now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_full_queue_refuses() {
        let queue = Queue { queued: Semaphore::new(1), ..Queue::new() };
        let place = queue.place(None).await;
        assert_eq!(queue.run(None, || ()).await, None);
        drop(place);
        assert_eq!(queue.run(None, || ()).await, Some(()));
    }
}
