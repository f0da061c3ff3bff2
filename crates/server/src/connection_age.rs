//! The end of connections: at their maximum age, so that replicas share the load again after one was added, and when the
//! certificate of their client expires or is not trusted any more.

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::time::Duration;

use listeners::WhenWoken;
use tokio::sync::watch;

use crate::grpc::Status;

/// The time in which the streams of an aged connection must end.
const GRACE: Duration = Duration::from_secs(10);

/// Whether a connection ends, with the status of its streams.
#[derive(Clone)]
pub(crate) struct Aged(watch::Receiver<Option<Status>>);

impl Aged {
    /// Waits until the connection ends. Returns the status with which its streams end.
    pub(crate) async fn reached(&mut self) -> Status {
        match self.0.wait_for(Option::is_some).await.ok().and_then(|status| status.clone()) {
            Some(status) => status,
            // The connection is closed, which its streams notice by themselves.
            None => std::future::pending().await,
        }
    }
}

/// The age of one connection.
pub(crate) struct Age {
    max: Option<Duration>,
    aged: watch::Sender<Option<Status>>,
}

impl Age {
    /// A connection with this maximum age; `None` sets no limit. Random jitter of 10 percent prevents that connections that were
    /// opened together are closed together.
    pub(crate) fn new(max: Option<Duration>) -> Age {
        let jittered = |max: Duration| {
            let percent = 90 + u32::try_from(RandomState::new().hash_one(0) % 21).unwrap_or_default();
            max.saturating_mul(percent) / 100
        };
        Age { max: max.map(jittered), aged: watch::Sender::new(None) }
    }

    /// For the streams of the connection.
    pub(crate) fn aged(&self) -> Aged {
        Aged(self.aged.subscribe())
    }

    /// Serves a connection until it ends. When it has reached its maximum age, `invalid` completes, or `stopped` is true, calls `shut_down`,
    /// which sends GOAWAY, and waits until the open streams have ended.
    pub(crate) fn serve<C, I>(
        self,
        connection: C,
        shut_down: fn(Pin<&mut C>),
        invalid: I,
        stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + use<C, I>
    where
        C: Future,
        I: Future<Output = Status>,
    {
        // An async function would have room for it as an argument, and again where it is pinned.
        self.serve_pinned(Box::pin(connection), shut_down, invalid, stopped)
    }

    async fn serve_pinned<C: Future>(
        self,
        mut connection: Pin<Box<C>>,
        shut_down: fn(Pin<&mut C>),
        invalid: impl Future<Output = Status>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let reached = async {
            match self.max {
                Some(max) => tokio::time::sleep(max).await,
                None => std::future::pending().await,
            }
            let text = "the connection has reached its maximum age (--max-connection-age); connect again";
            Status::new(Status::UNAVAILABLE, text)
        };
        let must_end = async {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => None,
                status = invalid => Some(status),
                status = reached => Some(status),
            }
        };
        let status = tokio::select! {
            biased;
            _ = connection.as_mut() => return,
            status = WhenWoken::new(must_end) => status,
        };
        shut_down(connection.as_mut());
        if status.is_none() {
            connection.await;
            return;
        }
        self.aged.send_replace(status);
        // A client that does not read must not keep the connection.
        let _ = tokio::time::timeout(GRACE, connection).await;
    }
}
