//! The memory for requests that are being received.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::per_address::PerAddress;

/// Requests up to this size, in bytes, are not counted. The window of HTTP/2 limits them.
pub(crate) const SMALL: usize = 64 << 10;
/// The number of requests of the maximum size that a listener receives at the same time.
const LARGEST_TOGETHER: usize = 8;
/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// The memory for large requests: clients of one address receive one request of the maximum size at a time, and a listener
/// eight. Further requests wait.
#[derive(Clone)]
pub(crate) struct Budget {
    listener: Arc<Semaphore>,
    client: Arc<Semaphore>,
    clients: PerAddress<Semaphore>,
    largest: usize,
}

/// Memory that is in use until this is dropped.
#[derive(Debug, Default)]
#[allow(dead_code, reason = "it is only dropped")]
pub(crate) struct Held(Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)>);

impl Budget {
    /// The budget of a listener for requests of at most this size.
    pub(crate) fn of_listener(largest: usize) -> Budget {
        let listener = Arc::new(Semaphore::new(units(largest) as usize * LARGEST_TOGETHER));
        Budget { listener, client: Arc::new(client(largest)), clients: PerAddress::default(), largest }
    }

    /// The budget of a connection, which it shares with the other connections of its address.
    pub(crate) fn of_connection(&self, address: Option<IpAddr>) -> Budget {
        let client = self.clients.get(address, || client(self.largest));
        Budget { client, ..self.clone() }
    }

    /// Waits until there is memory for a request of this size.
    pub(crate) async fn take(&self, bytes: usize) -> Held {
        if bytes <= SMALL {
            return Held::default();
        }
        let units = units(bytes.min(self.largest));
        let client = self.client.clone().acquire_many_owned(units).await;
        let listener = self.listener.clone().acquire_many_owned(units).await;
        Held(client.ok().zip(listener.ok()))
    }
}

fn client(largest: usize) -> Semaphore {
    Semaphore::new(units(largest) as usize)
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn an_address_has_one_large_request_and_a_listener_eight() {
        const LARGEST: usize = 4 << 20;
        let listener = Budget::of_listener(LARGEST);
        let take = |budget: &Budget, bytes| budget.take(bytes).now_or_never();
        let connection = |client: u8| listener.of_connection(Some(IpAddr::from([10, 0, 0, client])));
        let connections: Vec<Budget> = (0..9).map(connection).collect();
        let mut held: Vec<Held> =
            connections[..8].iter().map(|connection| take(connection, LARGEST).expect("memory")).collect();
        assert!(take(&connection(0), SMALL + 1).is_none(), "the budget of the address is used up");
        assert!(take(&connections[8], LARGEST).is_none(), "the budget of the listener is used up");
        assert!(take(&connections[8], SMALL).is_some());
        held.pop();
        assert!(take(&connections[8], LARGEST).is_some());
        drop((held, connections));
        for client in 0..=u8::MAX {
            for other in 0..16 {
                drop(listener.of_connection(Some(IpAddr::from([10, 1, other, client]))));
            }
        }
        assert!(listener.clients.len() <= 1025, "unused ones are removed");
    }
}
