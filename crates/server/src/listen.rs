//! Listening sockets, and the life cycle of the server: start, ready, drain, end.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use listeners::{Usage, accept};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use xds::Limits;

use crate::budget::Budget;
use crate::certificate_service::CertificateService;
use crate::connection::{self, Http2, is_local};
use crate::connection_age::Age;
use crate::ctrlz::LogLevels;
use crate::debug_service::{self, DebugService};
use crate::discovery::Discovery;
use crate::gate::Gate;
use crate::mcp::{Configuration, Service};
use crate::page_access::{Access, Guard};
use crate::pages::{Awaited, Pages, ServingStatus};
use crate::peer::SecretAccess;
use crate::registration::Registrar;
use crate::security::Security;
use crate::tls;
use crate::unix_socket::{self, UnixSocket};
use crate::webhooks::{self, WebhookPort, Webhooks};
use crate::world_handle::WorldHandle;

/// The time in which the head of a request for a page must arrive.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// The number of connections to the port of log levels.
const LEVEL_CONNECTIONS: usize = 8;

/// The settings of the server.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of xDS over plaintext gRPC.
    pub grpc: SocketAddr,
    /// The Unix socket of xDS.
    pub socket: Option<UnixSocket>,
    /// The address of the readiness and debug pages.
    pub http: SocketAddr,
    /// The address of the metrics, version and debug pages.
    pub monitoring: SocketAddr,
    /// The interval of HTTP/2 keepalive pings on an idle connection.
    pub keepalive_interval: Duration,
    /// A connection whose peer does not answer a ping within this time is closed.
    pub keepalive_timeout: Duration,
    /// The maximum age of an xDS connection; `None` sets no limit. The connection gets GOAWAY, and its streams end.
    pub max_connection_age: Option<Duration>,
    /// The maximum size of a discovery request, in bytes.
    pub max_request_bytes: usize,
    /// Whether proxies that support VHDS receive virtual hosts over it.
    pub vhds: bool,
    /// The clients that may read secrets.
    pub secret_access: SecretAccess,
    /// Authentication of clients, and the TLS port.
    pub security: Security,
    /// Limits of the xDS state machine, which also apply to decoding requests.
    pub limits: Limits,
    /// Registers proxies outside of Kubernetes; `None` serves them without that.
    pub registrar: Option<Registrar>,
    /// Limits of the connections.
    pub connections: ConnectionLimits,
    /// The text of `/version`.
    pub version: String,
    /// The name of this replica, for `istioctl proxy-status`.
    pub instance: String,
}

/// Limits of connections, by listener.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// xDS: of each port and of the Unix socket, which share [`listeners::Limits::shared`].
    pub grpc: listeners::Limits,
    /// Readiness.
    pub http: listeners::Limits,
    /// Metrics.
    pub monitoring: listeners::Limits,
}

impl Default for ConnectionLimits {
    fn default() -> ConnectionLimits {
        let of = listeners::Limits::of;
        ConnectionLimits { grpc: of(100_000), http: of(64), monitoring: of(256) }
    }
}

/// The addresses that the server is bound to. Port 0 in [`Options`] is replaced by the assigned port.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// Discovery.
    pub grpc: SocketAddr,
    /// Discovery and certificates over TLS, if it is on.
    pub secure: Option<SocketAddr>,
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
        let (grpc, grpc_at) = bind("discovery", options.grpc).await?;
        let secure = match &options.security.port {
            Some(port) => Some(bind("discovery over TLS", port.address).await?),
            None => None,
        };
        let (http, http_at) = bind("readiness", options.http).await?;
        let (monitoring, monitoring_at) = bind("monitoring", options.monitoring).await?;
        let socket = options.socket.as_ref().map(unix_socket::bind).transpose()?.flatten();
        let ready = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = watch::channel(false);
        let pages = Pages {
            world: world.clone(),
            ready: ready.clone(),
            awaited: Awaited::default(),
            serving_status: ServingStatus::default(),
            version: options.version.clone().into(),
            recomputing: Arc::default(),
            showing: Arc::default(),
        };
        let (awaited, serving_status) = (pages.awaited.clone(), pages.serving_status.clone());
        let configuration = configuration.map(|configuration| Service { configuration, stopped: stopped.clone() });
        let discovery = discovery(&options, &pages, configuration);
        let mut tasks = JoinSet::new();
        let options = Arc::new(options);
        let protocol = Http2 { discovery, options: options.clone(), stopped: stopped.clone(), ready: ready.clone() };
        tasks.spawn(connection::serve_plaintext(grpc, protocol.clone()));
        let secure_at = secure.as_ref().map(|(_, address)| *address);
        if let (Some((listener, _)), Some(port)) = (secure, &options.security.port) {
            let watched = (port.certificate.clone(), options.security.signing.clone());
            let config = tls::config(watched.0.clone(), watched.1.clone()).map_err(std::io::Error::other)?;
            tasks.spawn(connection::serve_tls(listener, config, watched, protocol.clone()));
        }
        if let Some(bound) = socket {
            tasks.spawn(connection::serve_unix(bound, protocol.clone()));
        }
        let limits = options.connections.clone();
        for (listener, name, limits) in
            [(http, "readiness", limits.http), (monitoring, "monitoring", limits.monitoring)]
        {
            let (pages, guard) = (pages.clone(), protocol.discovery.guard.clone());
            let answer = move |request: Request<Incoming>, client: Visitor| {
                let (pages, guard) = (pages.clone(), guard.clone());
                async move {
                    let access = match Pages::is_debug(&request) {
                        true => guard.of_request(request.headers(), client.address, client.local).await,
                        false => Access::None,
                    };
                    pages.answer(&request, client.local, access).await
                }
            };
            tasks.spawn(serve_http(listener, name, limits, stopped.clone(), answer));
        }
        let addresses = Addresses { grpc: grpc_at, secure: secure_at, http: http_at, monitoring: monitoring_at };
        Ok(Server { world, addresses, ready, awaited, serving_status, stop, tasks })
    }

    /// Serves the levels of log lines on a port of the loopback address. Port 0 is replaced by the returned one.
    ///
    /// # Errors
    /// The port cannot be bound; the error names it.
    pub async fn serve_log_levels(&mut self, port: u16, levels: LogLevels) -> std::io::Result<SocketAddr> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let (listener, address) = bind("log levels", address).await?;
        let limits = listeners::Limits::of(LEVEL_CONNECTIONS);
        let answer = move |request, _| {
            let levels = levels.clone();
            async move { levels.answer(request).await }
        };
        self.tasks.spawn(serve_http(listener, "log levels", limits, self.stop.subscribe(), answer));
        Ok(address)
    }

    /// Serves the webhooks over HTTPS.
    ///
    /// # Errors
    /// The address cannot be bound, or TLS is not usable; the error names it.
    pub async fn serve_webhooks(
        &mut self,
        port: WebhookPort,
        webhooks: Arc<dyn Webhooks>,
    ) -> std::io::Result<SocketAddr> {
        let (listener, address) = bind("webhooks", port.address).await?;
        let ready = self.ready.clone();
        self.tasks.spawn(webhooks::serve(listener, port.certificate, webhooks, ready, self.stop.subscribe())?);
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

    /// Makes `/ready` fail, so that no new traffic comes before the shutdown.
    pub fn set_stopping(&self) {
        self.awaited.set_stopping();
        self.ready.store(false, Ordering::Release);
    }

    /// Marks the server as not ready, ends all streams so that proxies connect to another replica, and closes
    /// connections. Waits for them at most `grace`.
    pub async fn shut_down(mut self, grace: Duration) {
        self.set_stopping();
        let drained = async {
            self.world.end().await;
            self.stop.send_replace(true);
            while self.tasks.join_next().await.is_some() {}
        };
        if tokio::time::timeout(grace, drained).await.is_err() {
            tracing::warn!("connections still open after {grace:?} are closed");
        }
    }
}

/// Binds a TCP address. The error says what was to be served there.
async fn bind(what: &str, address: SocketAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let named =
        |e: std::io::Error| std::io::Error::new(e.kind(), format!("cannot listen for {what} on {address}: {e}"));
    let listener = TcpListener::bind(address).await.map_err(named)?;
    let bound = listener.local_addr()?;
    Ok((listener, bound))
}

/// The parts of the server that answer calls.
fn discovery(options: &Options, pages: &Pages, configuration: Option<Service>) -> Discovery {
    let security = &options.security;
    let port = security.port.as_ref();
    let service = port.and_then(|port| port.certificates.as_ref()).map(|rules| {
        let service = CertificateService::new(rules.clone(), security.signing.clone(), pages.world.pods());
        pages.serving_status.provide(service.metrics());
        service
    });
    let gate = Gate::new(security.authenticators.clone(), security.signing.clone());
    Discovery {
        world: pages.world.clone(),
        limits: Arc::new(options.limits.clone()),
        max_request_bytes: options.max_request_bytes,
        first_within: options.connections.grpc.first_request,
        budget: Budget::of_listener(options.max_request_bytes),
        vhds: options.vhds,
        secret_access: options.secret_access,
        registrar: options.registrar.clone(),
        configuration,
        debug: DebugService {
            pages: pages.clone(),
            identifier: debug_service::identifier(&options.instance, &options.version),
        },
        guard: Guard::new(gate.clone(), security.pages.clone(), pages.world.mesh()),
        gate,
        certificates: service,
        security: Arc::new(security.clone()),
        client: connection::Client::nobody(),
    }
}

/// The client of a page.
#[derive(Clone, Copy, Debug)]
struct Visitor {
    address: IpAddr,
    /// Whether it is on this machine.
    local: bool,
}

/// Serves pages over HTTP/1.
async fn serve_http<A>(
    listener: TcpListener,
    name: &'static str,
    limits: listeners::Limits,
    stopped: watch::Receiver<bool>,
    answer: impl Fn(Request<Incoming>, Visitor) -> A + Clone + Send + 'static,
) where
    A: Future<Output = Response<Full<Bytes>>> + Send + 'static,
{
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN);
    let ending = stopped.clone();
    accept(
        name,
        limits,
        move |cx| listener.poll_accept(cx),
        stopped,
        move |(socket, peer), usage| {
            let (answer, ending) = (answer.clone(), ending.clone());
            let _ = socket.set_nodelay(true);
            let client = Visitor { address: peer.ip(), local: is_local(&socket, peer) };
            let service = move |request| {
                let (answered, open) = (answer(request, client), usage.begin());
                async move { Ok::<_, Infallible>(Usage::count(answered.await, open)) }
            };
            serve(builder.serve_connection(TokioIo::new(socket), service_fn(service)), ending)
        },
    )
    .await;
}

/// Serves a connection until it ends, or until `stopped` is true and its open requests end.
pub(crate) fn serve(connection: impl GracefulConnection, stopped: watch::Receiver<bool>) -> impl Future<Output = ()> {
    Age::new(None).serve(connection, |connection| connection.graceful_shutdown(), std::future::pending(), stopped)
}
