//! The HTTP server of the status port.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use agent_core::exchange::{Event, Names};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use listeners::{Limits, Usage, accept, bind_any};
use prometheus::{Gauge, Registry};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::Idle;
use crate::probe::probe;
use crate::readiness::{EnvoyReadiness, Readiness};
use crate::scrape::{Scrapes, scrape};
use crate::settings::Settings;

/// The limits of connections.
const LIMITS: Limits = Limits::of(1000);
/// The longest time of a connection, which ends requests whose client does not read. Hooks of the kubelet may take long.
const MAX_CONNECTION: Duration = Duration::from_mins(15);
/// The largest head of a request, in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The body of a response.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The channels to other parts of the agent.
#[derive(Debug)]
pub struct Channels {
    /// The name table; none if there is no DNS proxy.
    pub names: Option<watch::Receiver<Names>>,
    /// The reason why the proxy is not ready, if it drains its connections or does not run.
    pub obstacle: watch::Receiver<Option<&'static str>>,
    /// Receives requests to the agent. An event that finds the channel full is dropped, because others lead to the same end.
    pub events: mpsc::Sender<Event>,
}

/// The reason why the status port does not open.
#[derive(thiserror::Error, Debug)]
pub enum StartError {
    /// The port cannot be listened on.
    #[error(
        "cannot open the status port {port}: {error}; change statusPort in the ProxyConfig or end the program that uses it"
    )]
    Listen {
        /// The port.
        port: u16,
        /// The reason.
        error: io::Error,
    },
    /// A metric exists already.
    #[error("the metrics of the status port cannot be registered: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// An open status port. It closes when its `stop` is true or closed, or when this is dropped.
#[derive(Debug)]
pub struct Running {
    /// The port.
    pub port: u16,
    tasks: JoinSet<()>,
}

impl Running {
    /// Waits until the port is closed and open requests have ended.
    pub async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

struct Server {
    settings: Settings,
    port: u16,
    readiness: Readiness,
    ready_before: std::sync::atomic::AtomicBool,
    scrapes: Arc<Scrapes>,
    registry: Registry,
    idle: HashMap<String, Idle>,
    events: mpsc::Sender<Event>,
}

/// Opens the status port, and serves it until `stop` is true or closed. `/metrics` shows the registry; the metrics that this adds to
/// it have no prefix.
///
/// # Errors
/// The port cannot be listened on.
pub async fn start(
    settings: Settings,
    channels: Channels,
    registry: &Registry,
    stop: watch::Receiver<bool>,
) -> Result<Running, StartError> {
    let failed = |error| StartError::Listen { port: settings.port, error };
    let listener = bind_any(settings.port).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let startup = Gauge::new("startup_duration_seconds", "The time from the process starting to being marked ready.")?;
    registry.register(Box::new(startup.clone()))?;
    let Channels { names, obstacle, events } = channels;
    let server = Arc::new(Server {
        port,
        readiness: Readiness {
            envoy: settings.admin.map(EnvoyReadiness::new),
            bootstrap: settings.grpc_bootstrap.clone(),
            files: OnceLock::new(),
            names,
            obstacle,
            started: Instant::now(),
            startup,
        },
        ready_before: false.into(),
        scrapes: Arc::new(Scrapes::new(registry)?),
        registry: registry.clone(),
        idle: settings.probers.keys().map(|path| (path.clone(), Idle::default())).collect(),
        settings,
        events,
    });
    tracing::info!(port, "the status port is open");
    let mut tasks = JoinSet::new();
    let ending = stop.clone();
    tasks.spawn(accept(
        "the status port",
        LIMITS,
        move |cx| listener.poll_accept(cx),
        stop,
        move |(stream, peer), usage| serve(server.clone(), stream, peer, usage, ending.clone()),
    ));
    Ok(Running { port, tasks })
}

async fn serve(
    server: Arc<Server>,
    stream: TcpStream,
    peer: SocketAddr,
    usage: Usage,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(|request| {
        let (server, open) = (server.clone(), usage.begin());
        async move { Ok::<_, Infallible>(Usage::count(server.respond(peer, request).await, open)) }
    });
    let connection = http1::Builder::new().max_buf_size(MAX_HEAD).serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let stopping = async {
        // A closed channel also means the end.
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stopping => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = sleep(MAX_CONNECTION) => return,
    };
    if let Err(error) = served {
        tracing::debug!(%peer, %error, "a connection to the status port ended with an error");
    }
}

impl Server {
    async fn respond(&self, peer: SocketAddr, request: Request<Incoming>) -> Response<Body> {
        let local = peer.ip().to_canonical().is_loopback();
        let path = request.uri().path();
        match path {
            "/healthz/ready" => self.ready().await,
            "/stats/prometheus" | "/metrics" if self.settings.local_metrics && !local => not_local(),
            "/stats/prometheus" | "/metrics" => {
                let scrapes = self.scrapes.clone();
                scrape(&self.settings, scrapes, &self.registry, request.headers(), request.uri().query()).await
            }
            "/quitquitquit" | "/drain" | "/debug/ndsz" if !local => not_local(),
            "/quitquitquit" => self.command(&request, Event::Quit),
            "/drain" => self.command(&request, Event::Drain),
            "/debug/ndsz" => self.names(),
            _ if path.starts_with("/debug/pprof") => {
                text(StatusCode::NOT_FOUND, "this agent is not written in Go and has no pprof; use perf instead\n")
            }
            _ if path.starts_with("/app-health/") || path.starts_with("/app-lifecycle/") => self.probe(&request).await,
            _ => text(StatusCode::NOT_FOUND, "404 page not found\n"),
        }
    }

    async fn ready(&self) -> Response<Body> {
        let checked = self.readiness.check().await;
        let before = self.ready_before.swap(checked.is_ok(), std::sync::atomic::Ordering::Relaxed);
        match checked {
            Ok(()) => {
                if !before {
                    tracing::info!("Envoy proxy is ready");
                }
                text(StatusCode::OK, "")
            }
            Err(reason) => {
                tracing::warn!("Envoy proxy is NOT ready: {reason}");
                text(StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n"))
            }
        }
    }

    fn command(&self, request: &Request<Incoming>, event: Event) -> Response<Body> {
        if request.method() != Method::POST {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Method Not Allowed\n");
        }
        tracing::info!(?event, "requested at the status port");
        let _ = self.events.try_send(event);
        text(StatusCode::OK, "OK")
    }

    async fn probe(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        let Some((prober, idle)) = self.settings.probers.get(path).zip(self.idle.get(path)) else {
            return text(StatusCode::BAD_REQUEST, format!("app prober config does not exists for {path}"));
        };
        let (status, body) = probe(&self.settings, prober, request.headers(), self.port, idle).await;
        let mut response = Response::new(Full::new(body).boxed_unsync());
        *response.status_mut() = status;
        response
    }

    fn names(&self) -> Response<Body> {
        let names = self.readiness.names.as_ref().and_then(|names| names.borrow().clone());
        let (status, json) = match names {
            None => (StatusCode::NOT_FOUND, "{}".to_owned()),
            Some(names) => (StatusCode::OK, names_json(&names).to_string()),
        };
        let mut response = text(status, json);
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }
}

/// A name table in the JSON format of protobuf: empty fields are left out.
fn names_json(names: &agent_core::exchange::NameTable) -> serde_json::Value {
    let entry = |info: &protos::istio::networking::nds::v1::name_table::NameInfo| {
        let mut entry = serde_json::Map::new();
        if !info.ips.is_empty() {
            entry.insert("ips".to_owned(), info.ips.clone().into());
        }
        for (name, value) in
            [("registry", &info.registry), ("shortname", &info.shortname), ("namespace", &info.namespace)]
        {
            if !value.is_empty() {
                entry.insert(name.to_owned(), value.clone().into());
            }
        }
        serde_json::Value::Object(entry)
    };
    let table: serde_json::Map<_, _> = names.table.iter().map(|(host, info)| (host.clone(), entry(info))).collect();
    if table.is_empty() { serde_json::json!({}) } else { serde_json::json!({ "table": table }) }
}

fn not_local() -> Response<Body> {
    text(StatusCode::FORBIDDEN, "Only requests from localhost are allowed\n")
}

pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(text.into()).boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
