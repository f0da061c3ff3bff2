//! One stream of a proxy, and its stream to the control plane.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use agent_core::exchange::Health;
use agent_core::upstream::Upstream;
use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::FuturesOrdered;
use http::{HeaderValue, Request, header};
use http_body::Body;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tonic::codegen::Service as _;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::envelope::{self, Envelope, Variant};
use crate::grpc::{Framed, Item, Messages, Outgoing};
use crate::metrics::Metrics;
use crate::own::{self, Own};
use crate::wasm::Modules;

const LISTENERS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
const EXTENSIONS: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
const WORKLOADS: &str = "type.googleapis.com/istio.workload.Workload";
/// The prefix of Envoy's types.
const ENVOY: &str = "type.googleapis.com/envoy.";

/// The maximum size of a request, in bytes.
const MAX_REQUEST: usize = 64 << 20;
/// The maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 256 << 20;
/// The number of messages that wait in each direction. A full queue stops reading from the other side.
pub(crate) const QUEUE: usize = 2;
/// The number of own requests that wait. If the control plane reads none of them, the stream ends.
const OWN_QUEUE: usize = 16;
/// The number of responses whose Wasm modules are fetched at a time. If it is reached, no further responses are read.
const MAX_CONVERSIONS: usize = 4;

/// The parts that all streams share.
pub(crate) struct Hub {
    pub(crate) upstream: Upstream,
    pub(crate) own: Own,
    pub(crate) health: watch::Receiver<Health>,
    pub(crate) modules: Arc<Modules>,
    pub(crate) metrics: Metrics,
    /// The number of streams that the control plane answers.
    pub(crate) connected: watch::Sender<usize>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) last_id: AtomicU64,
    pub(crate) stop: watch::Receiver<bool>,
}

/// The side that ended a stream, with the status for the proxy.
enum End {
    Proxy(Status),
    ControlPlane(Status),
    /// There was no connection.
    Unconnected(Status),
    Agent(Status),
}

/// Relays the messages of a stream until one side ends it.
pub(crate) async fn run<B>(
    hub: Arc<Hub>,
    variant: Variant,
    body: B,
    down: mpsc::Sender<Item>,
    permit: OwnedSemaphorePermit,
) where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: std::error::Error,
{
    let id = hub.last_id.fetch_add(1, Ordering::Relaxed);
    let mut stop = hub.stop.clone();
    let stream = Stream { hub: &hub, variant, id, down: down.clone(), extensions_version: Mutex::default() };
    let end = tokio::select! {
        end = stream.relay(body) => end,
        () = down.closed() => End::Proxy(Status::cancelled("the proxy closed its connection")),
        _ = stop.wait_for(|stop| *stop) => End::Agent(Status::unavailable("the agent stops")),
    };
    let status = stream.report(end);
    drop(permit);
    // An error means that the proxy is gone.
    let _ = down.send(Item::End(status)).await;
}

/// A stream.
struct Stream<'a> {
    hub: &'a Hub,
    variant: Variant,
    id: u64,
    down: mpsc::Sender<Item>,
    /// The version of the extension configurations that the proxy acknowledged last.
    extensions_version: Mutex<String>,
}

impl Stream<'_> {
    async fn relay<B>(&self, body: B) -> End
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error,
    {
        let failed = |error| End::Unconnected(Status::unavailable(format!("the agent: {error}")));
        let channel = match self.hub.upstream.connect().await {
            Ok(channel) => channel,
            Err(error) => return failed(error),
        };
        let (up, items) = mpsc::channel(QUEUE);
        let mut metadata = MetadataMap::new();
        if let Err(error) = self.hub.upstream.authorize(&mut metadata) {
            return failed(error);
        }
        let request = request(self.variant, metadata, items);
        let (answers, own) = mpsc::channel(OWN_QUEUE);
        tokio::select! {
            end = self.requests(body, up, own) => end,
            end = self.responses(channel, request, answers) => end,
        }
    }

    /// Sends the requests of the proxy and of the agent.
    async fn requests<B>(&self, body: B, up: mpsc::Sender<Item>, mut own: mpsc::Receiver<Framed>) -> End
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: std::error::Error,
    {
        let mut messages = Messages::new(body, MAX_REQUEST);
        let mut health = self.hub.health.clone();
        let mut begun = false;
        loop {
            let batch = tokio::select! {
                message = messages.next() => match message {
                    Ok(Some(message)) => match self.request(message, &mut begun, &mut health) {
                        Ok(batch) => batch,
                        Err(status) => return End::Agent(status),
                    },
                    Ok(None) => return End::Proxy(Status::ok("")),
                    Err(status) => return End::Proxy(status),
                },
                Some(answer) = own.recv() => vec![answer],
                Ok(()) = health.changed(), if begun => {
                    own::health_report(self.variant, &health.borrow_and_update()).into_iter().collect()
                }
            };
            for message in batch {
                self.hub.metrics.requests.inc();
                if up.send(Item::Message(message)).await.is_err() {
                    // The control plane reads no more requests: its status ends the stream.
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// The messages to send for a request of the proxy. The agent's own subscriptions follow the first request for listeners.
    fn request(
        &self,
        message: Framed,
        begun: &mut bool,
        health: &mut watch::Receiver<Health>,
    ) -> Result<Vec<Framed>, Status> {
        let request = envelope::request(self.variant, message.payload())
            .map_err(|error| Status::invalid_argument(format!("the request is not valid: {error}")))?;
        let type_url = &*request.type_url;
        tracing::debug!(id = self.id, type_url, nonce = request.nonce, "request");
        if let Some(error) = &request.error {
            tracing::warn!(id = self.id, type_url, nonce = request.nonce, error = ?error.message, "the proxy rejected a response");
        }
        if [own::NAMES, own::ROOTS].contains(&type_url) {
            return Ok(vec![]);
        }
        if type_url == EXTENSIONS && !request.version.is_empty() {
            *self.extensions_version.lock().unwrap_or_else(PoisonError::into_inner) = request.version;
        }
        let mut batch = vec![message];
        if !*begun && type_url == LISTENERS {
            *begun = true;
            batch.extend(self.hub.own.subscriptions(self.variant));
            batch.extend(own::health_report(self.variant, &health.borrow_and_update()));
        }
        Ok(batch)
    }

    /// Opens the stream to the control plane and handles its responses.
    async fn responses(
        &self,
        mut channel: Channel,
        request: Request<tonic::body::Body>,
        own: mpsc::Sender<Framed>,
    ) -> End {
        let ready = std::future::poll_fn(|cx| channel.poll_ready(cx)).await;
        let response = match ready {
            Ok(()) => channel.call(request).await,
            Err(error) => Err(error),
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => return End::ControlPlane(Status::from_error(Box::new(error))),
        };
        if let Some(status) = Status::from_header_map(response.headers()) {
            return End::ControlPlane(status);
        }
        if response.status() != http::StatusCode::OK {
            return End::ControlPlane(Status::unavailable(format!("HTTP status {}", response.status())));
        }
        let _connected = Connected::begin(&self.hub.connected);
        tracing::info!(id = self.id, address = self.hub.upstream.address, variant = ?self.variant, "connected to the control plane");
        let mut messages = Messages::new(response.into_body(), MAX_RESPONSE);
        let mut conversions = FuturesOrdered::new();
        loop {
            let message = tokio::select! {
                message = messages.next(), if conversions.len() < MAX_CONVERSIONS => message,
                Some(converted) = conversions.next() => {
                    if let Err(end) = self.converted(converted, &own).await {
                        return end;
                    }
                    continue;
                }
            };
            let handled = match message {
                Ok(Some(message)) => self.response(message, &own).await,
                Ok(None) => return End::ControlPlane(messages.status()),
                Err(status) => return End::ControlPlane(status),
            };
            match handled {
                Ok(None) => {}
                Ok(Some((response, message))) => {
                    let modules = self.hub.modules.clone();
                    let variant = self.variant;
                    conversions.push_back(async move { (response, modules.convert(variant, message).await) });
                }
                Err(end) => return end,
            }
        }
    }

    /// Forwards or handles a response. Returns one whose Wasm modules must be fetched first.
    async fn response(&self, message: Framed, own: &mpsc::Sender<Framed>) -> Result<Option<(Envelope, Framed)>, End> {
        let hub = self.hub;
        let response = envelope::response(self.variant, message.payload())
            .map_err(|error| End::ControlPlane(Status::internal(format!("the response is not valid: {error}"))))?;
        let type_url = &*response.type_url;
        tracing::debug!(id = self.id, type_url, nonce = response.nonce, "response");
        hub.metrics.responses.inc();
        if hub.own.handles(type_url) {
            let outcome = hub.own.accept(self.variant, type_url, message.payload());
            self.answer(response, outcome.err().as_deref(), own)?;
        } else if type_url == EXTENSIONS && hub.modules.converts() {
            return Ok(Some((response, message)));
        } else if type_url.starts_with(ENVOY) || type_url == WORKLOADS {
            self.forward(message).await?;
        } else {
            tracing::warn!(id = self.id, type_url, "a response of this type is not for proxies; it is dropped");
        }
        Ok(None)
    }

    /// Forwards a response with local Wasm modules, or rejects it.
    async fn converted(
        &self,
        (response, outcome): (Envelope, Result<Framed, String>),
        own: &mpsc::Sender<Framed>,
    ) -> Result<(), End> {
        match outcome {
            Ok(message) => self.forward(message).await,
            Err(error) => {
                let version = self.extensions_version.lock().unwrap_or_else(PoisonError::into_inner).clone();
                self.answer(Envelope { version, ..response }, Some(&error), own)
            }
        }
    }

    async fn forward(&self, message: Framed) -> Result<(), End> {
        let gone = |_| End::Proxy(Status::cancelled("the proxy closed its connection"));
        self.down.send(Item::Message(message)).await.map_err(gone)
    }

    /// Queues an ACK or a NACK.
    fn answer(&self, response: Envelope, failed: Option<&str>, own: &mpsc::Sender<Framed>) -> Result<(), End> {
        if let Some(error) = failed {
            tracing::warn!(
                id = self.id,
                type_url = response.type_url,
                nonce = response.nonce,
                ?error,
                "rejected a response"
            );
        }
        let full = |_| End::Agent(Status::resource_exhausted("the control plane reads no requests"));
        own.try_send(own::answer(self.variant, response, failed)).map_err(full)
    }

    /// Logs and counts the end of the stream. Returns the status for the proxy.
    fn report(&self, end: End) -> Status {
        let (id, metrics) = (self.id, &self.hub.metrics);
        let (side, status) = match end {
            End::Unconnected(status) => {
                metrics.connection_failures.inc();
                tracing::warn!(id, reason = status.message(), "no connection to the control plane");
                return status;
            }
            End::Proxy(status) => {
                metrics.downstream_ends.with_label_values(&[kind(&status)]).inc();
                ("proxy", status)
            }
            End::ControlPlane(status) => {
                metrics.upstream_ends.with_label_values(&[kind(&status)]).inc();
                ("control plane", status)
            }
            End::Agent(status) => ("agent", status),
        };
        let (code, reason) = (status.code(), status.message());
        match kind(&status) {
            "error" => tracing::warn!(id, side, ?code, reason, "disconnected from the control plane"),
            _ => tracing::info!(id, side, ?code, reason, "disconnected from the control plane"),
        }
        status
    }
}

/// The kind of the end of a stream in metrics. Restarts and limits of age end streams as `OK`, `CANCELLED` or `UNAVAILABLE`.
fn kind(status: &Status) -> &'static str {
    match status.code() {
        Code::Ok | Code::Cancelled | Code::Unavailable => "cancelled",
        _ => "error",
    }
}

fn request(variant: Variant, metadata: MetadataMap, items: mpsc::Receiver<Item>) -> Request<tonic::body::Body> {
    let mut request = Request::new(tonic::body::Body::new(Outgoing::new(items)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static(variant.path());
    *request.version_mut() = http::Version::HTTP_2;
    let headers = request.headers_mut();
    *headers = metadata.into_headers();
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    request
}

/// A connected stream, until it is dropped.
struct Connected<'a>(&'a watch::Sender<usize>);

impl Connected<'_> {
    fn begin(count: &watch::Sender<usize>) -> Connected<'_> {
        count.send_modify(|count| *count += 1);
        Connected(count)
    }
}

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
