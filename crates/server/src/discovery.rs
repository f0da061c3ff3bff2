//! The aggregated discovery service: one request, one stream.

use envoy::types;
use model::proxy::Proxy;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use http2_server::RequestBody;
use listeners::WhenWoken;
use protos::Message as _;
use protos::envoy::config::core::v3::Node;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use xds::{Limits, Request, StreamId, Variant, decode_delta, decode_sotw};

use crate::authentication::{Credentials, Purpose};
use crate::budget::{Budget, Held};
use crate::certificate_service::{CREATE, CertificateService, MAX_MESSAGE};
use crate::connection::{Client, Transport};
use crate::connection_age::Aged;
use crate::core::{Connect, Message};
use crate::debug_service::{self, DebugService};
use crate::gate::Gate;
use crate::grpc::{Down, Messages, Received, Status, StreamBody, refuse, single, stream};
use crate::mcp;
use crate::page_access::Guard;
use crate::peer::{Peer, SecretAccess};
use crate::registration::{HEALTH, Registered, Registrar};
use crate::security::Security;
use crate::world_handle::WorldHandle;

/// State of the world.
const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// Incremental.
const DELTA: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// The number of a stream's requests that wait to be handled. When it is reached, the stream is not read.
const UNHANDLED: usize = 16;

/// The place of a request among those of its stream that are not handled yet, and the memory that it uses.
#[allow(dead_code, reason = "it is only dropped")]
pub(crate) struct Place(pub(crate) OwnedSemaphorePermit, pub(crate) Held);

/// The settings and handles that the streams of a connection use.
#[derive(Clone)]
pub(crate) struct Discovery {
    pub(crate) world: WorldHandle,
    pub(crate) limits: Arc<Limits>,
    pub(crate) max_request_bytes: usize,
    pub(crate) budget: Budget,
    /// The time in which the first request of a stream must arrive.
    pub(crate) first_within: Duration,
    /// Whether proxies that support VHDS receive virtual hosts over it.
    pub(crate) vhds: bool,
    pub(crate) secret_access: SecretAccess,
    /// Registers proxies outside of Kubernetes.
    pub(crate) registrar: Option<Registrar>,
    /// Serves configuration to other control planes; `None` treats them as proxies.
    pub(crate) configuration: Option<mcp::Service>,
    /// Serves debug pages to `istioctl`.
    pub(crate) debug: DebugService,
    /// Decides who reads debug pages and the configuration.
    pub(crate) guard: Guard,
    pub(crate) gate: Gate,
    /// Issues certificates on the TLS port.
    pub(crate) certificates: Option<CertificateService>,
    pub(crate) security: Arc<Security>,
    /// The client of the connection.
    pub(crate) client: Client,
}

impl Discovery {
    /// The same for a connection of this client.
    pub(crate) fn of_connection(&self, client: Client) -> Discovery {
        Discovery { budget: self.budget.of_connection(client.address), client, ..self.clone() }
    }

    /// Answers a call of a client. The client is authenticated before anything else happens.
    pub(crate) async fn call(
        self: &Arc<Self>,
        request: http::Request<RequestBody>,
        aged: Aged,
    ) -> Response<StreamBody> {
        let grpc = request.headers().get(http::header::CONTENT_TYPE);
        if request.method() != Method::POST || !grpc.is_some_and(|t| t.as_bytes().starts_with(b"application/grpc")) {
            return refuse(&Status::new(Status::UNIMPLEMENTED, "this address speaks gRPC only"));
        }
        let variant = match request.uri().path() {
            SOTW => Variant::Sotw,
            DELTA => Variant::Delta,
            CREATE => return self.create_certificate(request).await,
            other => {
                return refuse(&Status::new(Status::UNIMPLEMENTED, format!("there is no method {other}")));
            }
        };
        let peer = match self.peer(request.headers()).await {
            Ok(peer) => peer,
            Err(status) => return refuse(&status),
        };
        let (down, receiver) = mpsc::channel(self.world.down_queue());
        let upstream = Upstream {
            discovery: self.clone(),
            variant,
            down,
            peer,
            secrets_refused: AtomicBool::new(false),
            places: Arc::new(Semaphore::new(UNHANDLED)),
        };
        let messages = Messages::new(request.into_body(), self.max_request_bytes, self.budget.clone());
        tokio::spawn(upstream.run(messages, aged));
        stream(receiver)
    }

    /// The peer of a stream with these headers.
    async fn peer(&self, headers: &http::HeaderMap) -> Result<Peer, Status> {
        let Security { authenticate_streams, authenticate_plaintext, .. } = *self.security;
        match &self.client.transport {
            // The kernel proves the user.
            Transport::Plaintext(peer @ Peer::Local { .. }) => return Ok(peer.clone()),
            Transport::Plaintext(peer) if !authenticate_plaintext => return Ok(peer.clone()),
            Transport::Tls(_) if !authenticate_streams => return Ok(Peer::Anonymous),
            Transport::Plaintext(_) | Transport::Tls(_) => {}
        }
        match self.gate.authenticate(&self.credentials(headers), Purpose::Stream).await {
            Ok(caller) => Ok(Peer::Authenticated(caller.identity)),
            Err(_) => Err(Status::new(Status::UNAUTHENTICATED, "authentication failure")),
        }
    }

    fn credentials(&self, headers: &http::HeaderMap) -> Credentials {
        Credentials::new(headers, self.client.address, self.client.certificate())
    }

    async fn create_certificate(&self, request: http::Request<RequestBody>) -> Response<StreamBody> {
        let unimplemented = |text: &str| refuse(&Status::new(Status::UNIMPLEMENTED, text));
        let Some(service) = &self.certificates else {
            return unimplemented("this control plane issues no certificates (--ca-server)");
        };
        if !matches!(self.client.transport, Transport::Tls(_)) {
            return unimplemented("certificates are issued on the TLS port only (--secure-grpc-addr)");
        }
        let credentials = self.credentials(request.headers());
        let messages = Messages::fixed(request.into_body(), MAX_MESSAGE, self.budget.clone());
        match service.create(&self.gate, &credentials, messages).await {
            Ok(message) => single(message),
            Err(status) => refuse(&status),
        }
    }
}

/// A stream that is connected.
struct Connected {
    id: StreamId,
    registered: Option<Registered>,
}

/// The request half of a stream.
struct Upstream {
    discovery: Arc<Discovery>,
    variant: Variant,
    down: mpsc::Sender<Down>,
    peer: Peer,
    /// Whether the refusal of secrets was logged.
    secrets_refused: AtomicBool,
    /// Limits the requests that are not handled yet.
    places: Arc<Semaphore>,
}

impl Upstream {
    /// Logs the first request for secrets of a client that may not read them.
    fn log_refused_secrets(&self, request: &Request, stream: StreamId) {
        if request.type_url != types::SECRET.type_url {
            return;
        }
        if let Err(reason) = self.peer.secret_right(self.discovery.secret_access)
            && !self.secrets_refused.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(stream = stream.0, reason, "refused to send secrets to a proxy");
        }
    }

    /// Handles requests until the stream ends.
    #[expect(clippy::manual_async_fn, reason = "an async function has room for its arguments twice")]
    fn run(self, mut messages: Messages, mut aged: Aged) -> impl Future<Output = ()> {
        async move {
            let mut connected = None;
            let ended = self.read(&mut messages, &mut aged, &mut connected).await;
            // The queue reserves room for the end of the stream (see `down_queue`). An error means that the client
            // disconnected.
            let reason = match &*ended.message {
                "" => "the client ended the stream".to_owned(),
                message => message.to_owned(),
            };
            let _ = self.down.try_send(Down::end(ended));
            if let Some(Connected { id, registered }) = connected {
                let _ = self.discovery.world.send(Message::Disconnect(id, reason)).await;
                if let Some(registered) = registered {
                    registered.end().await;
                }
            }
        }
    }

    async fn read(&self, messages: &mut Messages, aged: &mut Aged, connected: &mut Option<Connected>) -> Status {
        let must_end = async {
            tokio::select! {
                status = aged.reached() => status,
                () = self.down.closed() => Status::new(Status::UNAVAILABLE, "the client disconnected"),
            }
        };
        let mut must_end = pin!(WhenWoken::new(must_end));
        let mut is_new = true;
        loop {
            let message = tokio::select! {
                biased;
                message = self.next(messages, std::mem::take(&mut is_new)) => message,
                status = &mut must_end => return status,
            };
            let outcome = match message {
                Ok(Some((message, held))) => {
                    let is_first = connected.is_none();
                    if let Some(service) = self.configuration_service(&message, is_first) {
                        if self.discovery.security.protect_configuration
                            && let Err(status) = self.discovery.guard.check_control_plane(&self.peer)
                        {
                            return status;
                        }
                        // Boxed: few streams do this, and it must not add to the size of all.
                        let serving = Box::pin(service.serve(message, messages, &self.down));
                        return tokio::select! {
                            status = serving => status,
                            status = &mut must_end => status,
                        };
                    }
                    if is_first && matches!(self.variant, Variant::Sotw) && debug_service::wants(&message) {
                        let (service, access) =
                            (self.discovery.debug.clone(), self.discovery.guard.of_peer(&self.peer));
                        return Box::pin(service.serve(message, &access, messages, &self.down)).await;
                    }
                    // Boxed: while a stream waits for a request, its task must not have room for this.
                    Box::pin(self.take((message, held), connected)).await
                }
                Ok(None) => return Status::new(Status::OK, ""),
                Err(status) => Err(status),
            };
            if let Err(status) = outcome {
                return status;
            }
        }
    }

    /// The next message. The first one must begin in time; if it is large, it may then have to wait for memory, which is not the
    /// fault of its client.
    async fn next(&self, messages: &mut Messages, is_first: bool) -> Result<Option<Received>, Status> {
        if is_first {
            let limit = self.discovery.first_within;
            let late = |_| Status::new(Status::DEADLINE_EXCEEDED, format!("no request within {limit:?}"));
            tokio::time::timeout(limit, messages.begin()).await.map_err(late)??;
        }
        messages.next().await
    }

    /// Returns the configuration service if the first message of a stream asks for it.
    fn configuration_service(&self, message: &Bytes, is_first: bool) -> Option<mcp::Service> {
        let service = self.discovery.configuration.as_ref()?;
        let wanted = is_first && matches!(self.variant, Variant::Sotw) && mcp::wants(message);
        wanted.then(|| service.clone())
    }

    async fn take(&self, (message, held): Received, connected: &mut Option<Connected>) -> Result<(), Status> {
        let decoded = match self.variant {
            Variant::Sotw => decode_sotw(&message, &self.discovery.limits),
            Variant::Delta => decode_delta(&message, &self.discovery.limits),
        };
        let request = decoded.map_err(|e| Status::new(Status::INVALID_ARGUMENT, e.to_string()))?;
        let connected = match connected {
            Some(connected) => connected,
            None => connected.insert(Box::pin(self.connect(&request)).await?),
        };
        let id = connected.id;
        if request.type_url == HEALTH {
            if let Some(registered) = &connected.registered {
                registered.report(request.error).await;
            }
            return Ok(());
        }
        self.log_refused_secrets(&request, id);
        let unavailable = |reason: &dyn std::fmt::Display| Status::new(Status::UNAVAILABLE, reason.to_string());
        let place = match self.places.clone().try_acquire_owned() {
            Ok(place) => place,
            Err(_) => tokio::select! {
                place = self.places.clone().acquire_owned() => place.map_err(|closed| unavailable(&closed))?,
                () = self.down.closed() => return Err(unavailable(&"the client disconnected")),
            },
        };
        let sent = self.discovery.world.send(Message::Request(id, (Box::new(request), Place(place, held)))).await;
        sent.map_err(|closed| unavailable(&closed))
    }

    async fn connect(&self, request: &Request) -> Result<Connected, Status> {
        let invalid = |text: String| Status::new(Status::INVALID_ARGUMENT, text);
        let node = request.node.clone().ok_or_else(|| invalid("missing node information".into()))?;
        let node = Node::decode(node).map_err(|_| invalid("the node is not a valid Node message".into()))?;
        let mut proxy = envoy::parse_node(&node).map_err(|e| invalid(e.to_string()))?;
        // Only delta xDS can remove a single virtual host.
        let incremental = matches!(self.variant, Variant::Delta);
        proxy.vhds &= incremental && self.discovery.vhds;
        let is_proven = match self.peer.check_claims(&mut proxy) {
            Ok(()) => true,
            Err(_) if !self.discovery.security.check_identity => false,
            Err(error) => return Err(Status::new(Status::PERMISSION_DENIED, error.to_string())),
        };
        let right = self.peer.secret_right(self.discovery.secret_access);
        proxy.secrets = right.ok().filter(|_| is_proven).unwrap_or_default();
        let registered = match &self.discovery.registrar {
            Some(registrar) => registrar.connect(&node, &proxy, &self.peer).await?,
            None => None,
        };
        match self.admit(proxy).await {
            Ok(id) => Ok(Connected { id, registered }),
            Err(status) => {
                if let Some(registered) = registered {
                    registered.end().await;
                }
                Err(status)
            }
        }
    }

    /// Connects a proxy to the world.
    async fn admit(&self, proxy: Proxy) -> Result<StreamId, Status> {
        let name = proxy.id.clone();
        let (reply, answer) = oneshot::channel();
        let connect = Connect { proxy: Box::new(proxy), variant: self.variant, down: self.down.clone(), reply };
        let closed = || Status::new(Status::UNAVAILABLE, "the control plane is shutting down");
        self.discovery.world.send(Message::Connect(connect)).await.map_err(|_| closed())?;
        let id = answer.await.map_err(|_| closed())??;
        tracing::info!(target: "xds", node = %name, stream = id.0, variant = ?self.variant, "connected");
        Ok(id)
    }
}
