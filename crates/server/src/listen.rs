//! Listening sockets, and the life of the server: start, ready, drain, end.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use xds::Limits;

use crate::discovery::Discovery;
use crate::mcp::{Configuration, Service};
use crate::pages::{Awaited, Pages, Standing};
use crate::world_handle::WorldHandle;

/// Connections to one address that are served at the same time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 100_000;
/// Streams of one connection: Envoy needs one, tools a few.
const MAX_STREAMS_PER_CONNECTION: u32 = 1000;
/// How long to wait after an accept failed (no more file descriptors, say).
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// What the server is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Discovery, plain text (gRPC).
    pub grpc: SocketAddr,
    /// Readiness, and debug pages.
    pub http: SocketAddr,
    /// Metrics, version and debug pages.
    pub monitoring: SocketAddr,
    /// How often an idle connection is asked whether it is alive.
    pub keepalive_interval: Duration,
    /// How long it may take to answer.
    pub keepalive_timeout: Duration,
    /// The largest discovery request, in bytes.
    pub max_request_bytes: usize,
    /// Whether proxies that can get virtual hosts singly do.
    pub vhds: bool,
    /// From how many endpoints on those of a cluster are sent singly to proxies that can take them so; none: never.
    pub leds: Option<NonZeroU32>,
    /// Proxies on this machine may have secrets.
    pub secrets_to_local: bool,
    /// Limits of the protocol machine; the server uses those for decoding.
    pub limits: Limits,
    /// What `/version` says.
    pub version: String,
}

/// Where the server listens: the real ports where 0 was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Discovery.
    pub grpc: SocketAddr,
    /// Readiness.
    pub http: SocketAddr,
    /// Metrics.
    pub monitoring: SocketAddr,
}

/// A running server.
pub struct Server {
    pilot: WorldHandle,
    addresses: Addresses,
    ready: Arc<AtomicBool>,
    awaited: Awaited,
    standing: Standing,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Binds the addresses and starts to serve. Not ready before [`Server::set_ready`]; discovery waits until then, too,
    /// so that no proxy is told that there is nothing before the sources were read.
    ///
    /// # Errors
    /// An address that cannot be bound, by name.
    pub async fn start(options: Options, pilot: WorldHandle) -> std::io::Result<Server> {
        Server::start_with(options, pilot, None).await
    }

    /// The same, with configuration for other control planes on the discovery port.
    ///
    /// # Errors
    /// An address that cannot be bound, by name.
    pub async fn start_with(
        options: Options,
        pilot: WorldHandle,
        configuration: Option<Configuration>,
    ) -> std::io::Result<Server> {
        let bind = async |what: &str, address: SocketAddr| {
            let named = |e: std::io::Error| {
                std::io::Error::new(e.kind(), format!("cannot listen for {what} on {address}: {e}"))
            };
            let listener = TcpListener::bind(address).await.map_err(named)?;
            let bound = listener.local_addr()?;
            Ok::<_, std::io::Error>((listener, bound))
        };
        let (grpc, grpc_at) = bind("discovery", options.grpc).await?;
        let (http, http_at) = bind("readiness", options.http).await?;
        let (monitoring, monitoring_at) = bind("monitoring", options.monitoring).await?;
        let ready = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = watch::channel(false);
        let awaited = Awaited::default();
        let standing = Standing::default();
        let pages = Pages {
            pilot: pilot.clone(),
            ready: ready.clone(),
            awaited: awaited.clone(),
            standing: standing.clone(),
            version: options.version.clone().into(),
        };
        let limits = Arc::new(options.limits.clone());
        let discovery = Discovery {
            pilot: pilot.clone(),
            limits,
            max_request_bytes: options.max_request_bytes,
            vhds: options.vhds,
            leds: options.leds,
            secrets_to_local: options.secrets_to_local,
            configuration: configuration.map(|configuration| Service {
                configuration,
                stopped: stopped.clone(),
            }),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_grpc(grpc, discovery, options, stopped.clone(), ready.clone()));
        tasks.spawn(serve_http(http, pages.clone(), stopped.clone()));
        tasks.spawn(serve_http(monitoring, pages, stopped));
        let addresses = Addresses {
            grpc: grpc_at,
            http: http_at,
            monitoring: monitoring_at,
        };
        Ok(Server {
            pilot,
            addresses,
            ready,
            awaited,
            standing,
            stop,
            tasks,
        })
    }

    /// Where it listens.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// What it waits for until it is ready: `/ready` says so.
    pub fn set_awaited(&self, what: &str) {
        self.awaited.set(what);
    }

    /// Where to say what is to be known of the sources.
    pub fn standing(&self) -> Standing {
        self.standing.clone()
    }

    /// From now on it is ready, and discovery is served.
    pub fn set_ready(&self) {
        self.awaited.set("");
        self.ready.store(true, Ordering::Release);
        // Wakes those that wait for it.
        self.stop.send_modify(|_| {});
    }

    /// Not ready any more; streams end, so that proxies connect to another replica; connections are closed. Waits for
    /// them at most `grace` long.
    pub async fn shut_down(mut self, grace: Duration) {
        self.ready.store(false, Ordering::Release);
        self.pilot.end().await;
        self.stop.send_replace(true);
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!("connections were still open after {grace:?}; they are cut");
        }
    }
}

async fn serve_grpc(
    listener: TcpListener,
    discovery: Discovery,
    options: Options,
    mut stopped: watch::Receiver<bool>,
    ready: Arc<AtomicBool>,
) {
    if stopped
        .wait_for(|stop| *stop || ready.load(Ordering::Acquire))
        .await
        .is_err()
    {
        return;
    }
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(options.keepalive_interval))
        .keep_alive_timeout(options.keepalive_timeout)
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION);
    accept(listener, stopped, move |socket, mut stopped| {
        let discovery = discovery.clone();
        let local = is_local(&socket);
        let service = move |request| {
            let response = discovery.call(request, local);
            async move { Ok::<_, std::convert::Infallible>(response) }
        };
        let connection = builder.serve_connection(TokioIo::new(socket), service_fn(service));
        async move {
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = stopped.wait_for(|stop| *stop) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    })
    .await;
}

/// Whether the other end of a connection is on this machine.
fn is_local(socket: &TcpStream) -> bool {
    socket
        .peer_addr()
        .is_ok_and(|peer| peer.ip().to_canonical().is_loopback())
}

async fn serve_http(listener: TcpListener, pages: Pages, stopped: watch::Receiver<bool>) {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_secs(30));
    accept(listener, stopped, move |socket, mut stopped| {
        let pages = pages.clone();
        let answer = move |request| {
            let pages = pages.clone();
            async move { Ok::<_, std::convert::Infallible>(pages.answer(&request).await) }
        };
        let connection = builder.serve_connection(TokioIo::new(socket), service_fn(answer));
        async move {
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => return,
                _ = stopped.wait_for(|stop| *stop) => {}
            }
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    })
    .await;
}

/// Accepts connections until it is told to stop, then waits for those that are open.
async fn accept<F>(
    listener: TcpListener,
    mut stopped: watch::Receiver<bool>,
    serve: impl Fn(TcpStream, watch::Receiver<bool>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut open = JoinSet::new();
    loop {
        // Ended connections are taken out as new ones come; a panic of one ends that one alone.
        while open.try_join_next().is_some() {}
        let Ok(permit) = room.clone().acquire_owned().await else {
            break;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stopped.wait_for(|stop| *stop) => break,
        };
        match accepted {
            Ok((socket, _)) => {
                let _ = socket.set_nodelay(true);
                let serving = serve(socket, stopped.clone());
                open.spawn(async move {
                    serving.await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}
