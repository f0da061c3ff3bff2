//! Servers that want something of a connection before its first byte counts: a request for a tunnel, a line that says who is
//! there, or TLS. What they were told is kept; what comes then goes on to somewhere else.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

use super::Result;

/// What is read of a connection before it must have said what is wanted, in bytes.
const LONGEST: usize = 8192;
/// How version 2 of the PROXY protocol begins.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// What a connection begins with.
#[derive(Clone, Debug)]
pub enum Preamble {
    /// `CONNECT HOST:PORT`, of which the place is kept.
    Connect,
    /// A header of the PROXY protocol, of which version and sender are kept, as in `v1 127.0.0.1`.
    ProxyProtocol,
    /// TLS, of which the server name that was asked for is kept.
    Tls(Arc<ServerConfig>),
}

/// A running relay. It ends with its connections when it is dropped.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    told: Arc<Mutex<Vec<String>>>,
    // Ends what it is the owner of.
    _server: JoinSet<()>,
}

impl Relay {
    /// Starts one on a free loopback port, in front of this address.
    pub async fn start(preamble: Preamble, target: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let told = Arc::new(Mutex::new(Vec::new()));
        let mut server = JoinSet::new();
        server.spawn(serve(listener, preamble, target, Arc::clone(&told)));
        Ok(Relay {
            address,
            told,
            _server: server,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What each connection so far began with.
    pub fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(listener: TcpListener, preamble: Preamble, target: SocketAddr, told: Arc<Mutex<Vec<String>>>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let (preamble, told) = (preamble.clone(), Arc::clone(&told));
                    connections.spawn(async move {
                        // A connection that begins otherwise is closed, which its sender is told by that.
                        let _ = relay(stream, preamble, target, &told).await;
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn relay(mut stream: TcpStream, preamble: Preamble, target: SocketAddr, told: &Mutex<Vec<String>>) -> Result<()> {
    let keep = |what: String| told.lock().unwrap_or_else(PoisonError::into_inner).push(what);
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

/// Reads a request and returns the place that it wants to be connected to.
async fn connect(stream: &mut TcpStream) -> Result<String> {
    let head = read_until(stream, b"\r\n\r\n").await?;
    let mut words = head.split(' ');
    match (words.next(), words.next()) {
        (Some("CONNECT"), Some(place)) => Ok(place.to_owned()),
        _ => Err(format!("no request for a tunnel: {head}").into()),
    }
}

/// Reads a header of either version.
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

/// Reads up to these bytes and not one more, for what follows is not ours.
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
