//! One request and its response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http::{HeaderMap, Response};
use http_body::Body;

use crate::failure::Code;
use crate::output::{Output, Sending};

/// An open stream.
pub(crate) struct Stream<F, B: Body> {
    pub(crate) id: u32,
    /// The bytes that the client accepts.
    pub(crate) send_window: i64,
    /// The bytes that the client may send.
    pub(crate) receive_window: i64,
    /// Whether the client has sent the whole request.
    pub(crate) has_ended: bool,
    /// The bytes that are missing of the `content-length`.
    pub(crate) missing: Option<u64>,
    state: State<F, B>,
    data: Option<B::Data>,
}

enum State<F, B> {
    /// The service has not answered yet.
    Called(Pin<Box<F>>),
    /// The response is sent.
    Answered(B),
}

impl<F, B: Body> Stream<F, B> {
    /// A stream with these windows, to send and to receive.
    pub(crate) fn new(id: u32, windows: (u32, u32), missing: Option<u64>, answer: F) -> Stream<F, B> {
        Stream {
            id,
            send_window: i64::from(windows.0),
            receive_window: i64::from(windows.1),
            has_ended: false,
            missing,
            state: State::Called(Box::pin(answer)),
            data: None,
        }
    }

    /// Queues the bytes that must be sent although the stream ends.
    pub(crate) fn abandon(mut self, output: &mut Output) {
        if let Some(data) = &mut self.data {
            output.abandon(self.id, data);
        }
    }
}

impl<F, B> Stream<F, B>
where
    F: Future<Output = Response<B>>,
    B: Body + Unpin,
{
    /// Takes what the service answers, as far as it can be sent. Returns when the response was sent, or the code of an error.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, output: &mut Output) -> Poll<Result<(), Code>> {
        loop {
            let must_wait = self.data().is_some() || output.is_full();
            let body = match &mut self.state {
                // The connection calls again when something was written.
                State::Answered(_) if must_wait => return Poll::Pending,
                State::Answered(body) => body,
                // Always, because others may wait for what it holds.
                State::Called(answer) => {
                    let (head, body) = ready!(answer.as_mut().poll(cx)).into_parts();
                    let is_empty = body.is_end_stream();
                    output.headers(self.id, Some(head.status), &head.headers, is_empty);
                    self.state = State::Answered(body);
                    if is_empty {
                        return Poll::Ready(Ok(()));
                    }
                    continue;
                }
            };
            self.data = None;
            let trailers = match ready!(Pin::new(body).poll_frame(cx)) {
                None => HeaderMap::new(),
                Some(Err(_)) => return Poll::Ready(Err(Code::Internal)),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(mut data) => {
                        if !output.short_data(self.id, &mut data, &mut self.send_window) {
                            self.data = Some(data);
                        }
                        continue;
                    }
                    // There is nothing else than data and trailers.
                    Err(frame) => frame.into_trailers().unwrap_or_default(),
                },
            };
            output.end(self.id, &trailers);
            return Poll::Ready(Ok(()));
        }
    }
}

impl<F, B: Body> Sending for Stream<F, B> {
    type Data = B::Data;

    fn stream(&self) -> u32 {
        self.id
    }

    fn data(&mut self) -> Option<(&mut B::Data, &mut i64)> {
        let data = self.data.as_mut().filter(|data| data.has_remaining())?;
        Some((data, &mut self.send_window))
    }
}
