//! A server over a store in memory, and a client that sends exactly what it is told to, bytes that are no HTTP included.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

pub mod scenario;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use api::access::Token;
use api::server::{ServerLimits, ServerOptions};
use api::{Access, Api, Limits, Options, Role, Server, ServiceRange};
use serde_json::Value;
use store::Store;
use store::memory::Memory;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// No answer takes longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server of its own for every test.
pub struct Fixture {
    pub api: Api,
    pub store: Arc<dyn Store>,
    pub server: Server,
}

/// The parts of a fixture.
#[derive(Default)]
pub struct Setting {
    pub store: store::Limits,
    pub api: Limits,
    pub server: ServerLimits,
    /// The ranges of cluster IPs.
    pub ranges: Vec<ServiceRange>,
}

/// 2026-01-02T03:04:05Z, always.
pub fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_323_045)
}

/// Who may call: everybody's token is `NAME-token`.
pub fn access() -> Access {
    let token = |name: &str, role| Token::new(&format!("{name}-token"), name, ["devs"], [role]);
    Access {
        tokens: vec![
            token("admin", Role::Admin),
            token("reader", Role::ReadOnly),
            token("editor", Role::Edit("a".into())),
            token("viewer", Role::View("a".into())),
        ],
        roles: Vec::new(),
    }
}

impl Fixture {
    pub async fn start(setting: Setting) -> Fixture {
        let store: Arc<dyn Store> = Arc::new(Memory::new(setting.store));
        let options = Options {
            access: access(),
            limits: setting.api,
            now,
            service_ranges: setting.ranges,
            ..Options::default()
        };
        let api = Api::new(Arc::clone(&store), options);
        let listen = ServerOptions { https: None, http: Some(([127, 0, 0, 1], 0).into()), limits: setting.server };
        let server = Server::start(listen, api.clone()).await.unwrap();
        Fixture { api, store, server }
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.http().unwrap()).await.unwrap()
    }

    /// Sends bytes, and reads the answer to its end.
    pub async fn raw(&self, bytes: &[u8]) -> Reply {
        exchange(self.connect().await, bytes, None).await
    }

    /// A request with a body of JSON.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        let request = Request {
            method: method.into(),
            path: path.into(),
            headers: vec![("Content-Type".into(), "application/json".into())],
            body: body.into(),
        };
        self.raw(&request.bytes()).await
    }
}

/// A request, in pieces.
#[derive(Clone, Default, Debug)]
pub struct Request {
    pub method: String,
    pub path: Vec<u8>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.method.clone().into_bytes();
        out.push(b' ');
        out.extend_from_slice(&self.path);
        out.extend_from_slice(b" HTTP/1.1\r\nConnection: close\r\n");
        let has = |name: &str| self.headers.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has("host") {
            out.extend_from_slice(b"Host: 127.0.0.1\r\n");
        }
        for (name, value) in &self.headers {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        if !has("content-length") && !has("transfer-encoding") {
            out.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }
}

/// An answer.
#[derive(Clone, Default, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The lines of a watch.
    pub fn lines(&self) -> Value {
        let text = self.text();
        text.lines().map(|line| serde_json::from_str(line).unwrap_or(Value::Null)).collect()
    }

    /// Status, reason and message of a failure.
    pub fn failure(&self) -> (u16, String, String) {
        let status = self.json();
        let text = |name: &str| status[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(status["kind"], "Status", "{}", self.text());
        assert_eq!(status["code"], self.status, "{}", self.text());
        (self.status, text("reason"), text("message"))
    }
}

/// Sends bytes and reads the answer: to its end, or until it has so many lines.
pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, bytes: &[u8], lines: Option<usize>) -> Reply {
    // A server that refuses what is still being sent closes; its answer counts all the same.
    let _ = stream.write_all(bytes).await;
    read(&mut stream, lines).await
}

/// Reads an answer: to its end, or until it has so many lines.
pub async fn read<S: AsyncRead + Unpin>(stream: &mut S, lines: Option<usize>) -> Reply {
    let mut received = Vec::new();
    let mut piece = vec![0; 64 * 1024];
    loop {
        if let Some(reply) = parse(&received, false, lines) {
            return reply;
        }
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut piece)).await;
        match read.unwrap_or_else(|_| panic!("no answer: {}", String::from_utf8_lossy(&received))) {
            Ok(0) | Err(_) => return parse(&received, true, lines).unwrap_or_default(),
            Ok(length) => received.extend_from_slice(&piece[..length]),
        }
    }
}

/// The answer in these bytes, if it is whole, or has as many lines as are wanted.
fn parse(received: &[u8], ended: bool, lines: Option<usize>) -> Option<Reply> {
    let end = received.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&received[..end]);
    let mut rows = head.split("\r\n");
    let status = rows.next()?.split(' ').nth(1)?.parse().ok()?;
    let headers: Vec<(String, String)> =
        rows.filter_map(|row| row.split_once(": ")).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut reply = Reply { status, headers, body: received[end + 4..].to_vec() };
    let mut whole = ended;
    if reply.header("transfer-encoding") == ["chunked"] {
        let (body, last) = unchunk(&reply.body);
        (reply.body, whole) = (body, whole || last);
    } else if let [length] = reply.header("content-length")[..] {
        whole |= reply.body.len() >= length.parse().unwrap();
    }
    let enough = lines.is_some_and(|lines| reply.body.iter().filter(|byte| **byte == b'\n').count() >= lines);
    (whole || enough).then_some(reply)
}

/// The content of whole chunks, and whether the last one is among them.
fn unchunk(mut rest: &[u8]) -> (Vec<u8>, bool) {
    let mut out = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok();
        let Some(size) = size.and_then(|text| usize::from_str_radix(text, 16).ok()) else {
            break;
        };
        if size == 0 {
            return (out, true);
        }
        let Some(chunk) = rest.get(end + 2..end + 2 + size) else {
            break;
        };
        out.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    (out, false)
}
