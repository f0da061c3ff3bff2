//! Accepts connections within budgets of number and time.
//!
//! - A listener has a number of places for connections ([`Limits::connections`]), and may have more that it shares with other
//!   listeners ([`Limits::shared`]). When all are in use, a new connection replaces the oldest one of the listener without an open
//!   request. If all have requests, new connections wait in the backlog.
//! - A connection without an open request is closed after [`Limits::first_request`] if it never had one, otherwise after
//!   [`Limits::idle`]. A connection with an open request needs no timer.
//!
//! A request is open until its response is sent completely ([`Usage::count`]).

mod bind;
mod usage;
mod woken;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, Id, JoinSet};

pub use bind::{bind_any, bind_unix};
pub use usage::{Counted, OpenRequest, Usage};
pub use woken::WhenWoken;

/// The pause after a failed accept, for example when file descriptors run out.
const BACKOFF: Duration = Duration::from_millis(100);

/// Limits of a listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of connections without those in shared places.
    pub connections: usize,
    /// The places of several listeners, which one takes when its own are in use.
    pub shared: Option<Arc<Semaphore>>,
    /// Maximum time until the first request of a connection, including the handshakes before it.
    pub first_request: Duration,
    /// Maximum time without an open request after the first one.
    pub idle: Duration,
}

impl Limits {
    /// The usual times for this number of connections.
    #[must_use]
    pub const fn of(connections: usize) -> Limits {
        Limits { connections, shared: None, first_request: Duration::from_secs(10), idle: Duration::from_secs(120) }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::of(10_000)
    }
}

/// The connections of a listener.
struct Connections {
    limits: Limits,
    places: Arc<Semaphore>,
    tasks: JoinSet<()>,
    /// By task: the order of arrival, and the use.
    open: HashMap<Id, (u64, Usage, AbortHandle)>,
    accepted: u64,
}

/// Accepts connections until `stopped` is true, then waits for the open ones. `what` names the listener in the log.
///
/// `next` polls the socket. `serve` handles a connection; it must count requests, and end when `stopped` is true. A panic
/// ends only the connection in which it happens.
pub async fn accept<S, F>(
    what: &'static str,
    limits: Limits,
    mut next: impl FnMut(&mut Context<'_>) -> Poll<io::Result<S>>,
    mut stopped: watch::Receiver<bool>,
    serve: impl Fn(S, Usage) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    let mut connections = Connections { limits, places, tasks: JoinSet::new(), open: HashMap::new(), accepted: 0 };
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            accepted = std::future::poll_fn(&mut next) => accepted,
            () = stopping(&mut stopped) => break,
        };
        match accepted {
            Ok(stream) => {
                failing = false;
                let place = tokio::select! {
                    place = connections.place(what) => place,
                    () = stopping(&mut stopped) => break,
                };
                let usage = Usage::default();
                let serving = serve(stream, usage.clone());
                connections.spawn(serving, usage, place);
            }
            Err(error) => {
                // Logged once, not at each attempt.
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(listener = what, %error, "cannot accept connections");
                }
                tokio::time::sleep(BACKOFF).await;
            }
        }
    }
    // Closes the socket: new connections are refused.
    drop(next);
    while connections.tasks.join_next().await.is_some() {}
}

async fn stopping(stopped: &mut watch::Receiver<bool>) {
    // A closed channel also means the end.
    let _ = stopped.wait_for(|stop| *stop).await;
}

impl Connections {
    /// Waits for a place. If there is none, closes the oldest connection without an open request.
    async fn place(&mut self, what: &'static str) -> Option<OwnedSemaphorePermit> {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
            self.open.remove(&id);
        }
        let pools = std::iter::once(&self.places).chain(&self.limits.shared);
        if let Some(place) = pools.cloned().find_map(|pool| pool.try_acquire_owned().ok()) {
            return Some(place);
        }
        let idle = self.open.values().filter(|(_, usage, _)| usage.is_idle());
        match idle.min_by_key(|(order, ..)| *order) {
            Some((_, _, task)) => task.abort(),
            None => tracing::warn!(
                listener = what,
                connections = self.open.len(),
                "the maximum number of connections is in use; new ones wait"
            ),
        }
        let own = self.places.clone().acquire_owned();
        let Some(shared) = self.limits.shared.clone() else { return own.await.ok() };
        tokio::select! {
            place = own => place.ok(),
            place = shared.acquire_owned() => place.ok(),
        }
    }

    fn spawn(
        &mut self,
        serving: impl Future<Output = ()> + Send + 'static,
        usage: Usage,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let Limits { first_request, idle, .. } = self.limits;
        let used = usage.clone();
        // Moved into the task only as a pointer, because a task has room for each place of a future.
        let mut serving = Box::pin(serving);
        let task = self.tasks.spawn(async move {
            tokio::select! {
                biased;
                () = &mut serving => {}
                () = WhenWoken::new(used.unused(first_request, idle)) => {}
            }
            drop(place);
        });
        self.accepted += 1;
        self.open.insert(task.id(), (self.accepted, usage, task));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn limits(shared: Option<Arc<Semaphore>>) -> Limits {
        Limits { shared, ..Limits::of(2) }
    }

    /// A listener whose connections are numbers, and which of them are open.
    struct Bench {
        sender: tokio::sync::mpsc::UnboundedSender<u32>,
        open: Arc<Mutex<std::collections::BTreeMap<u32, Usage>>>,
        stop: watch::Sender<bool>,
        task: tokio::task::JoinHandle<()>,
    }

    struct Served(u32, Arc<Mutex<std::collections::BTreeMap<u32, Usage>>>);

    impl Drop for Served {
        fn drop(&mut self) {
            self.1.lock().expect("not poisoned").remove(&self.0);
        }
    }

    impl Bench {
        fn start() -> Bench {
            Bench::with(limits(None))
        }

        fn with(limits: Limits) -> Bench {
            let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
            let (stop, stopped) = watch::channel(false);
            let open = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
            let (serving, ending) = (open.clone(), stopped.clone());
            let task = tokio::spawn(async move {
                let next = move |cx: &mut Context<'_>| match receiver.poll_recv(cx) {
                    Poll::Ready(Some(number)) => Poll::Ready(Ok(number)),
                    _ => Poll::Pending,
                };
                accept("test", limits, next, stopped, move |number, usage| {
                    serving.lock().expect("not poisoned").insert(number, usage);
                    let (served, mut ending) = (Served(number, serving.clone()), ending.clone());
                    async move {
                        let _served = served;
                        let _ = ending.wait_for(|stop| *stop).await;
                    }
                })
                .await;
            });
            Bench { sender, open, stop, task }
        }

        async fn connect(&self, number: u32) {
            self.sender.send(number).expect("the listener runs");
            // Lets all tasks run; the clock stands still.
            for _ in 0..20 {
                tokio::task::yield_now().await;
            }
        }

        fn open(&self) -> Vec<u32> {
            self.open.lock().expect("not poisoned").keys().copied().collect()
        }

        fn request(&self, number: u32) -> OpenRequest {
            self.open.lock().expect("not poisoned")[&number].begin()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_closed() {
        let bench = Bench::start();
        bench.connect(1).await;
        bench.connect(2).await;
        let request = bench.request(2);
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(bench.open(), [2], "the other one never had a request");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(bench.open(), [2], "its request is open");
        drop(request);
        tokio::time::sleep(Duration::from_secs(110)).await;
        assert_eq!(bench.open(), [2], "it may be used again");
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert!(bench.open().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn shared_places_serve_whoever_needs_them_and_own_places_stay() {
        let shared = Arc::new(Semaphore::new(1));
        let (one, other) = (Bench::with(limits(Some(shared.clone()))), Bench::with(limits(Some(shared))));
        let mut requests = Vec::new();
        for number in 1..=3 {
            one.connect(number).await;
            requests.push(one.request(number));
        }
        one.connect(4).await;
        assert_eq!(one.open(), [1, 2, 3], "its own places and the shared one are in use: it waits");
        for number in 1..=2 {
            other.connect(number).await;
            requests.push(other.request(number));
        }
        other.connect(3).await;
        assert_eq!(other.open(), [1, 2], "the other one has its own places");
        // The third connection of the first listener ends, which frees the shared place for one of those that wait.
        drop(requests.remove(2));
        tokio::time::sleep(Duration::from_secs(121)).await;
        assert_eq!(one.open().len() + other.open().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_listener_replaces_the_oldest_connection_without_a_request() {
        let bench = Bench::start();
        bench.connect(1).await;
        let first = bench.request(1);
        bench.connect(2).await;
        bench.connect(3).await;
        assert_eq!(bench.open(), [1, 3]);
        let third = bench.request(3);
        bench.connect(4).await;
        assert_eq!(bench.open(), [1, 3], "all are in use: it waits");
        drop(first);
        bench.connect(5).await;
        tokio::time::sleep(Duration::from_secs(121)).await;
        assert!(bench.open().contains(&3));
        drop(third);
        bench.stop.send_replace(true);
        let Bench { task, open, .. } = bench;
        task.await.expect("no panic");
        assert!(open.lock().expect("not poisoned").is_empty());
    }
}
