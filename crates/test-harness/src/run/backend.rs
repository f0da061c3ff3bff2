//! A small HTTP service: it says who it is, repeats what it was asked, and misbehaves on demand.

mod answer;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

use super::Result;

/// One instance of a version of the service.
///
/// It speaks HTTP/1.1 and (to clients that begin with it) HTTP/2, answers gRPC with the message that came, and what asks for an
/// upgrade of the connection with an echo. A request may ask for trouble of its own: `x-ask-delay-ms` delays the answer,
/// `x-ask-status` and `x-ask-grpc-status` choose its status.
#[derive(Debug)]
pub struct Backend {
    address: SocketAddr,
    state: Arc<State>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    version: String,
    instance: String,
    requests: AtomicU64,
    /// The status of every answer; 0 means 200.
    status: AtomicU16,
    /// How many of the next requests fail with 503.
    failures: AtomicU64,
    delay_millis: AtomicU64,
    reset: AtomicBool,
    /// Whether requests wait for a permit.
    holding: AtomicBool,
    gate: Semaphore,
}

impl State {
    async fn pass_gate(&self) {
        if self.holding.load(Ordering::Acquire) {
            // The gate is never closed for good.
            if let Ok(permit) = self.gate.acquire().await {
                permit.forget();
            }
        }
    }
}

impl Backend {
    /// Starts an instance on a free loopback port.
    pub async fn start(version: &str, instance: &str) -> Result<Backend> {
        Backend::start_on([127, 0, 0, 1].into(), version, instance).await
    }

    /// The same on a free port of this address.
    pub async fn start_on(ip: IpAddr, version: &str, instance: &str) -> Result<Backend> {
        Backend::start_at((ip, 0).into(), version, instance).await
    }

    /// The same at this address.
    pub async fn start_at(address: SocketAddr, version: &str, instance: &str) -> Result<Backend> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            version: version.to_owned(),
            instance: instance.to_owned(),
            requests: AtomicU64::new(0),
            status: AtomicU16::new(0),
            failures: AtomicU64::new(0),
            delay_millis: AtomicU64::new(0),
            reset: AtomicBool::new(false),
            holding: AtomicBool::new(false),
            gate: Semaphore::new(0),
        });
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(serve(listener, Arc::clone(&state), stopped));
        Ok(Backend {
            address,
            state,
            stop,
            server,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the instance, which is in the header `x-instance` of every answer.
    pub fn instance(&self) -> &str {
        &self.state.instance
    }

    /// The version that it says it is.
    pub fn version(&self) -> &str {
        &self.state.version
    }

    /// How many requests came so far, answered or not.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// From now on every answer has this status.
    pub fn answer_with(&self, status: u16) {
        self.state.status.store(status, Ordering::Relaxed);
    }

    /// The next `count` requests are answered with 503, the others normally.
    pub fn fail_next(&self, count: u64) {
        self.state.failures.store(count, Ordering::Relaxed);
    }

    /// From now on every answer takes this long.
    pub fn delay(&self, delay: Duration) {
        self.state
            .delay_millis
            .store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// From now on requests are counted, and not answered before they are released.
    pub fn hold(&self) {
        self.state.gate.forget_permits(usize::MAX);
        self.state.holding.store(true, Ordering::Release);
    }

    /// So many of the requests that are held, now or later, are answered.
    pub fn release(&self, count: usize) {
        self.state.gate.add_permits(count);
    }

    /// All requests are answered again.
    pub fn open(&self) {
        self.state.holding.store(false, Ordering::Release);
        self.state.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Takes no more connections, answers what is under way, and ends.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        let _ = (&mut self.server).await;
    }

    /// From now on (or no longer) the connection is closed instead of answering.
    pub fn reset(&self, on: bool) {
        self.state.reset.store(on, Ordering::Relaxed);
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<State>, mut stopped: watch::Receiver<bool>) {
    // The connections end with the task that owns them.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.changed() => break,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    connections.spawn(connection(stream, Arc::clone(&state), stopped.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, state: Arc<State>, mut stopped: watch::Receiver<bool>) {
    // A delayed acknowledgement would show up as 40 ms of latency.
    let _ = stream.set_nodelay(true);
    let ends = stopped.clone();
    let service = service_fn(move |request| answer::answer(request, Arc::clone(&state), ends.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ends is the client's business; what it means is counted there.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
