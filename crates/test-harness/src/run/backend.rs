//! A small HTTP service that identifies itself, describes the request, and fails on demand.

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

/// An instance of one version of the service.
///
/// It serves HTTP/1.1 and, with prior knowledge, HTTP/2. It echoes gRPC messages and upgraded connections. Request
/// headers can ask for faults: `x-ask-delay-ms` delays the response, `x-ask-status` and `x-ask-grpc-status` choose its
/// status.
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
    /// The status of every response; 0 means 200.
    status: AtomicU16,
    /// The number of following requests that fail with 503.
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
            // The semaphore is never closed.
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

    /// Starts an instance on a free port of this IP address.
    pub async fn start_on(ip: IpAddr, version: &str, instance: &str) -> Result<Backend> {
        Backend::start_at((ip, 0).into(), version, instance).await
    }

    /// Starts an instance at this address.
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
        Ok(Backend { address, state, stop, server })
    }

    /// The address that the instance listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The name of the instance, which every response has in the header `x-instance`.
    pub fn instance(&self) -> &str {
        &self.state.instance
    }

    /// The version of the service.
    pub fn version(&self) -> &str {
        &self.state.version
    }

    /// The number of requests so far, answered or not.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Sets the status of all following responses.
    pub fn answer_with(&self, status: u16) {
        self.state.status.store(status, Ordering::Relaxed);
    }

    /// Answers the next `count` requests with 503.
    pub fn fail_next(&self, count: u64) {
        self.state.failures.store(count, Ordering::Relaxed);
    }

    /// Sets the delay of all following responses.
    pub fn delay(&self, delay: Duration) {
        self.state.delay_millis.store(delay.as_millis() as u64, Ordering::Relaxed);
    }

    /// Counts and holds all following requests until they are released.
    pub fn hold(&self) {
        self.state.gate.forget_permits(usize::MAX);
        self.state.holding.store(true, Ordering::Release);
    }

    /// Releases this many held requests, including ones that arrive later.
    pub fn release(&self, count: usize) {
        self.state.gate.add_permits(count);
    }

    /// Releases all requests.
    pub fn open(&self) {
        self.state.holding.store(false, Ordering::Release);
        self.state.gate.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    /// Stops gracefully: accepts no more connections and finishes pending responses.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        let _ = (&mut self.server).await;
    }

    /// Sets whether connections are closed instead of answering.
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
    // Connections end with the task that owns them.
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
    // Delayed ACKs would appear as 40 ms of latency.
    let _ = stream.set_nodelay(true);
    let ends = stopped.clone();
    let service = service_fn(move |request| answer::answer(request, Arc::clone(&state), ends.clone()));
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // A connection error is counted by the client.
    tokio::select! {
        _ = connection.as_mut() => {}
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
    }
}
