//! A small HTTP service: it says who it is, repeats what it was asked, and misbehaves on demand.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::Result;

/// One instance of a version of the service.
///
/// A request may ask for trouble of its own: `x-ask-delay-ms` delays the answer, `x-ask-status` chooses its status.
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

    /// How many requests came so far.
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
    let service = service_fn(move |request| answer(request, Arc::clone(&state)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
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

/// An error here makes the server close the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    state: Arc<State>,
) -> std::result::Result<Response<Full<Bytes>>, std::io::Error> {
    state.requests.fetch_add(1, Ordering::Relaxed);
    let asked = |name: &str| request.headers().get(name)?.to_str().ok()?.parse::<u64>().ok();
    let delay = asked("x-ask-delay-ms").unwrap_or_else(|| state.delay_millis.load(Ordering::Relaxed));
    if delay > 0 {
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
    if state.reset.load(Ordering::Relaxed) {
        return Err(std::io::ErrorKind::ConnectionReset.into());
    }
    let failing = state
        .failures
        .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
        .is_ok();
    let status = match (failing, asked("x-ask-status"), state.status.load(Ordering::Relaxed)) {
        (true, _, _) => 503,
        (false, Some(asked), _) => asked as u16,
        (false, None, 0) => 200,
        (false, None, set) => set,
    };
    Ok(respond(&request, &state, status))
}

fn respond(request: &Request<Incoming>, state: &State, status: u16) -> Response<Full<Bytes>> {
    let headers: serde_json::Map<String, serde_json::Value> = request
        .headers()
        .iter()
        .map(|(name, value)| {
            (
                name.as_str().to_owned(),
                String::from_utf8_lossy(value.as_bytes()).into(),
            )
        })
        .collect();
    let body = json!({
        "version": state.version,
        "instance": state.instance,
        "method": request.method().as_str(),
        "path": request.uri().path_and_query().map_or("", |p| p.as_str()),
        "headers": headers,
    });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in [("x-version", &state.version), ("x-instance", &state.instance)] {
        if let Ok(value) = value.parse() {
            response.headers_mut().insert(name, value);
        }
    }
    response
}
