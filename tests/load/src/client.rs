//! A simulated proxy: subscribes in Envoy's order, over its own connection.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{RecvStream, SendStream};
use rustls::ClientConfig;
use test_harness::run::Protocol;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::facts::{CLUSTERS, ENDPOINTS, Facts, LISTENERS, REMOVED, ROUTES, VIRTUAL_HOSTS};
use crate::kept::Kept;
use crate::parts::{Part, Parts};
use crate::request::Request;
use crate::texts::Id;
use crate::{certificates, texts, wire};

#[cfg(test)]
mod tests;

/// The field of a response with a resource.
const RESOURCES: u64 = 2;
/// The most bytes that all proxies have not read. They are in memory, of the kernel or of the client.
const UNREAD: usize = 4 << 30;
/// The bounds of a proxy's window. With Envoy's, 256 MiB, a few proxies would use all memory; a small one slows down the server.
const WINDOWS: (usize, usize) = (256 << 10, 64 << 20);

/// The control plane to which a proxy connects, with the settings of the connection.
pub struct Place {
    /// The address of the control plane.
    pub address: SocketAddr,
    /// Its own certificate, if it connects over TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The number of bytes that the server may send before the proxy reads them.
    pub window: u32,
}

/// The window of each of so many proxies.
pub fn window(proxies: usize) -> u32 {
    let (least, most) = WINDOWS;
    u32::try_from((UNREAD / proxies.max(1)).clamp(least, most)).unwrap_or(u32::MAX)
}

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
    expected: Mutex<Option<(Id, Option<Instant>)>>,
    /// The endpoints that the proxy rejects, and its error.
    refused: Mutex<Option<(Id, String)>>,
    /// The expected virtual host of a route table, and when it arrived.
    expected_host: Mutex<Option<(Bytes, Option<Instant>)>>,
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
        *self.expected.lock().unwrap_or_else(PoisonError::into_inner) = Some((texts::id(name.as_bytes()), None));
    }

    /// Rejects from now on each response with the endpoints of this name, with this error.
    pub fn refuse(&self, name: &str, error: &str) {
        let refused = (texts::id(name.as_bytes()), error.to_owned());
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(refused);
    }

    /// The error for a response with these endpoints, if it is rejected.
    fn refusal(&self, changes: &[(Id, Id)]) -> Option<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let (refused, error) = refused.as_ref()?;
        has_arrived(*refused, changes).then(|| error.clone())
    }

    /// The time when the expected endpoints arrived.
    pub fn expected(&self) -> Option<Instant> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.1
    }

    /// Records from now on when a route table with this host arrives.
    pub fn expect_host(&self, host: &str) {
        let name = Bytes::from(format!("{host}:"));
        *self.expected_host.lock().unwrap_or_else(PoisonError::into_inner) = Some((name, None));
    }

    /// The time when the expected host arrived.
    pub fn expected_host(&self) -> Option<Instant> {
        self.expected_host.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.1
    }

    /// Compares the hosts of a route table that arrived.
    fn table_arrived(&self, resource: &[u8]) {
        let mut expected = self.expected_host.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((name, time @ None)) = &mut *expected else { return };
        if wire::host_names(resource).any(|host| host.starts_with(name)) {
            *time = Some(Instant::now());
        }
    }

    /// Compares the names of endpoints that arrived.
    fn arrived(&self, changes: &[(Id, Id)]) {
        if let Some((expected, time)) = &mut *self.expected.lock().unwrap_or_else(PoisonError::into_inner)
            && has_arrived(*expected, changes)
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

/// Whether a response with these changes has a resource of this name.
fn has_arrived(name: Id, changes: &[(Id, Id)]) -> bool {
    changes.iter().any(|(changed, version)| *changed == name && *version != REMOVED)
}

/// Runs one proxy until its stream ends, which is an error. If it has had a stream before, it reports what it has.
///
/// `door` limits the number of proxies that connect at the same time, because the system refuses connections beyond its
/// queue.
pub async fn run(place: Place, node: Bytes, protocol: Protocol, seen: Arc<Seen>, door: Arc<Semaphore>) -> Result<()> {
    let permit = door.acquire().await?;
    let address = place.address;
    let mut client = connect(place).await?;
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
    let mut body = response.into_body();
    read(&mut body, &mut proxy, &seen).await?;
    let trailers = body.trailers().await?;
    bail!("the server ended the stream: {trailers:?}");
}

/// Reads responses until the stream ends. Their parts are dropped as soon as they have been read.
async fn read(body: &mut RecvStream, proxy: &mut Proxy, seen: &Seen) -> Result<()> {
    let (mut parts, mut facts) = (Parts::default(), Facts::new(proxy.protocol));
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        body.flow_control().release_capacity(chunk.len())?;
        seen.bytes.fetch_add(chunk.len() as u64, Ordering::Relaxed);
        parts.feed(&chunk, |part| {
            match part {
                Part::Field(number, value) => {
                    facts.read(number, value);
                    if number == RESOURCES && proxy.protocol == Protocol::Delta {
                        seen.table_arrived(value);
                    }
                }
                Part::End => {
                    proxy.receive(&std::mem::replace(&mut facts, Facts::new(proxy.protocol)))?;
                    seen.response();
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Connects, over TLS if there is a configuration.
async fn connect(Place { address, tls, window }: Place) -> Result<SendRequest<Bytes>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => speak(stream, window).await,
        Some(config) => speak(certificates::encrypted(stream, config).await?, window).await,
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    window: u32,
) -> Result<SendRequest<Bytes>> {
    let (client, connection) = h2::client::Builder::new()
        .initial_window_size(window)
        .initial_connection_window_size(window)
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

impl Proxy {
    /// Acknowledges a response, and subscribes to what it references.
    fn receive(&mut self, facts: &Facts) -> Result<()> {
        let kind = facts.kind.context("a response of an unknown type")?;
        if kind == ENDPOINTS
            && let Some(error) = self.seen.refusal(&facts.changes)
        {
            return self.reject(kind, &facts.nonce, &error);
        }
        if self.protocol == Protocol::Sotw {
            self.kept.types[kind].version = Bytes::copy_from_slice(&facts.version);
        }
        self.seen.pending.fetch_and(!(1 << kind), Ordering::Relaxed);
        self.seen.resources.fetch_add(facts.resources, Ordering::Relaxed);
        if kind == ENDPOINTS {
            self.seen.arrived(&facts.changes);
        }
        self.kept.types[kind].record(&facts.changes);
        // As Envoy does: when it reads the first table with VHDS, before it accepts the table.
        if kind == ROUTES && !self.kept.vhds && self.protocol == Protocol::Delta && facts.discovers_hosts {
            self.kept.vhds = true;
            self.ask(VIRTUAL_HOSTS, &[], b"")?;
        }
        self.ask(kind, &[], &facts.nonce)?;
        match kind {
            CLUSTERS if self.protocol == Protocol::Delta => self.follow_clusters(facts),
            CLUSTERS => self.follow(kind, ENDPOINTS, facts),
            LISTENERS => self.follow(kind, ROUTES, facts),
            _ => Ok(()),
        }
    }

    /// The first requests of a stream that is not the first: all types at once, with what the proxy has (delta).
    fn resume(&mut self) -> Result<()> {
        for kind in [CLUSTERS, ENDPOINTS, LISTENERS, ROUTES, VIRTUAL_HOSTS] {
            let names = self.kept.types[kind].names.clone();
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
    fn follow_clusters(&mut self, facts: &Facts) -> Result<()> {
        let (new, has_removed) = self.kept.types[ENDPOINTS].follow_clusters(&facts.changes, &facts.fixed);
        if new.is_empty() && !has_removed { Ok(()) } else { self.ask(ENDPOINTS, &new, b"") }
    }

    /// Records the references of the resources, and subscribes to new ones.
    fn follow(&mut self, kind: usize, next: usize, facts: &Facts) -> Result<()> {
        let wanted = match self.protocol {
            Protocol::Sotw => facts.references.iter().map(|(_, name)| *name).collect(),
            Protocol::Delta => self.kept.types[kind].refer(&facts.changes, &facts.references),
        };
        let (new, is_changed) = self.kept.types[next].want(wanted);
        if is_changed { self.ask(next, &new, b"") } else { Ok(()) }
    }

    /// Sends a request: an acknowledgement if there is a nonce, otherwise a subscription.
    fn ask(&mut self, kind: usize, new: &[Id], nonce: &[u8]) -> Result<()> {
        self.ask_with(kind, new, nonce, false)
    }

    /// Sends a request, with the versions of the resources that the proxy has if it is the first one of a stream (delta).
    fn ask_with(&mut self, kind: usize, new: &[Id], nonce: &[u8], versions: bool) -> Result<()> {
        let is_wildcard = kind != ENDPOINTS && kind != ROUTES;
        if nonce.is_empty() && (is_wildcard || !new.is_empty()) {
            self.seen.pending.fetch_or(1 << kind, Ordering::Relaxed);
        }
        let node = self.node.take().unwrap_or_default();
        let kept = &self.kept.types[kind];
        let (names, had, version): (_, &[_], &[u8]) = match self.protocol {
            Protocol::Delta => (new, if versions { &kept.had } else { &[] }, &[]),
            Protocol::Sotw => (if is_wildcard { &[] } else { &kept.names[..] }, &[], &kept.version),
        };
        let request = Request { kind, node: &node, names, had, version, nonce, error: b"" };
        self.send(request.encoded(self.protocol))
    }

    /// Rejects a response (delta).
    fn reject(&mut self, kind: usize, nonce: &[u8], error: &str) -> Result<()> {
        let error = error.as_bytes();
        let request = Request { kind, node: b"", names: &[], had: &[], version: b"", nonce, error };
        self.send(request.encoded(Protocol::Delta))
    }

    fn send(&mut self, request: Bytes) -> Result<()> {
        self.send.send_data(request, false).context("the stream is closed")
    }
}
