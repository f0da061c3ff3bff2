//! A connection: what it waits for, and its end.

use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::allowance::Allowance;
use crate::body::{Bodies, RequestBody};
use crate::failure::{Broken, Code, Failure};
use crate::fields::MAX_BYTES;
use crate::frame::{FIRST_WINDOW, MAX_WINDOW, kind, setting};
use crate::hpack::Decoder;
use crate::keepalive::{Check, Keepalive};
use crate::output::Output;
use crate::reader::Reader;
use crate::receive::Block;
use crate::stream::Stream;

/// The maximum number of bytes that are read together.
const TOGETHER: usize = 32 << 10;
/// The number of streams that were reset here and whose frames are ignored.
const RESET: usize = 16;
/// The payloads of pings.
pub(crate) const SHUTDOWN: [u8; 8] = *b"shutdown";
const ALIVE: [u8; 8] = *b"alive   ";

/// The settings of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The maximum number of open streams.
    pub max_streams: u32,
    /// The bytes of a request that the client may send before they are read.
    pub window: u32,
    /// Whether idle connections are checked.
    pub keepalive: Option<Keepalive>,
}

/// Whether a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Open,
    /// The client was told. Its requests that are under way are served.
    Announced,
    /// No request after this stream is served.
    Last(u32),
}

/// A connection of a client. The future completes when the client has disconnected, or the connection was shut down and its streams have
/// ended.
///
/// `S` answers requests: it is a function that returns the future `F` of a response with the body `B`.
pub struct Connection<I, S, F, B: Body> {
    socket: I,
    pub(crate) service: S,
    pub(crate) settings: Settings,
    pub(crate) reader: Reader,
    pub(crate) decoder: Decoder,
    /// A header block that is not complete.
    pub(crate) block: Option<Block>,
    pub(crate) output: Output,
    /// In the order of their numbers.
    pub(crate) streams: Vec<Stream<F, B>>,
    pub(crate) bodies: Arc<Bodies>,
    /// The bytes that the client may send on all streams.
    pub(crate) receive_window: i64,
    /// The window of the client's new streams.
    pub(crate) first_window: u32,
    /// The greatest number of a stream.
    pub(crate) last_stream: u32,
    /// The streams that were reset last, in turn.
    reset: [u32; RESET],
    reset_next: usize,
    pub(crate) resets: Allowance,
    check: Option<Check>,
    pub(crate) phase: Phase,
    /// Whether the client's settings were received.
    pub(crate) has_settings: bool,
}

impl<I, S, F, B> Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<RequestBody>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + Unpin,
{
    /// Serves the client of a socket. Call it within a runtime.
    pub fn new(socket: I, settings: Settings, service: S) -> Connection<I, S, F, B> {
        let mut output = Output::new();
        let list = [
            (setting::MAX_CONCURRENT_STREAMS, settings.max_streams),
            (setting::INITIAL_WINDOW_SIZE, settings.window),
            (setting::MAX_HEADER_LIST_SIZE, MAX_BYTES as u32),
        ];
        let payload: Vec<u8> =
            list.iter().flat_map(|(name, value)| name.to_be_bytes().into_iter().chain(value.to_be_bytes())).collect();
        output.frame(kind::SETTINGS, 0, 0, &payload);
        // If nobody reads one stream, others go on.
        let receive_window = settings.window.saturating_mul(2).clamp(FIRST_WINDOW, MAX_WINDOW);
        output.window_update(0, (receive_window - FIRST_WINDOW) as usize);
        Connection {
            socket,
            service,
            settings,
            reader: Reader::default(),
            decoder: Decoder::new(),
            block: None,
            output,
            streams: Vec::new(),
            bodies: Arc::new(Bodies::new(settings.window)),
            receive_window: i64::from(receive_window),
            first_window: FIRST_WINDOW,
            last_stream: 0,
            reset: [0; RESET],
            reset_next: 0,
            resets: Allowance::new(),
            check: settings.keepalive.map(Check::new),
            phase: Phase::Open,
            has_settings: false,
        }
    }

    /// Ends the connection when its streams have ended. Requests that the client sends before it knows are served.
    pub fn graceful_shutdown(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        if self.has_settings {
            self.phase = Phase::Announced;
            self.output.go_away(MAX_WINDOW, Code::NoError, "");
            // When the answer arrives, so have the requests that the client sent before.
            self.output.frame(kind::PING, 0, 0, &SHUTDOWN);
        } else {
            self.refuse_further();
        }
    }

    /// Tells the client the last stream that is served.
    pub(crate) fn refuse_further(&mut self) {
        self.phase = Phase::Last(self.last_stream);
        self.output.go_away(self.last_stream, Code::NoError, "");
    }

    /// The last stream that is served. It may not grow after the client was told.
    fn last_served(&self) -> u32 {
        match self.phase {
            Phase::Last(last) => last,
            Phase::Open | Phase::Announced => self.last_stream,
        }
    }

    fn advance(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        if let Some(check) = &mut self.check
            && check.poll_dead(cx, || self.output.frame(kind::PING, 0, 0, &ALIVE)).is_ready()
        {
            return Poll::Ready(Err(io::Error::from(io::ErrorKind::TimedOut).into()));
        }
        loop {
            if self.read(cx)? {
                return Poll::Ready(Ok(()));
            }
            self.serve(cx);
            self.allow_more(cx);
            match self.output.poll_write(cx, &mut self.socket, &mut self.streams) {
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(Ok(false)) => break,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => return Poll::Pending,
            }
        }
        if matches!(self.phase, Phase::Last(_)) && self.streams.is_empty() && self.output.is_empty() {
            ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
            return Poll::Ready(Ok(()));
        }
        Poll::Pending
    }

    /// Receives what has arrived. Returns whether the client has disconnected.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Failure> {
        // A client that does not read must not cause more output.
        while !self.output.is_full() {
            // Most clients send little at a time. A read that leaves room tells the runtime that there is no more.
            let mut space = [MaybeUninit::uninit(); TOGETHER];
            let mut read = ReadBuf::uninit(&mut space);
            match Pin::new(&mut self.socket).poll_read(cx, &mut read) {
                Poll::Pending => return Ok(false),
                Poll::Ready(result) => result?,
            }
            if read.filled().is_empty() {
                return Ok(true);
            }
            if let Some(check) = &mut self.check {
                check.received();
            }
            self.receive(read.filled())?;
        }
        Ok(false)
    }

    /// Lets the services answer.
    fn serve(&mut self, cx: &mut Context<'_>) {
        let mut at = 0;
        while let Some(stream) = self.streams.get_mut(at) {
            // A panic ends only its stream. The hook has logged it.
            let poll = AssertUnwindSafe(|| stream.poll(cx, &mut self.output));
            let code = match catch_unwind(poll).unwrap_or(Poll::Ready(Err(Code::Internal))) {
                Poll::Pending => {
                    at += 1;
                    continue;
                }
                Poll::Ready(Ok(())) if stream.has_ended => None,
                // The client need not send the rest of the request.
                Poll::Ready(Ok(())) => Some(Code::NoError),
                Poll::Ready(Err(code)) => Some(code),
            };
            let id = stream.id;
            self.remove(id);
            if let Some(code) = code {
                self.reset(id, code);
            }
        }
    }

    /// Tells the client how much more it may send.
    fn allow_more(&mut self, cx: &mut Context<'_>) {
        let (streams, output) = (&mut self.streams, &mut self.output);
        let read = self.bodies.take_read(cx.waker(), |id, read| {
            if let Some(stream) = streams.iter_mut().find(|stream| stream.id == id && !stream.has_ended) {
                stream.receive_window += read as i64;
                output.window_update(id, read);
            }
        });
        self.receive_window += read as i64;
        self.output.window_update(0, read);
    }

    /// Removes a stream.
    pub(crate) fn remove(&mut self, id: u32) {
        if let Some(at) = self.streams.iter().position(|stream| stream.id == id) {
            self.streams.remove(at).abandon(&mut self.output);
        }
        self.bodies.end(id, Err(Broken::Reset));
    }

    /// Tells the client that a stream has ended.
    pub(crate) fn reset(&mut self, id: u32, code: Code) {
        self.output.reset(id, code);
        self.ignore(id);
    }

    /// Ignores what the client sends on this stream before it knows that it has ended.
    pub(crate) fn ignore(&mut self, id: u32) {
        self.reset[self.reset_next] = id;
        self.reset_next = (self.reset_next + 1) % RESET;
    }

    pub(crate) fn is_ignored(&self, id: u32) -> bool {
        self.reset.contains(&id)
    }
}

impl<I, S, F, B> Future for Connection<I, S, F, B>
where
    I: AsyncRead + AsyncWrite + Unpin,
    S: Fn(Request<RequestBody>) -> F + Unpin,
    F: Future<Output = Response<B>>,
    B: Body + Unpin,
    B::Data: Unpin,
{
    /// An error if the connection broke, the client does not answer, or it violated the protocol.
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        match ready!(this.advance(cx)) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(Failure::Broken(error)) => Poll::Ready(Err(error)),
            Err(Failure::Stream(_, code)) => Poll::Ready(Err(io::Error::other(format!("{code:?}")))),
            Err(Failure::Connection(code, text)) => {
                this.output.go_away(this.last_served(), code, text);
                // Once: a client that violates the protocol is not waited for.
                let _ = this.output.poll_write(cx, &mut this.socket, &mut this.streams);
                let _ = Pin::new(&mut this.socket).poll_shutdown(cx);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)))
            }
        }
    }
}

impl<I, S, F, B: Body> Drop for Connection<I, S, F, B> {
    fn drop(&mut self) {
        self.bodies.close();
    }
}
