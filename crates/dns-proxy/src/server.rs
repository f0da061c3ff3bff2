//! The sockets of the DNS proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use agent_core::exchange::Names;
use domain::base::Rtype;
use domain::base::iana::{Class, Rcode};
use prometheus::Registry;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::forward::{Forwarder, read_message, write_message};
use crate::message::{Query, Rejected, Transport, read};
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::table::Table;

/// The number of queries that are forwarded at a time.
pub const MAX_FORWARDED: usize = 512;
/// The number of TCP connections that are open at a time, for each address.
pub const MAX_CONNECTIONS: usize = 128;
/// The time that a TCP connection may be idle.
const IDLE: Duration = Duration::from_secs(8);
/// The pause after a failed accept, for example when file descriptors run out.
const BACKOFF: Duration = Duration::from_millis(100);

/// The reason why the DNS proxy does not start.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    #[error(
        "the DNS proxy cannot listen on {address}: {error}; change DNS_PROXY_ADDR or end the program that uses the port"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        error: io::Error,
    },
    /// A metric exists already.
    #[error("the metrics of the DNS proxy cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A DNS proxy. It ends when its `stop` is true or closed, or when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// The addresses for UDP.
    pub udp: Vec<SocketAddr>,
    /// The addresses for TCP.
    pub tcp: Vec<SocketAddr>,
    tasks: JoinSet<()>,
}

impl Running {
    /// Waits until the proxy has stopped.
    pub async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

struct Proxy {
    table: RwLock<Option<Arc<Table>>>,
    forwarder: Forwarder,
    metrics: Metrics,
    places: Semaphore,
    turn: AtomicUsize,
    forward_before_names: bool,
}

/// Listens on all addresses, and answers until `stop` is true or closed. The metrics have no prefix; the registry adds one.
///
/// # Errors
/// An address cannot be listened on.
pub async fn start(
    settings: Settings,
    names: watch::Receiver<Names>,
    registry: &Registry,
    stop: watch::Receiver<bool>,
) -> Result<Running, StartError> {
    let (udp, tcp) = listen(&settings.addresses).await?;
    let local = |address: io::Result<SocketAddr>| address.ok();
    let mut running = Running {
        udp: udp.iter().filter_map(|socket| local(socket.local_addr())).collect(),
        tcp: tcp.iter().filter_map(|socket| local(socket.local_addr())).collect(),
        tasks: JoinSet::new(),
    };
    let own = [&*running.udp, &*running.tcp].concat();
    let proxy = Arc::new(Proxy {
        table: RwLock::new(None),
        forwarder: Forwarder::new(&settings, &own),
        metrics: Metrics::new(registry)?,
        places: Semaphore::new(MAX_FORWARDED),
        turn: AtomicUsize::new(0),
        forward_before_names: settings.forward_before_names,
    });
    tracing::info!(addresses = ?running.udp, servers = proxy.forwarder.servers(), "the DNS proxy listens");
    let mut spawn = |task: futures::future::BoxFuture<'static, ()>| {
        let mut stop = stop.clone();
        running.tasks.spawn(async move {
            tokio::select! {
                () = task => {}
                // A closed channel also means the end.
                _ = stop.wait_for(|stop| *stop) => {}
            }
        });
    };
    spawn(Box::pin(follow(proxy.clone(), names, settings)));
    for socket in udp {
        spawn(Box::pin(serve_udp(proxy.clone(), Arc::new(socket))));
    }
    for listener in tcp {
        spawn(Box::pin(serve_tcp(proxy.clone(), listener)));
    }
    Ok(running)
}

/// Binds all addresses. A family that the machine does not have is left out, unless there is no other.
async fn listen(addresses: &[SocketAddr]) -> Result<(Vec<UdpSocket>, Vec<TcpListener>), StartError> {
    let (mut udp, mut tcp) = (Vec::new(), Vec::new());
    let mut missing = None;
    for &address in addresses {
        let bound = async { Ok((UdpSocket::bind(address).await?, TcpListener::bind(address).await?)) };
        match bound.await {
            Ok((datagrams, connections)) => {
                udp.push(datagrams);
                tcp.push(connections);
            }
            Err(error) if is_missing(&error) => missing = Some(StartError::Listen { address, error }),
            // On Linux, the socket of all IPv6 addresses includes IPv4 ones.
            Err(_) if address.ip().is_unspecified() && !udp.is_empty() => {}
            Err(error) => return Err(StartError::Listen { address, error }),
        }
    }
    missing.filter(|_| udp.is_empty()).map_or(Ok((udp, tcp)), Err)
}

/// Whether the machine does not have the address, or its family.
fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AddrNotAvailable
        || error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error() == Some(97)
}

/// Replaces the table whenever the control plane sends one.
async fn follow(proxy: Arc<Proxy>, mut names: watch::Receiver<Names>, settings: Settings) {
    loop {
        let current = names.borrow_and_update().clone();
        if let Some(names) = current {
            tracing::debug!(names = names.table.len(), "the name table has changed");
            let table = Arc::new(Table::new(names, &settings));
            *proxy.table.write().unwrap_or_else(PoisonError::into_inner) = Some(table);
        }
        if names.changed().await.is_err() {
            // The last table stays in use.
            return std::future::pending().await;
        }
    }
}

impl Proxy {
    /// The answer, if the query is not to be forwarded.
    fn answer(&self, query: &Query<'_>) -> Option<Vec<u8>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(table) = table else {
            return (!self.forward_before_names).then(|| query.error(Rcode::SERVFAIL));
        };
        if !matches!(query.rtype, Rtype::A | Rtype::AAAA) || !matches!(query.class, Class::IN | Class::ANY) {
            return None;
        }
        let found = table.find(&query.name)?;
        Some(query.answer(&found, self.turn.fetch_add(1, Ordering::Relaxed)))
    }

    /// The answer of a name server, or an error.
    async fn forward(&self, query: &Query<'_>, transport: Transport) -> Vec<u8> {
        self.metrics.upstream.inc();
        let place = self.places.try_acquire();
        if place.is_ok() && !self.forwarder.has_come_back(query) {
            let timer = self.metrics.duration.start_timer();
            let answer = self.forwarder.forward(query, transport).await;
            timer.observe_duration();
            if let Some(answer) = answer {
                return answer;
            }
        }
        self.metrics.failures.inc();
        query.error(Rcode::SERVFAIL)
    }
}

async fn serve_udp(proxy: Arc<Proxy>, socket: Arc<UdpSocket>) {
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; 65_535];
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok((size, client)) = socket.recv_from(&mut buffer).await else {
            sleep(BACKOFF).await;
            continue;
        };
        proxy.metrics.requests.inc();
        let bytes = &buffer[..size];
        let answer = match read(bytes, Transport::Udp) {
            Err(Rejected::Silently) => continue,
            Err(Rejected::Answer(answer)) => answer,
            Ok(query) => match proxy.answer(&query) {
                Some(answer) => answer,
                None if proxy.places.available_permits() == 0 => {
                    proxy.metrics.failures.inc();
                    query.error(Rcode::SERVFAIL)
                }
                None => {
                    let (proxy, socket, bytes) = (proxy.clone(), socket.clone(), bytes.to_vec());
                    tasks.spawn(async move {
                        if let Ok(query) = read(&bytes, Transport::Udp) {
                            let answer = proxy.forward(&query, Transport::Udp).await;
                            // A client that is gone does not matter.
                            let _ = socket.send_to(&answer, client).await;
                        }
                    });
                    continue;
                }
            },
        };
        let _ = socket.send_to(&answer, client).await;
    }
}

async fn serve_tcp(proxy: Arc<Proxy>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let proxy = proxy.clone();
                tasks.spawn(async move {
                    // The client closed the connection, or broke the protocol.
                    let _ = serve_connection(&proxy, stream).await;
                    drop(place);
                });
            }
            Err(_) => sleep(BACKOFF).await,
        }
    }
}

async fn serve_connection(proxy: &Proxy, mut stream: TcpStream) -> io::Result<()> {
    loop {
        let bytes = timeout(IDLE, read_message(&mut stream)).await??;
        proxy.metrics.requests.inc();
        let answer = match read(&bytes, Transport::Tcp) {
            Err(Rejected::Silently) => return Ok(()),
            Err(Rejected::Answer(answer)) => answer,
            Ok(query) => match proxy.answer(&query) {
                Some(answer) => answer,
                None => proxy.forward(&query, Transport::Tcp).await,
            },
        };
        timeout(IDLE, write_message(&mut stream, &answer)).await??;
    }
}
