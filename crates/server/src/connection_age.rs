//! The end of connections: at their maximum age, so that replicas share the load again after one was added, and when the
//! certificate of their client expires or is not trusted any more.

use std::future::poll_fn;
use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
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

    /// Serves a connection until it ends. When it has reached its maximum age, `invalid` completes, or `stopped` is true, sends
    /// GOAWAY, and waits until the open streams have ended. `after` is called each time after the connection was polled.
    pub(crate) fn serve<C, I, A>(
        self,
        connection: C,
        invalid: I,
        after: A,
        stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + use<C, I, A>
    where
        C: GracefulConnection,
        I: Future<Output = Status>,
        A: FnMut(&mut Context<'_>),
    {
        // An async function would have room for it as an argument, and again where it is pinned.
        self.serve_pinned(Box::pin(connection), invalid, after, stopped)
    }

    async fn serve_pinned(
        self,
        mut connection: Pin<Box<impl GracefulConnection>>,
        invalid: impl Future<Output = Status>,
        mut after: impl FnMut(&mut Context<'_>),
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
            () = ended(connection.as_mut(), &mut after) => return,
            status = WhenWoken::new(must_end) => status,
        };
        connection.as_mut().graceful_shutdown();
        if status.is_none() {
            return ended(connection.as_mut(), &mut after).await;
        }
        self.aged.send_replace(status);
        // A client that does not read must not keep the connection.
        let _ = tokio::time::timeout(GRACE, ended(connection.as_mut(), &mut after)).await;
    }
}

/// Waits for the end of a connection.
async fn ended(mut connection: Pin<&mut impl GracefulConnection>, after: &mut impl FnMut(&mut Context<'_>)) {
    let polled = |cx: &mut Context<'_>| {
        let state = connection.as_mut().poll(cx);
        after(cx);
        state.map(drop)
    };
    poll_fn(polled).await;
}
