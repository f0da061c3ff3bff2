//! Connections of xDS: plaintext, TLS and the Unix socket, all with HTTP/2.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http2_server::{Connection, Keepalive, Settings};
use listeners::{Usage, accept};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::authentication::ClientCertificate;
use crate::connection_age::Age;
use crate::discovery::Discovery;
use crate::grpc::Status;
use crate::listen::Options;
use crate::log_limit::LogLimit;
use crate::peer::Peer;
use crate::unix_socket::{self, UnixSocket};
use crate::{signing, tls};

/// The maximum number of concurrent streams on one connection. Envoy uses one.
const MAX_STREAMS_PER_CONNECTION: u32 = 100;
/// The bytes of requests that a stream may send before they are read.
const RECEIVE_WINDOW: u32 = 64 << 10;

/// The client of a connection, as far as the connection proves it.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    /// Its address; none on a Unix socket.
    pub(crate) address: Option<IpAddr>,
    pub(crate) transport: Transport,
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    /// The kernel or the address proves what is known about the client.
    Plaintext(Peer),
    /// TLS, and the verified certificate of the client, if it has one.
    Tls(Option<Arc<ClientCertificate>>),
}

impl Client {
    /// A client of which nothing is known.
    pub(crate) fn nobody() -> Client {
        Client { address: None, transport: Transport::Plaintext(Peer::Anonymous) }
    }

    /// The certificate of the client.
    pub(crate) fn certificate(&self) -> Option<Arc<ClientCertificate>> {
        match &self.transport {
            Transport::Plaintext(_) => None,
            Transport::Tls(certificate) => certificate.clone(),
        }
    }
}

/// Whether the client of a connection is on this machine.
pub(crate) fn is_local(socket: &TcpStream, client: SocketAddr) -> bool {
    client.ip().to_canonical().is_loopback() || socket.local_addr().is_ok_and(|own| own.ip() == client.ip())
}

/// xDS over HTTP/2.
#[derive(Clone)]
pub(crate) struct Http2 {
    pub(crate) discovery: Discovery,
    pub(crate) options: Arc<Options>,
    pub(crate) stopped: watch::Receiver<bool>,
    pub(crate) ready: Arc<AtomicBool>,
}

impl Http2 {
    /// Waits until xDS is served. False if the server stops first.
    async fn is_served(&mut self) -> bool {
        let ready = &self.ready;
        let served = self.stopped.wait_for(|stop| *stop || ready.load(Ordering::Acquire)).await;
        served.is_ok_and(|stop| !*stop)
    }

    /// Serves a connection until it ends, or until `invalid` completes.
    fn serve<S, I>(&self, socket: S, client: Client, usage: Usage, invalid: I) -> impl Future<Output = ()> + use<S, I>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        I: Future<Output = Status>,
    {
        let Options { keepalive_interval: interval, keepalive_timeout: timeout, max_connection_age, .. } =
            *self.options;
        let settings = Settings {
            max_streams: MAX_STREAMS_PER_CONNECTION,
            window: RECEIVE_WINDOW,
            keepalive: Some(Keepalive { interval, timeout }),
        };
        let age = Age::new(max_connection_age);
        let (discovery, aged) = (Arc::new(self.discovery.of_connection(client)), age.aged());
        let service = move |request| {
            let (open, discovery, aged) = (usage.begin(), discovery.clone(), aged.clone());
            async move { Usage::count(discovery.call(request, aged).await, open) }
        };
        let connection = Connection::new(socket, settings, service);
        age.serve(connection, |mut connection| connection.graceful_shutdown(), invalid, self.stopped.clone())
    }
}

/// Serves xDS on the plaintext port.
pub(crate) async fn serve_plaintext(listener: TcpListener, mut protocol: Http2) {
    if !protocol.is_served().await {
        return;
    }
    let (limits, stopped) = (protocol.options.connections.grpc.clone(), protocol.stopped.clone());
    accept(
        "xDS",
        limits,
        move |cx| listener.poll_accept(cx),
        stopped,
        move |(socket, address), usage| {
            let _ = socket.set_nodelay(true);
            let peer = if is_local(&socket, address) { Peer::Loopback } else { Peer::Anonymous };
            let client = Client { address: Some(address.ip()), transport: Transport::Plaintext(peer) };
            protocol.serve(socket, client, usage, std::future::pending())
        },
    )
    .await;
}

/// Serves xDS and the certificate service on the TLS port. Handshakes are part of the time until the first request, which the
/// listener limits.
pub(crate) async fn serve_tls(
    listener: TcpListener,
    config: Arc<ServerConfig>,
    (mut certificate, signing): (watch::Receiver<Option<Arc<rustls::sign::CertifiedKey>>>, signing::Watched),
    mut protocol: Http2,
) {
    if !protocol.is_served().await {
        return;
    }
    let (limits, mut stopped) = (protocol.options.connections.grpc.clone(), protocol.stopped.clone());
    if !tls::has_certificate(&mut certificate, &mut stopped).await {
        return;
    }
    let (acceptor, log) = (TlsAcceptor::from(config), Arc::new(LogLimit::default()));
    accept(
        "xDS over TLS",
        limits,
        move |cx| listener.poll_accept(cx),
        stopped,
        move |(socket, address), usage| {
            let (acceptor, protocol, signing, log) = (acceptor.clone(), protocol.clone(), signing.clone(), log.clone());
            async move {
                let accepted = (socket, address);
                // Boxed: the task of a connection must not have room for it.
                let handshake = Box::pin(tls::handshake(&acceptor, accepted, &log, "a TLS handshake failed"));
                let Some(socket) = handshake.await else { return };
                match tls::client(socket.get_ref().1, &signing) {
                    Ok(certificate) => {
                        let transport = Transport::Tls(certificate.clone());
                        let client = Client { address: Some(address.ip()), transport };
                        let invalid = tls::invalid(certificate, signing);
                        protocol.serve(socket, client, usage, invalid).await;
                    }
                    Err(error) => log.note(|more| tracing::info!(client = %address.ip(), %error, more, "refused")),
                }
            }
        },
    )
    .await;
}

/// Serves xDS on the Unix socket. The kernel tells which user connects; connections of other users are closed.
pub(crate) async fn serve_unix((listener, socket): (UnixListener, UnixSocket), mut protocol: Http2) {
    if !protocol.is_served().await {
        return;
    }
    let (limits, stopped) = (protocol.options.connections.grpc.clone(), protocol.stopped.clone());
    let path = socket.path.clone();
    accept(
        "xDS on the Unix socket",
        limits,
        move |cx| listener.poll_accept(cx),
        stopped,
        move |(stream, _), usage| {
            let user = stream.peer_cred().ok().map(|credentials| credentials.uid());
            let peer = user.and_then(|user| socket.peer(user));
            let client = peer.map(|peer| Client { address: None, transport: Transport::Plaintext(peer) });
            let serving = client.map(|client| protocol.serve(stream, client, usage, std::future::pending()));
            async move {
                match serving {
                    Some(serving) => serving.await,
                    None => tracing::warn!(?user, "refused a connection to the xDS socket (--xds-socket-users)"),
                }
            }
        },
    )
    .await;
    unix_socket::remove(&path);
}
