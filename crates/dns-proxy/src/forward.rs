//! Forwards queries to name servers.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use domain::base::Message;
use domain::base::iana::Rcode;
use futures::stream::{self, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, Interest};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::message::{Query, Transport, truncated};
use crate::settings::Settings;

/// The largest datagram that name servers send by default. A client that accepts more may get a complete answer over TCP.
const COMMON_UDP: usize = 1232;

/// The name servers, and the queries that wait for them.
#[derive(Debug)]
pub struct Forwarder {
    servers: Vec<Server>,
    parallel: bool,
    tcp_only: bool,
    timeout: Duration,
    turn: AtomicUsize,
    /// Makes message IDs that others cannot guess.
    ids: RandomState,
    /// The messages that were sent and are not answered, by their hash. A query that equals one has come back.
    sent: Mutex<HashSet<u64>>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Whether the last query failed. It is asked last then.
    failing: AtomicBool,
}

/// A message that is sent, until this is dropped.
struct Sent<'a>(&'a Forwarder, u64);

impl Drop for Sent<'_> {
    fn drop(&mut self) {
        self.0.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.1);
    }
}

impl Forwarder {
    /// Forwards to the name servers of the settings, except those that listen on the proxy's own addresses.
    #[must_use]
    pub fn new(settings: &Settings, own: &[SocketAddr]) -> Forwarder {
        let is_own = |server: &SocketAddr| {
            own.iter().any(|own| {
                let anywhere = own.ip().is_unspecified() && server.ip().is_loopback();
                own.port() == server.port() && (own.ip() == server.ip() || anywhere)
            })
        };
        let (own, servers): (Vec<_>, Vec<_>) = settings.resolv.servers.iter().copied().partition(is_own);
        for server in own {
            tracing::warn!(%server, "this name server of resolv.conf is the DNS proxy itself; it is left out");
        }
        Forwarder {
            servers: servers.into_iter().map(|address| Server { address, failing: AtomicBool::new(false) }).collect(),
            parallel: settings.parallel,
            tcp_only: settings.resolv.tcp_only,
            timeout: settings.timeout,
            turn: AtomicUsize::new(0),
            ids: RandomState::new(),
            sent: Mutex::new(HashSet::new()),
        }
    }

    /// The number of name servers.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.servers.len()
    }

    /// Whether a query is one that this forwarder sent: a name server points back to the proxy.
    #[must_use]
    pub fn has_come_back(&self, query: &Query<'_>) -> bool {
        let sent = self.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        sent.contains(&self.hash(query.message()))
    }

    /// The answer of a name server, in the size that the client accepts; none if no server answers. An error of a server counts
    /// only if no other server has a better answer.
    pub async fn forward(&self, query: &Query<'_>, transport: Transport) -> Option<Vec<u8>> {
        let transport = if self.tcp_only { Transport::Tcp } else { transport };
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.servers.len();
        let mut order: Vec<&Server> = (0..count).map(|i| &self.servers[turn.wrapping_add(i) % count]).collect();
        order.sort_by_key(|server| server.failing.load(Ordering::Relaxed));
        let at_once = if self.parallel { count.max(1) } else { 1 };
        let asked: Vec<_> = order.into_iter().map(|server| self.ask(server, query, transport)).collect();
        let mut answers = stream::iter(asked).buffer_unordered(at_once);
        let mut error = None;
        while let Some(answer) = answers.next().await {
            let Some(answer) = answer else { continue };
            if !matches!(answer.header().rcode(), Rcode::SERVFAIL | Rcode::REFUSED | Rcode::NOTIMP) {
                return Some(fitted(answer, query));
            }
            error.get_or_insert(answer);
        }
        error.map(|answer| fitted(answer, query))
    }

    async fn ask(&self, server: &Server, query: &Query<'_>, transport: Transport) -> Option<Message<Vec<u8>>> {
        let mut message = Message::from_octets(query.message().as_slice().to_vec()).ok()?;
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        message.header_mut().set_id(self.ids.hash_one((turn, server.address)) as u16);
        let hash = self.hash(message.for_slice());
        self.sent.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(hash);
        let _sent = Sent(self, hash);
        let mut answer = self.timed(server, &message, transport).await;
        let is_short = answer.as_ref().is_ok_and(|answer| answer.header().tc());
        if is_short && transport == Transport::Udp && query.limit > COMMON_UDP {
            answer = self.timed(server, &message, Transport::Tcp).await.or(answer);
        }
        server.failing.store(answer.is_err(), Ordering::Relaxed);
        match answer {
            Ok(mut answer) => {
                answer.header_mut().set_id(query.message().header().id());
                Some(answer)
            }
            Err(error) => {
                tracing::info!(server = %server.address, name = query.name, %error, "a name server does not answer");
                None
            }
        }
    }

    async fn timed(
        &self,
        server: &Server,
        query: &Message<Vec<u8>>,
        transport: Transport,
    ) -> io::Result<Message<Vec<u8>>> {
        let exchange = async {
            match transport {
                Transport::Udp => over_udp(server.address, query).await,
                Transport::Tcp => over_tcp(server.address, query).await,
            }
        };
        timeout(self.timeout, exchange).await?
    }

    fn hash(&self, message: &Message<[u8]>) -> u64 {
        self.ids.hash_one(message.as_slice())
    }
}

/// The bytes of an answer that fits; otherwise an empty one that is marked as truncated.
fn fitted(answer: Message<Vec<u8>>, query: &Query<'_>) -> Vec<u8> {
    let bytes = answer.into_octets();
    if bytes.len() <= query.limit { bytes } else { truncated(query) }
}

async fn over_udp(server: SocketAddr, query: &Message<Vec<u8>>) -> io::Result<Message<Vec<u8>>> {
    let any = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(server).await?;
    socket.send(query.as_slice()).await?;
    loop {
        // A server that refuses is an error of the socket, which does not make it readable.
        if socket.ready(Interest::READABLE | Interest::ERROR).await?.is_error() {
            return Err(socket.take_error()?.unwrap_or_else(|| io::ErrorKind::ConnectionRefused.into()));
        }
        match receive(&socket) {
            // Other messages are late or forged.
            Ok(bytes) => match Message::try_from_octets(bytes) {
                Ok(answer) if answer.is_answer(query) => return Ok(answer),
                _ => {}
            },
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Receives a datagram. The buffer lives only here, so that a query that waits needs none.
fn receive(socket: &UdpSocket) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 65_535];
    let size = socket.try_recv(&mut buffer)?;
    Ok(buffer[..size].to_vec())
}

async fn over_tcp(server: SocketAddr, query: &Message<Vec<u8>>) -> io::Result<Message<Vec<u8>>> {
    let mut stream = TcpStream::connect(server).await?;
    write_message(&mut stream, query.as_slice()).await?;
    let answer =
        Message::try_from_octets(read_message(&mut stream).await?).ok().filter(|answer| answer.is_answer(query));
    answer.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the answer belongs to another query"))
}

/// Reads a message with its length in front.
pub(crate) async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let size = stream.read_u16().await?;
    let mut message = Vec::new();
    // Grows with the bytes that arrive, not with the length that is announced.
    let read = stream.take(u64::from(size)).read_to_end(&mut message).await?;
    if read == usize::from(size) { Ok(message) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Writes a message with its length in front.
pub(crate) async fn write_message(stream: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    let size = u16::try_from(message.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&size.to_be_bytes()[..], message].concat()).await
}
