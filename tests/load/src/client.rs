//! A simulated proxy: subscribes in Envoy's order, over its own connection.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use rustls::ClientConfig;
use test_harness::run::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::{certificates, wire};

/// The types, in Envoy's order of subscription.
const TYPES: [&str; 5] = [
    "type.googleapis.com/envoy.config.cluster.v3.Cluster",
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "type.googleapis.com/envoy.config.listener.v3.Listener",
    "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
    "type.googleapis.com/envoy.config.route.v3.VirtualHost",
];
const CLUSTERS: usize = 0;
const ENDPOINTS: usize = 1;
const LISTENERS: usize = 2;
const ROUTES: usize = 3;
const VIRTUAL_HOSTS: usize = 4;

/// The counters of a proxy, read while it runs.
#[derive(Debug, Default)]
pub struct Seen {
    /// The bytes of all responses.
    pub bytes: AtomicU64,
    /// The number of responses.
    pub responses: AtomicU64,
    /// The number of resources in them.
    pub resources: AtomicU64,
    /// What the proxy had when its stream ended, for the next stream.
    kept: Mutex<Option<Kept>>,
    /// The types, one bit each, that were subscribed to and not answered yet.
    pending: AtomicU64,
    times: Mutex<(Option<Instant>, Option<Instant>)>,
    /// The name of the expected endpoints, and when they arrived.
    expected: Mutex<Option<(String, Option<Instant>)>>,
}

impl Seen {
    /// The times of the first and the last response since `forget`.
    pub fn times(&self) -> Option<(Instant, Instant)> {
        let times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        Some((times.0?, times.1?))
    }

    /// Whether all subscriptions have been answered.
    pub fn is_settled(&self) -> bool {
        self.pending.load(Ordering::Relaxed) == 0
    }

    /// The bytes and the number of all responses so far.
    pub fn totals(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.responses.load(Ordering::Relaxed))
    }

    /// Resets the times.
    pub fn forget(&self) {
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = (None, None);
    }

    /// Records from now on when the endpoints of this name arrive.
    pub fn expect(&self, name: &str) {
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = Some((name.to_owned(), None));
    }

    /// The time when the expected endpoints arrived.
    pub fn expected(&self) -> Option<Instant> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.1
    }

    /// Compares the name of endpoints that arrived.
    fn arrived(&self, name: &[u8]) {
        if let Some((expected, time)) = &mut *self.expected.lock().unwrap_or_else(PoisonError::into_inner)
            && expected.as_bytes() == name
        {
            time.get_or_insert_with(Instant::now);
        }
    }

    fn keep(&self, kept: Kept) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    fn take_kept(&self) -> Option<Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn response(&self) {
        let now = Instant::now();
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner);
        *times = (times.0.or(Some(now)), Some(now));
        self.responses.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs one proxy until its stream ends, which is an error. If it has had a stream before, it reports what it has.
///
/// `door` limits the number of proxies that connect at the same time, because the system refuses connections beyond its
/// queue.
pub async fn run(
    (address, tls): (SocketAddr, Option<Arc<ClientConfig>>),
    node: Bytes,
    protocol: Protocol,
    seen: Arc<Seen>,
    door: Arc<Semaphore>,
) -> Result<()> {
    let permit = door.acquire().await?;
    let mut client = connect(address, tls).await?;
    drop(permit);
    let method = match protocol {
        Protocol::Sotw => "StreamAggregatedResources",
        Protocol::Delta => "DeltaAggregatedResources",
    };
    let request =
        http::Request::post(format!("http://{address}/envoy.service.discovery.v3.AggregatedDiscoveryService/{method}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(())?;
    let (response, send) = client.send_request(request, false)?;
    let (kept, seen_before) = (seen.take_kept(), Arc::clone(&seen));
    let resumes = kept.is_some();
    let mut proxy = Proxy { protocol, node: Some(node), send, kept: kept.unwrap_or_default(), seen: seen_before };
    match resumes {
        true => proxy.resume()?,
        false => {
            proxy.ask(CLUSTERS, &[], b"")?;
            proxy.ask(LISTENERS, &[], b"")?;
        }
    }
    let response = response.await?;
    if !response.status().is_success() {
        bail!("the server answered {}", response.status());
    }
    let mut messages = Messages { body: response.into_body(), buffer: BytesMut::new(), seen: Arc::clone(&seen) };
    while let Some(message) = messages.next().await? {
        proxy.receive(&message)?;
        seen.response();
    }
    let trailers = messages.body.trailers().await?;
    bail!("the server ended the stream: {trailers:?}");
}

/// Connects, over TLS if there is a configuration.
async fn connect(address: SocketAddr, tls: Option<Arc<ClientConfig>>) -> Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => speak(stream).await,
        Some(config) => speak(certificates::encrypted(stream, config).await?).await,
    }
}

async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<SendRequest<Bytes>> {
    // Envoy's windows for gRPC are 256 MiB; a smaller one would measure the client.
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(64 << 20)
        .initial_connection_window_size(64 << 20)
        .handshake(stream)
        .await?;
    tokio::spawn(connection);
    Ok(client.ready().await?)
}

struct Proxy {
    protocol: Protocol,
    /// Sent with the first request only.
    node: Option<Bytes>,
    send: SendStream<Bytes>,
    kept: Kept,
    seen: Arc<Seen>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.seen.keep(std::mem::take(&mut self.kept));
    }
}

/// The state of a proxy that outlives its streams.
#[derive(Debug, Default)]
struct Kept {
    types: [Subscription; 5],
    /// Whether it has subscribed to virtual hosts.
    vhds: bool,
}

#[derive(Debug, Default)]
struct Subscription {
    /// The names and versions of the resources that it has (delta).
    had: BTreeMap<Arc<str>, Arc<str>>,
    /// The subscribed names.
    names: BTreeSet<Arc<str>>,
    /// The references of each resource, if it may have several.
    referred: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    version: Bytes,
}

impl Proxy {
    /// Acknowledges a response, and subscribes to what it references.
    fn receive(&mut self, message: &[u8]) -> Result<()> {
        let url = wire::field(message, 4);
        let kind = TYPES.iter().position(|t| t.as_bytes() == url).context("a response of an unknown type")?;
        if self.protocol == Protocol::Sotw {
            self.kept.types[kind].version = Bytes::copy_from_slice(wire::field(message, 1));
        }
        self.seen.pending.fetch_and(!(1 << kind), Ordering::Relaxed);
        let nonce = wire::field(message, 5).to_vec();
        self.keep(kind, message);
        // As Envoy does: when it reads the first table with VHDS, before it accepts the table.
        if kind == ROUTES && !self.kept.vhds && self.protocol == Protocol::Delta && discovers_hosts(message) {
            self.kept.vhds = true;
            self.ask(VIRTUAL_HOSTS, &[], b"")?;
        }
        self.ask(kind, &[], &nonce)?;
        match kind {
            CLUSTERS if self.protocol == Protocol::Delta => self.follow_clusters(message),
            CLUSTERS => self.follow(kind, ENDPOINTS, message),
            LISTENERS => self.follow(kind, ROUTES, message),
            _ => Ok(()),
        }
    }

    /// Records the resources of a response.
    fn keep(&mut self, kind: usize, message: &[u8]) {
        let had = &mut self.kept.types[kind].had;
        for (number, value) in wire::fields(message) {
            match (number, self.protocol) {
                (2, protocol) => {
                    self.seen.resources.fetch_add(1, Ordering::Relaxed);
                    if protocol == Protocol::Delta {
                        if kind == ENDPOINTS {
                            self.seen.arrived(wire::field(value, 3));
                        }
                        had.insert(shared(wire::field(value, 3)), shared(wire::field(value, 1)));
                    }
                }
                (6, Protocol::Delta) => drop(had.remove(&shared(value))),
                _ => {}
            }
        }
    }

    /// The first requests of a stream that is not the first: all types at once, with what the proxy has (delta).
    fn resume(&mut self) -> Result<()> {
        for kind in [CLUSTERS, ENDPOINTS, LISTENERS, ROUTES, VIRTUAL_HOSTS] {
            let names: Vec<Arc<str>> = self.kept.types[kind].names.iter().cloned().collect();
            let is_wanted = match kind {
                CLUSTERS | LISTENERS => true,
                VIRTUAL_HOSTS => self.kept.vhds,
                _ => !names.is_empty(),
            };
            if is_wanted {
                self.ask_with(kind, &names, b"", true)?;
            }
        }
        Ok(())
    }

    /// Subscribes to the endpoints of new clusters (delta). It costs by the clusters that changed, so that a proxy with
    /// thousands of clusters does not delay the measurement.
    fn follow_clusters(&mut self, message: &[u8]) -> Result<()> {
        let names = &mut self.kept.types[ENDPOINTS].names;
        let (mut new, mut gone) = (Vec::new(), false);
        for (number, value) in wire::fields(message) {
            match number {
                2 => {
                    let cluster = wire::field(wire::field(value, 2), 2);
                    let name = shared(wire::field(value, 3));
                    match wire::has_discovered_endpoints(cluster) {
                        true => new.extend(names.insert(name.clone()).then_some(name)),
                        false => gone |= names.remove(&name),
                    }
                }
                6 => gone |= names.remove(&shared(value)),
                _ => {}
            }
        }
        if new.is_empty() && !gone { Ok(()) } else { self.ask(ENDPOINTS, &new, b"") }
    }

    /// Records the references of the resources, and subscribes to new ones.
    fn follow(&mut self, kind: usize, next: usize, message: &[u8]) -> Result<()> {
        if self.protocol == Protocol::Sotw {
            self.kept.types[kind].referred.clear();
        }
        for (number, value) in wire::fields(message) {
            match (number, self.protocol) {
                (2, protocol) => {
                    let any = if protocol == Protocol::Delta { wire::field(value, 2) } else { value };
                    let (name, refers) = referred(kind, wire::field(any, 2));
                    self.kept.types[kind].referred.insert(name, refers);
                }
                (6, Protocol::Delta) => {
                    self.kept.types[kind].referred.remove(&shared(value));
                }
                _ => {}
            }
        }
        let wanted: BTreeSet<Arc<str>> = self.kept.types[kind].referred.values().flatten().cloned().collect();
        let new: Vec<Arc<str>> = wanted.difference(&self.kept.types[next].names).cloned().collect();
        let changed = wanted != self.kept.types[next].names;
        self.kept.types[next].names = wanted;
        if changed { self.ask(next, &new, b"") } else { Ok(()) }
    }

    /// Sends a request: an acknowledgement if there is a nonce, otherwise a subscription.
    fn ask(&mut self, kind: usize, new: &[Arc<str>], nonce: &[u8]) -> Result<()> {
        self.ask_with(kind, new, nonce, false)
    }

    /// Sends a request, with the versions of the resources that the proxy has if it is the first one of a stream (delta).
    fn ask_with(&mut self, kind: usize, new: &[Arc<str>], nonce: &[u8], versions: bool) -> Result<()> {
        let is_wildcard = kind != ENDPOINTS && kind != ROUTES;
        if nonce.is_empty() && (is_wildcard || !new.is_empty()) {
            self.seen.pending.fetch_or(1 << kind, Ordering::Relaxed);
        }
        let mut out = BytesMut::new();
        let node = self.node.take().unwrap_or_default();
        match self.protocol {
            Protocol::Delta => {
                if !node.is_empty() {
                    wire::put(&mut out, 1, &node);
                }
                wire::put(&mut out, 2, TYPES[kind].as_bytes());
                new.iter().for_each(|name| wire::put(&mut out, 3, name.as_bytes()));
                let reported = versions.then_some(&self.kept.types[kind].had);
                for (name, version) in reported.into_iter().flatten() {
                    let mut entry = BytesMut::new();
                    wire::put(&mut entry, 1, name.as_bytes());
                    wire::put(&mut entry, 2, version.as_bytes());
                    wire::put(&mut out, 5, &entry);
                }
                wire::put(&mut out, 6, nonce);
            }
            Protocol::Sotw => {
                let subscription = &mut self.kept.types[kind];
                wire::put(&mut out, 1, &subscription.version);
                if !node.is_empty() {
                    wire::put(&mut out, 2, &node);
                }
                subscription.names.iter().for_each(|name| {
                    if kind == ENDPOINTS || kind == ROUTES {
                        wire::put(&mut out, 3, name.as_bytes());
                    }
                });
                wire::put(&mut out, 4, TYPES[kind].as_bytes());
                wire::put(&mut out, 5, nonce);
            }
        }
        self.send.send_data(wire::frame(&out), false).context("the stream is closed")
    }
}

/// A text that all proxies share: they have the same names and versions.
fn shared(text: &[u8]) -> Arc<str> {
    static TEXTS: LazyLock<Mutex<HashSet<Arc<str>>>> = LazyLock::new(Mutex::default);
    let text = String::from_utf8_lossy(text);
    let mut texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner);
    match texts.get(&*text) {
        Some(known) => Arc::clone(known),
        None => {
            let text: Arc<str> = text.into();
            texts.insert(Arc::clone(&text));
            text
        }
    }
}

/// Whether a route table in a response uses VHDS.
fn discovers_hosts(response: &[u8]) -> bool {
    let resources = wire::fields(response).filter(|(number, _)| *number == 2);
    let tables = resources.map(|(_, resource)| wire::field(wire::field(resource, 2), 2));
    tables.into_iter().any(|table| wire::fields(table).any(|(number, _)| number == 9))
}

/// The name of a cluster or listener, and its references.
fn referred(kind: usize, resource: &[u8]) -> (Arc<str>, Vec<Arc<str>>) {
    let name = shared(wire::field(resource, 1));
    let refers = match kind {
        CLUSTERS if wire::has_discovered_endpoints(resource) => vec![name.clone()],
        LISTENERS => wire::route_names(resource).into_iter().map(Arc::from).collect(),
        _ => Vec::new(),
    };
    (name, refers)
}

/// The messages of a response body.
struct Messages {
    body: RecvStream,
    buffer: BytesMut,
    seen: Arc<Seen>,
}

impl Messages {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(head) = self.buffer.first_chunk::<5>() {
                let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
                if self.buffer.len() >= 5 + length {
                    return Ok(Some(self.buffer.split_to(5 + length).freeze().slice(5..)));
                }
                self.buffer.reserve(5 + length - self.buffer.len());
            } else if self.buffer.capacity() > 64 << 10 {
                // Memory for a large message is not kept.
                self.buffer = BytesMut::from(&self.buffer[..]);
            }
            let Some(chunk) = self.body.data().await else {
                return Ok(None);
            };
            let chunk = chunk?;
            self.body.flow_control().release_capacity(chunk.len())?;
            self.seen.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            self.buffer.extend_from_slice(&chunk);
        }
    }
}
