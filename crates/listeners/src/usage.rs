//! The use of a connection: the number of its open requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Response;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::watch;

/// The number of open requests of a connection. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Usage(Arc<watch::Sender<usize>>);

/// A request that is open until this is dropped.
#[derive(Debug)]
pub struct OpenRequest(Usage);

impl Usage {
    /// Counts a request until the returned value is dropped.
    pub fn begin(&self) -> OpenRequest {
        self.0.send_modify(|open| *open += 1);
        OpenRequest(self.clone())
    }

    /// Keeps a request open until its response is sent completely.
    pub fn count<B>(response: Response<B>, open: OpenRequest) -> Response<Counted<B>> {
        response.map(|body| Counted { body, _open: open })
    }

    pub(crate) fn is_idle(&self) -> bool {
        *self.0.borrow() == 0
    }

    /// Returns when the connection had no open request for `idle`, or no request at all for `first`.
    pub(crate) async fn unused(&self, first: Duration, idle: Duration) {
        let mut open = self.0.subscribe();
        let mut limit = first;
        while matches!(tokio::time::timeout(limit, open.wait_for(|open| *open > 0)).await, Ok(Ok(_))) {
            limit = idle;
            if open.wait_for(|open| *open == 0).await.is_err() {
                return;
            }
        }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.0.send_modify(|open| *open -= 1);
    }
}

/// The body of a response whose request is open until the body is dropped.
#[derive(Debug)]
pub struct Counted<B> {
    body: B,
    _open: OpenRequest,
}

impl<B: Body + Unpin> Body for Counted<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
