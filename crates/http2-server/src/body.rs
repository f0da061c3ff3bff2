//! The bodies of requests. The connection adds what it receives, and another task reads it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::failure::Broken;

/// The least number of bytes of a connection that are read before the client may send more.
const ENOUGH: usize = 16 << 10;

/// The bodies of a connection.
pub(crate) struct Bodies {
    /// The number of bytes of a stream, and of the connection, that are read before the client may send more.
    enough: (usize, usize),
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The task of the connection.
    connection: Option<Waker>,
    /// The number of bytes that were read, or will not be read, since the client was told.
    read: usize,
    bodies: Vec<Received>,
}

/// The bytes of a body that were received, and not read.
struct Received {
    stream: u32,
    bytes: Vec<u8>,
    /// The number of bytes that were read since the client was told.
    read: usize,
    /// Set when nothing more will be received.
    end: Option<Result<(), Broken>>,
    reader: Option<Waker>,
    is_abandoned: bool,
}

impl Bodies {
    /// For streams whose clients may send so many bytes before they are read.
    pub(crate) fn new(window: u32) -> Bodies {
        let half = window as usize / 2;
        Bodies { enough: (half, half.max(ENOUGH)), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Each change is complete before anything can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the body of a stream.
    pub(crate) fn open(self: &Arc<Self>, stream: u32) -> RequestBody {
        self.lock().bodies.push(Received {
            stream,
            bytes: Vec::new(),
            read: 0,
            end: None,
            reader: None,
            is_abandoned: false,
        });
        RequestBody { stream, bodies: self.clone() }
    }

    /// Adds the bytes of a frame with this length. The rest of it is padding, or not used.
    pub(crate) fn receive(&self, stream: u32, bytes: &[u8], length: usize) {
        let mut state = self.lock();
        let body = state.bodies.iter_mut().find(|body| body.stream == stream && !body.is_abandoned);
        let Some(body) = body else {
            state.read += length;
            return;
        };
        if !bytes.is_empty() {
            body.bytes.extend_from_slice(bytes);
            body.wake();
        }
        let unused = length - bytes.len();
        body.read += unused;
        state.read += unused;
    }

    /// Ends the body of a stream. If it is broken, what was not read is lost.
    pub(crate) fn end(&self, stream: u32, end: Result<(), Broken>) {
        let mut state = self.lock();
        let Some(at) = state.bodies.iter().position(|body| body.stream == stream) else { return };
        let body = &mut state.bodies[at];
        if body.end.is_some() {
            return;
        }
        body.end = Some(end);
        let lost = if end.is_err() { std::mem::take(&mut body.bytes).len() } else { 0 };
        body.wake();
        if body.is_abandoned {
            state.bodies.swap_remove(at);
        }
        state.read += lost;
    }

    /// Ends all bodies, because the connection ends.
    pub(crate) fn close(&self) {
        let streams: Vec<u32> = self.lock().bodies.iter().map(|body| body.stream).collect();
        streams.into_iter().for_each(|stream| self.end(stream, Err(Broken::Closed)));
    }

    /// The numbers of bytes that the client may send again, of the connection and of streams: those that were read, if they are enough
    /// to tell the client. `waker` is woken when there are more.
    pub(crate) fn take_read(&self, waker: &Waker, mut of_stream: impl FnMut(u32, usize)) -> usize {
        let mut state = self.lock();
        let state = &mut *state;
        match &mut state.connection {
            Some(known) => known.clone_from(waker),
            None => state.connection = Some(waker.clone()),
        }
        for body in state.bodies.iter_mut().filter(|body| body.read >= self.enough.0) {
            let read = std::mem::take(&mut body.read);
            if body.end.is_none() {
                of_stream(body.stream, read);
            }
        }
        if state.read >= self.enough.1 { std::mem::take(&mut state.read) } else { 0 }
    }
}

impl Received {
    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl State {
    fn wake(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.wake();
        }
    }
}

/// The body of a request. The client may send only a part of it before it is read.
pub struct RequestBody {
    stream: u32,
    bodies: Arc<Bodies>,
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let mut state = self.bodies.lock();
        let state = &mut *state;
        let Some(body) = state.bodies.iter_mut().find(|body| body.stream == self.stream) else {
            return Poll::Ready(None);
        };
        if body.bytes.is_empty() {
            match body.end {
                Some(end) => return Poll::Ready(end.err().map(Err)),
                None => body.reader = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        let bytes = std::mem::take(&mut body.bytes);
        body.read += bytes.len();
        state.read += bytes.len();
        if state.read >= self.bodies.enough.1 || body.read >= self.bodies.enough.0 {
            state.wake();
        }
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }

    fn is_end_stream(&self) -> bool {
        let state = self.bodies.lock();
        let body = state.bodies.iter().find(|body| body.stream == self.stream);
        body.is_none_or(|body| body.bytes.is_empty() && body.end == Some(Ok(())))
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let mut state = self.bodies.lock();
        let Some(at) = state.bodies.iter().position(|body| body.stream == self.stream) else { return };
        let body = &mut state.bodies[at];
        let unread = std::mem::take(&mut body.bytes).len();
        body.is_abandoned = true;
        if body.end.is_some() {
            state.bodies.swap_remove(at);
        }
        state.read += unread;
        if state.read >= self.bodies.enough.1 {
            state.wake();
        }
    }
}
