//! Servers that require a preamble on each connection: an HTTP CONNECT, a PROXY protocol header or TLS. They record the
//! preamble and forward the rest.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::Result;

/// The maximum size of a preamble, in bytes.
const LONGEST: usize = 8192;
/// The signature of version 2 of the PROXY protocol.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// The preamble of a connection.
#[derive(Clone, Debug)]
pub enum Preamble {
    /// `CONNECT HOST:PORT`. The target is recorded.
    Connect,
    /// A header of the PROXY protocol. Its version and source address are recorded, as in `v1 127.0.0.1`.
    ProxyProtocol,
    /// TLS. The server name (SNI) is recorded.
    Tls(Arc<ServerConfig>),
}

/// A running relay. Dropping it closes its connections.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    received: Arc<Mutex<Vec<String>>>,
    // Dropping it stops the server.
    _server: JoinSet<()>,
}

impl Relay {
    /// Starts a relay on a free loopback port, in front of this address.
    pub async fn start(preamble: Preamble, target: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let received = Arc::new(Mutex::new(Vec::new()));
        let mut server = JoinSet::new();
        server.spawn(serve(listener, preamble, target, Arc::clone(&received)));
        Ok(Relay { address, received, _server: server })
    }

    /// The address that the relay listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The recorded preambles of all connections so far.
    pub fn received(&self) -> Vec<String> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: TcpListener, preamble: Preamble, target: SocketAddr, received: Arc<Mutex<Vec<String>>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let (preamble, received) = (preamble.clone(), Arc::clone(&received));
                    connections.spawn(async move {
                        // A connection with another preamble is closed.
                        let _ = relay(stream, preamble, target, &received).await;
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn relay(
    mut stream: TcpStream,
    preamble: Preamble,
    target: SocketAddr,
    received: &Mutex<Vec<String>>,
) -> Result<()> {
    let keep = |what: String| received.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    match preamble {
        Preamble::Connect => {
            keep(connect(&mut stream).await?);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
            pass(stream, target).await
        }
        Preamble::ProxyProtocol => {
            keep(proxy_protocol(&mut stream).await?);
            pass(stream, target).await
        }
        Preamble::Tls(config) => {
            let stream = TlsAcceptor::from(config).accept(stream).await?;
            keep(stream.get_ref().1.server_name().unwrap_or_default().to_owned());
            pass(stream, target).await
        }
    }
}

async fn pass<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, target: SocketAddr) -> Result<()> {
    let mut behind = TcpStream::connect(target).await?;
    tokio::io::copy_bidirectional(&mut stream, &mut behind).await?;
    Ok(())
}

/// Reads a CONNECT request and returns its target.
async fn connect(stream: &mut TcpStream) -> Result<String> {
    let head = read_until(stream, b"\r\n\r\n").await?;
    let mut words = head.split(' ');
    match (words.next(), words.next()) {
        (Some("CONNECT"), Some(place)) => Ok(place.to_owned()),
        _ => Err(format!("no request for a tunnel: {head}").into()),
    }
}

/// Reads a PROXY protocol header of either version.
async fn proxy_protocol(stream: &mut TcpStream) -> Result<String> {
    let mut start = [0; 12];
    stream.read_exact(&mut start).await?;
    if &start == SIGNATURE {
        let mut fixed = [0; 4];
        stream.read_exact(&mut fixed).await?;
        let mut addresses = vec![0; usize::from(u16::from_be_bytes([fixed[2], fixed[3]]))];
        stream.read_exact(&mut addresses).await?;
        let sender = addresses.get(..4).ok_or("no address of IPv4")?;
        let sender: Vec<String> = sender.iter().map(u8::to_string).collect();
        return Ok(format!("v2 {}", sender.join(".")));
    }
    let line = String::from_utf8_lossy(&start).into_owned() + &read_until(stream, b"\r\n").await?;
    let mut words = line.split(' ').skip(2);
    match (line.starts_with("PROXY TCP4 "), words.next()) {
        (true, Some(sender)) => Ok(format!("v1 {sender}")),
        _ => Err(format!("no header of the PROXY protocol: {line}").into()),
    }
}

/// Reads up to these bytes and not beyond, because the rest is forwarded.
async fn read_until(stream: &mut TcpStream, end: &[u8]) -> Result<String> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        if read.len() > LONGEST {
            return Err("a line without an end".into());
        }
        read.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(read)?)
}
