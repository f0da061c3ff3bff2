//! Listening sockets, and the life cycle of the server: start, ready, drain, end.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use xds::Limits;

use crate::ctrlz::LogLevels;
use crate::debug_service::{self, DebugService};
use crate::discovery::Discovery;
use crate::mcp::{Configuration, Service};
use crate::pages::{Awaited, Pages, ServingStatus};
use crate::peer::{Peer, SecretAccess};
use crate::world_handle::WorldHandle;

/// The maximum number of concurrent connections to one address; further ones wait to be accepted.
const MAX_CONNECTIONS: usize = 100_000;
/// The maximum number of concurrent streams on one connection. Envoy uses one.
const MAX_STREAMS_PER_CONNECTION: u32 = 1000;
/// The pause after a failed accept, for example when file descriptors run out.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of xDS over plaintext gRPC.
    pub grpc: SocketAddr,
    /// The address of the readiness and debug pages.
    pub http: SocketAddr,
    /// The address of the metrics, version and debug pages.
    pub monitoring: SocketAddr,
    /// The interval of HTTP/2 keepalive pings on an idle connection.
    pub keepalive_interval: Duration,
    /// A connection whose peer does not answer a ping within this time is closed.
    pub keepalive_timeout: Duration,
    /// The maximum size of a discovery request, in bytes.
    pub max_request_bytes: usize,
    /// Whether proxies that support VHDS receive virtual hosts over it.
    pub vhds: bool,
    /// The clients that may read secrets.
    pub secret_access: SecretAccess,
    /// Limits of the xDS state machine, which also apply to decoding requests.
    pub limits: Limits,
    /// The text of `/version`.
    pub version: String,
    /// The name of this replica, for `istioctl proxy-status`.
    pub instance: String,
}

/// The addresses that the server is bound to. Port 0 in [`Options`] is replaced by the assigned port.
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
    world: WorldHandle,
    addresses: Addresses,
    ready: Arc<AtomicBool>,
    awaited: Awaited,
    serving_status: ServingStatus,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Server {
    /// Binds the addresses and starts serving pages. xDS is not served before [`Server::set_ready`], so that no proxy
    /// receives an empty configuration before all sources were read.
    ///
    /// # Errors
    /// An address cannot be bound; the error names it.
    pub async fn start(options: Options, world: WorldHandle) -> std::io::Result<Server> {
        Server::start_with(options, world, None).await
    }

    /// Like [`Server::start`], and serves configuration to other control planes on the xDS port.
    ///
    /// # Errors
    /// An address cannot be bound; the error names it.
    pub async fn start_with(
        options: Options,
        world: WorldHandle,
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
        let serving_status = ServingStatus::default();
        let pages = Pages {
            world: world.clone(),
            ready: ready.clone(),
            awaited: awaited.clone(),
            serving_status: serving_status.clone(),
            version: options.version.clone().into(),
        };
        let limits = Arc::new(options.limits.clone());
        let discovery = Discovery {
            world: world.clone(),
            limits,
            max_request_bytes: options.max_request_bytes,
            vhds: options.vhds,
            secret_access: options.secret_access,
            configuration: configuration.map(|configuration| Service { configuration, stopped: stopped.clone() }),
            debug: DebugService {
                pages: pages.clone(),
                identifier: debug_service::identifier(&options.instance, &options.version),
            },
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_grpc(grpc, discovery, options, stopped.clone(), ready.clone()));
        tasks.spawn(serve_http(http, pages.clone(), stopped.clone()));
        tasks.spawn(serve_http(monitoring, pages, stopped));
        let addresses = Addresses { grpc: grpc_at, http: http_at, monitoring: monitoring_at };
        Ok(Server { world, addresses, ready, awaited, serving_status, stop, tasks })
    }

    /// Serves the levels of log lines on a port of the loopback address. Port 0 is replaced by the returned one.
    ///
    /// # Errors
    /// The port cannot be bound; the error names it.
    pub async fn serve_log_levels(&mut self, port: u16, levels: LogLevels) -> std::io::Result<SocketAddr> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let named = |e: std::io::Error| {
            std::io::Error::new(e.kind(), format!("cannot listen for log levels on {address}: {e}"))
        };
        let listener = TcpListener::bind(address).await.map_err(named)?;
        let address = listener.local_addr()?;
        self.tasks.spawn(serve_levels(listener, address, levels, self.stop.subscribe()));
        Ok(address)
    }

    /// The bound addresses.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Sets what the server waits for; `/ready` shows it until the server is ready.
    pub fn set_awaited(&self, what: &str) {
        self.awaited.set(what);
    }

    /// The status of the sources, shown by `/ready` and `/metrics`.
    pub fn serving_status(&self) -> ServingStatus {
        self.serving_status.clone()
    }

    /// Marks the server as ready and starts serving xDS.
    pub fn set_ready(&self) {
        self.awaited.set("");
        self.ready.store(true, Ordering::Release);
        // Wakes the task that waits for readiness.
        self.stop.send_modify(|_| {});
    }

    /// Marks the server as not ready, ends all streams so that proxies connect to another replica, and closes
    /// connections. Waits for them at most `grace`.
    pub async fn shut_down(mut self, grace: Duration) {
        self.ready.store(false, Ordering::Release);
        self.world.end().await;
        self.stop.send_replace(true);
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!("connections still open after {grace:?} are closed");
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
    if stopped.wait_for(|stop| *stop || ready.load(Ordering::Acquire)).await.is_err() {
        return;
    }
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(Some(options.keepalive_interval))
        .keep_alive_timeout(options.keepalive_timeout)
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION);
    accept(listener, stopped, move |socket, stopped| {
        let discovery = discovery.clone();
        // A connection that was closed already has no address.
        let peer = socket.peer_addr().map_or(Peer::Anonymous, Peer::plaintext);
        let service = move |request| {
            let response = discovery.call(request, peer.clone());
            async move { Ok::<_, std::convert::Infallible>(response) }
        };
        serve(builder.serve_connection(TokioIo::new(socket), service_fn(service)), stopped)
    })
    .await;
}

async fn serve_http(listener: TcpListener, pages: Pages, stopped: watch::Receiver<bool>) {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    accept(listener, stopped, move |socket, stopped| {
        let pages = pages.clone();
        let answer = move |request| {
            let pages = pages.clone();
            async move { Ok::<_, std::convert::Infallible>(pages.answer(&request).await) }
        };
        serve(builder.serve_connection(TokioIo::new(socket), service_fn(answer)), stopped)
    })
    .await;
}

async fn serve_levels(listener: TcpListener, address: SocketAddr, levels: LogLevels, stopped: watch::Receiver<bool>) {
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    accept(listener, stopped, move |socket, stopped| {
        let levels = levels.clone();
        let answer = move |request| {
            let levels = levels.clone();
            async move { Ok::<_, std::convert::Infallible>(levels.answer(request, address).await) }
        };
        serve(builder.serve_connection(TokioIo::new(socket), service_fn(answer)), stopped)
    })
    .await;
}

/// Serves a connection until it ends, or until `stopped` is true and its open requests end.
async fn serve(connection: impl GracefulConnection, mut stopped: watch::Receiver<bool>) {
    tokio::pin!(connection);
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopped.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Accepts connections until `stopped` is true, then waits for the open ones.
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
        // Removes the tasks of closed connections. A panic ends only the connection that it happened in.
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
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }
    drop(listener);
    while open.join_next().await.is_some() {}
}
