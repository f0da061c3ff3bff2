//! Joins the writes of a connection into few system calls.
//!
//! The HTTP/2 implementation writes at most 16 KiB together, and passes at most 16 of the many pieces of a response in a call.
//! Copying them into a buffer costs less than a system call for each few of them.

use std::cell::Cell;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes that are written together.
const TOGETHER: usize = 64 << 10;

thread_local! {
    /// A buffer that no connection uses. Most are written and empty before the next connection has its turn on the thread.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// A socket whose writes are only buffered, until there are enough or [`Joined::send`] is called.
pub(crate) struct Joined<S>(Arc<Mutex<Writes<S>>>);

struct Writes<S> {
    socket: S,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that were written.
    written: usize,
    /// Whether the socket was not flushed since the last write. TLS keeps encrypted bytes that the network did not take.
    unflushed: bool,
    failed: Option<ErrorKind>,
}

impl<S> Clone for Joined<S> {
    fn clone(&self) -> Self {
        Joined(Arc::clone(&self.0))
    }
}

impl<S> Joined<S> {
    pub(crate) fn new(socket: S) -> Joined<S> {
        Joined(Arc::new(Mutex::new(Writes { socket, buffer: Vec::new(), written: 0, unflushed: false, failed: None })))
    }

    fn lock(&self) -> MutexGuard<'_, Writes<S>> {
        // A panic leaves a consistent buffer.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: AsyncWrite + Unpin> Joined<S> {
    /// Writes what is buffered, as far as the socket takes it; the rest when the task is polled again. Call it after each poll
    /// of the connection. The next write reports an error.
    pub(crate) fn send(&self, cx: &mut Context<'_>) {
        let mut writes = self.lock();
        if writes.buffer.is_empty() && !writes.unflushed {
            return;
        }
        if let Poll::Ready(Err(error)) = writes.write_all(cx) {
            writes.fail(&error);
        } else if writes.buffer.is_empty()
            && let Poll::Ready(flushed) = Pin::new(&mut writes.socket).poll_flush(cx)
        {
            match flushed {
                Ok(()) => writes.unflushed = false,
                Err(error) => writes.fail(&error),
            }
        }
        if writes.buffer.is_empty() && writes.buffer.capacity() > 0 {
            // Connections are many, and most of them idle.
            SPARE.set(std::mem::take(&mut writes.buffer));
        }
    }
}

impl<S: AsyncWrite + Unpin> Writes<S> {
    fn fail(&mut self, error: &Error) {
        self.failed = Some(error.kind());
        self.unflushed = false;
        self.buffer.clear();
    }

    fn write_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(Error::from(kind)));
        }
        while self.written < self.buffer.len() {
            let rest = &self.buffer[self.written..];
            match ready!(Pin::new(&mut self.socket).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(Error::from(ErrorKind::WriteZero))),
                count => {
                    self.written += count;
                    self.unflushed = true;
                }
            }
        }
        self.buffer.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }

    /// Buffers what there is room for. Returns its length.
    fn add<'b>(&mut self, cx: &mut Context<'_>, pieces: impl Iterator<Item = &'b [u8]>) -> Poll<Result<usize>> {
        if self.buffer.len() >= TOGETHER || self.failed.is_some() {
            ready!(self.write_all(cx))?;
        }
        let before = self.buffer.len();
        if self.buffer.capacity() == 0 {
            self.buffer = SPARE.take();
            self.buffer.reserve_exact(TOGETHER);
        }
        for piece in pieces {
            let room = TOGETHER - self.buffer.len();
            self.buffer.extend_from_slice(&piece[..piece.len().min(room)]);
        }
        Poll::Ready(Ok(self.buffer.len() - before))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Joined<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.lock().socket).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Joined<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.lock().add(cx, std::iter::once(bytes))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<Result<usize>> {
        self.lock().add(cx, pieces.iter().map(|piece| &**piece))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: see [`Joined::send`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let mut writes = self.lock();
        ready!(writes.write_all(cx))?;
        Pin::new(&mut writes.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// Writes pieces in one call, like the HTTP/2 implementation, and returns how many bytes were taken at once, if any.
    fn write(joined: &mut Joined<DuplexStream>, pieces: &[&[u8]]) -> Option<usize> {
        let slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
        let write = poll_fn(|cx| Pin::new(&mut *joined).poll_write_vectored(cx, &slices));
        write.now_or_never().map(|written| written.expect("written"))
    }

    fn send(joined: &Joined<DuplexStream>) {
        joined.send(&mut Context::from_waker(Waker::noop()));
    }

    /// What has arrived.
    fn received(client: &mut DuplexStream) -> Vec<u8> {
        let mut all = Vec::new();
        let mut some = [0; 4096];
        while let Some(Ok(count)) = client.read(&mut some).now_or_never()
            && count > 0
        {
            all.extend_from_slice(&some[..count]);
        }
        all
    }

    #[test]
    fn pieces_are_sent_together_and_the_next_connection_uses_the_memory() {
        let (server, mut client) = duplex(1 << 20);
        let mut joined = Joined::new(server);
        assert_eq!(write(&mut joined, &[b"a", b"", b"bc"]), Some(3));
        assert_eq!(write(&mut joined, &[b"d"]), Some(1));
        assert!(received(&mut client).is_empty(), "nothing is sent yet");
        send(&joined);
        assert_eq!(received(&mut client), b"abcd");
        assert_eq!(joined.lock().buffer.capacity(), 0);
        let spare = SPARE.take();
        assert!(spare.is_empty() && spare.capacity() >= TOGETHER);
        let memory = spare.as_ptr();
        SPARE.set(spare);
        write(&mut joined, &[b"e"]);
        assert_eq!(joined.lock().buffer.as_ptr(), memory);
    }

    #[test]
    fn a_client_that_does_not_read_bounds_the_buffer_and_loses_nothing() {
        let (server, mut client) = duplex(1000);
        let mut joined = Joined::new(server);
        let bytes: Vec<u8> = (0..3 * TOGETHER).map(|n| (n % 251) as u8).collect();
        let (mut taken, mut all) = (0, Vec::new());
        while taken < bytes.len() {
            match write(&mut joined, &[&bytes[taken..bytes.len().min(taken + 700)], &[]]) {
                Some(count) => taken += count,
                None => {
                    assert!(joined.lock().buffer.len() <= TOGETHER);
                    all.extend(received(&mut client));
                }
            }
        }
        while all.len() < bytes.len() {
            send(&joined);
            all.extend(received(&mut client));
        }
        assert!(all == bytes, "in order, each once");
    }

    #[test]
    fn a_broken_connection_fails_the_next_write_and_the_end_sends_the_rest() {
        let (server, client) = duplex(1000);
        let mut joined = Joined::new(server);
        write(&mut joined, &[b"lost"]);
        drop(client);
        send(&joined);
        let failed = joined.write(b"more").now_or_never().expect("it does not wait");
        assert_eq!(failed.map_err(|error| error.kind()), Err(ErrorKind::BrokenPipe));

        let (server, mut client) = duplex(1000);
        let mut joined = Joined::new(server);
        write(&mut joined, &[b"the end"]);
        joined.shutdown().now_or_never().expect("it does not wait").expect("closed");
        assert_eq!(received(&mut client), b"the end");
    }
}
