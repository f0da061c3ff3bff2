//! A client that writes and reads single frames.

use std::future::{Ready, ready};
use std::io;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use http2_server::{Connection, RequestBody, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::task::JoinHandle;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// Flags.
pub(crate) const END: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
/// `POST http /`.
pub(crate) const POST: &[u8] = b"\x83\x86\x84";

/// The settings of most tests.
pub(crate) const FEW: Settings = Settings { max_streams: 3, window: 1 << 10, keepalive: None };

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a length").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A request whose body follows.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

/// A request without a body.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END, stream, b"\x82\x86\x84")
}

/// The preface and settings of a client.
pub(crate) fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()
}

pub(crate) fn window(stream: u32, bytes: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes())
}

/// Answers with the body of the request.
pub(crate) fn echo(request: Request<RequestBody>) -> Ready<Response<RequestBody>> {
    ready(Response::new(request.into_body()))
}

/// A frame that the server has sent, in words.
pub(crate) fn describe(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> String {
    let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().expect("four bytes"));
    let end = if flags & END != 0 { " end" } else { "" };
    match kind {
        DATA => format!("data {stream} {}{end}", payload.len()),
        HEADERS => format!("headers {stream}{end}"),
        RST_STREAM => format!("reset {stream} {}", number(0)),
        SETTINGS if flags & ACK != 0 => "settings ack".into(),
        SETTINGS => "settings".into(),
        PING if flags & ACK != 0 => "pong".into(),
        PING => format!("ping {}", String::from_utf8_lossy(payload).trim()),
        GOAWAY => format!("goaway {} {}", number(0), number(4)),
        WINDOW_UPDATE => format!("window {stream} {}", number(0)),
        CONTINUATION => format!("continuation {stream}"),
        _ => panic!("a frame of type {kind}"),
    }
}

/// A server, and the client's end of its connection.
pub(crate) struct Bench {
    pub(crate) client: DuplexStream,
    pub(crate) server: JoinHandle<io::Result<()>>,
}

impl Bench {
    /// Serves a connection that holds so many bytes in each direction.
    pub(crate) fn start(settings: Settings, bytes: usize) -> Bench {
        Bench::serve(settings, bytes, echo)
    }

    /// The same with this service.
    pub(crate) fn serve<F, B>(
        settings: Settings,
        bytes: usize,
        service: impl Fn(Request<RequestBody>) -> F + Send + Unpin + 'static,
    ) -> Bench
    where
        F: Future<Output = Response<B>> + Send + 'static,
        B: Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let (client, socket) = duplex(bytes);
        let server = tokio::spawn(async move { Connection::new(socket, settings, service).await });
        Bench { client, server }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.client.write_all(bytes).await.expect("the server reads");
    }

    /// The next frame; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<String> {
        let mut head = [0; 9];
        self.client.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        self.client.read_exact(&mut payload).await.expect("a whole frame");
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(describe(head[3], head[4], stream, &payload))
    }

    /// Everything that is sent until a frame, which is the last one.
    pub(crate) async fn until(&mut self, last: &str) -> Vec<String> {
        let mut frames = Vec::new();
        while frames.last().is_none_or(|frame| frame != last) {
            frames.push(self.next().await.unwrap_or_else(|| panic!("the end instead of {last:?} after {frames:?}")));
        }
        frames
    }
}

/// The frames that a server with these settings sends to a client that sends `bytes`, apart from its settings. The client sends a ping at the end, so
/// that "pong" is the last frame if the connection lives.
pub(crate) fn answers(settings: Settings, bytes: &[u8]) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut bench = Bench::start(settings, 1 << 20);
        bench.send(bytes).await;
        // Lets the server answer before the ping arrives.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let _ = bench.client.write_all(&frame(PING, 0, 0, b"12345678")).await;
        let mut frames = Vec::new();
        while let Some(frame) = bench.next().await {
            let is_last = frame == "pong";
            frames.push(frame);
            if is_last {
                break;
            }
        }
        assert_eq!(frames.remove(0), "settings");
        frames
    })
}
