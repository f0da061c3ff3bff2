//! The xDS stream: subscribing, acknowledging, reconnecting.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use config::{Kind, ParseOptions};
use protos::envoy::config::core::v3;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use protos::google::rpc;
use protos::{Struct, Value, value};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Streaming};
use tonic_prost::ProstCodec;

use super::address::{Address, Tls};
use super::state::State;
use config::ChangeSet;

use crate::ChangeSender;

const STREAM: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The maximum size of a response, in bytes.
const ANSWER_BYTES: usize = 256 << 20;
/// The timeout for connecting and for the first response.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of keepalive pings.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// The version that Istio's own client sends by default: newer than every version condition.
const VERSION: &str = "65536.65536.65536";
/// `INVALID_ARGUMENT`.
const INVALID: i32 = 3;

/// The identity sent to the other control plane.
#[derive(Clone, Debug)]
pub struct Node {
    /// Our namespace.
    pub namespace: Arc<str>,
    /// Our pod name, or any name that distinguishes replicas.
    pub name: Arc<str>,
    /// Our address.
    pub ip: Arc<str>,
    /// Our revision; may be empty. The other control plane may filter by it.
    pub revision: Arc<str>,
}

/// Options of an xDS source.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of the other control plane.
    pub address: Address,
    /// Our identity.
    pub node: Node,
    /// The kinds to subscribe to.
    pub kinds: Vec<Kind>,
    /// The parser options.
    pub parse: ParseOptions,
    /// The initial and the maximum backoff. It doubles; each wait is reduced by up to a half at random.
    pub wait: (Duration, Duration),
}

impl Options {
    /// Subscribes to every supported kind, with a backoff from half a second to half a minute.
    pub fn new(address: Address, node: Node) -> Options {
        Options {
            address,
            node,
            kinds: Kind::ALL.iter().copied().filter(|kind| kind.is_complete() && *kind != Kind::MeshNetworks).collect(),
            parse: ParseOptions::default().degrading(),
            wait: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }
}

/// Follows another control plane until the receiver is dropped. The first change set is sent when every subscription
/// was answered once; it is complete and may be empty. A full channel slows the other side down.
pub async fn follow(options: Options, changes: ChangeSender) {
    let name: Arc<str> = format!("xds://{}", options.address.authority).into();
    let taken = changes.clone();
    let mut follower = Follower {
        state: State::new(name.clone(), &options.kinds, options.parse.clone()),
        first: Some(ChangeSet::default()),
        options,
        changes,
        responded: false,
    };
    let mut wait = follower.options.wait.0;
    loop {
        follower.responded = false;
        let ended = tokio::select! {
            ended = follower.connect() => ended,
            () = taken.closed() => return,
        };
        let Err(reason) = ended else { return };
        if follower.responded {
            wait = follower.options.wait.0;
        }
        let pause = jittered(wait);
        tracing::warn!(source = %name, %reason, ?pause, "disconnected from the other control plane; its objects stay in effect");
        tokio::select! {
            () = sleep(pause) => {}
            () = taken.closed() => return,
        }
        wait = (wait * 2).min(follower.options.wait.1);
    }
}

/// Reduces a wait by up to a half at random.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(Instant::now()) % 1000;
    wait.mul_f64(0.5 + random as f64 / 2000.0)
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum ConnectionError {
    #[error("connecting timed out")]
    ConnectTimeout,
    #[error("the other control plane does not answer")]
    NoAnswer,
    #[error("the stream ended")]
    Ended,
    #[error("{:?}: {}", .0.code(), .0.message())]
    Status(Box<tonic::Status>),
    #[error("{}", innermost(.0))]
    Transport(#[from] tonic::transport::Error),
    #[error("{path}: {error}")]
    File { path: String, error: std::io::Error },
}

/// The message of an error's source: transport errors have no details themselves.
fn innermost(error: &tonic::transport::Error) -> String {
    let source = std::error::Error::source(error).map(ToString::to_string);
    source.unwrap_or_else(|| error.to_string())
}

struct Follower {
    options: Options,
    state: State,
    /// Diagnostics received before the initial state is complete; `None` afterwards.
    first: Option<ChangeSet>,
    changes: ChangeSender,
    /// Whether this connection received a response.
    responded: bool,
}

impl Follower {
    /// Runs one connection. Returns `Ok` when the receiver is dropped.
    async fn connect(&mut self) -> Result<(), ConnectionError> {
        let channel = timeout(PATIENCE, channel(&self.options.address));
        let channel = channel.await.map_err(|_| ConnectionError::ConnectTimeout)??;
        // Capacity for all subscriptions, which are sent before anything is read.
        let (requests, outgoing) = mpsc::channel(self.options.kinds.len() + 1);
        let mut node = Some(self.node());
        for (type_url, version) in self.state.subscriptions() {
            let request = DiscoveryRequest {
                node: node.take(),
                type_url: type_url.to_owned(),
                version_info: version.to_owned(),
                ..DiscoveryRequest::default()
            };
            requests.try_send(request).map_err(|_| ConnectionError::Ended)?;
        }
        let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES);
        grpc.ready().await?;
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let call =
            grpc.streaming(Request::new(ReceiverStream::new(outgoing)), PathAndQuery::from_static(STREAM), codec);
        let answers = timeout(PATIENCE, call).await.map_err(|_| ConnectionError::NoAnswer)?;
        let answers = answers.map_err(|status| ConnectionError::Status(Box::new(status)))?;
        self.read(answers.into_inner(), &requests).await
    }

    async fn read(
        &mut self,
        mut answers: Streaming<DiscoveryResponse>,
        requests: &mpsc::Sender<DiscoveryRequest>,
    ) -> Result<(), ConnectionError> {
        loop {
            let response = match answers.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return Err(ConnectionError::Ended),
                Err(status) => return Err(ConnectionError::Status(Box::new(status))),
            };
            self.responded = true;
            let (change, outcome) = self.state.take(&response);
            let rejected = outcome.err().map(|rejection| rejection.detail());
            if let Some(reason) = &rejected {
                tracing::warn!(kind = response.type_url, reason, "rejecting a response of the other control plane");
            }
            let acknowledgement = DiscoveryRequest {
                version_info: self.state.version(&response.type_url).to_owned(),
                type_url: response.type_url,
                response_nonce: response.nonce,
                error_detail: rejected.map(|message| rpc::Status { code: INVALID, message, ..rpc::Status::default() }),
                ..DiscoveryRequest::default()
            };
            if !self.pass_on(change).await {
                return Ok(());
            }
            // Acknowledged after it was handled, so a slow receiver slows the other side down.
            requests.send(acknowledgement).await.map_err(|_| ConnectionError::Ended)?;
        }
    }

    /// Returns false if the receiver is dropped.
    async fn pass_on(&mut self, change: ChangeSet) -> bool {
        let change = match self.first.take() {
            None => change,
            Some(mut first) => {
                first.diagnostics.extend(change.diagnostics);
                if !self.state.is_synced() {
                    self.first = Some(first);
                    return true;
                }
                first.upserts = self.state.objects().map(|object| (object.key(), object.clone())).collect();
                return self.changes.send(first).await.is_ok();
            }
        };
        change.is_empty() || self.changes.send(change).await.is_ok()
    }

    fn node(&self) -> v3::Node {
        let Node { namespace, name, ip, revision } = &self.options.node;
        let mut metadata = vec![("GENERATOR", "api"), ("ISTIO_VERSION", VERSION), ("NAMESPACE", &**namespace)];
        if !revision.is_empty() {
            metadata.push(("ISTIO_REVISION", &**revision));
        }
        let text = |text: &str| Value { kind: Some(value::Kind::StringValue(text.to_owned())) };
        v3::Node {
            id: format!("sidecar~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
            metadata: Some(Struct {
                fields: metadata.into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect(),
            }),
            ..v3::Node::default()
        }
    }
}

async fn channel(address: &Address) -> Result<Channel, ConnectionError> {
    let scheme = if address.tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", address.authority))?
        .connect_timeout(PATIENCE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(PATIENCE)
        .keep_alive_while_idle(true);
    if let Some(tls) = &address.tls {
        endpoint = endpoint.tls_config(tls_config(tls).await?)?;
    }
    Ok(endpoint.connect().await?)
}

async fn tls_config(tls: &Tls) -> Result<ClientTlsConfig, ConnectionError> {
    let mut config = ClientTlsConfig::new();
    config = match &tls.ca {
        Some(ca) => config.ca_certificate(Certificate::from_pem(pem(ca).await?)),
        None => config.with_native_roots(),
    };
    if let Some((certificate, key)) = &tls.identity {
        config = config.identity(Identity::from_pem(pem(certificate).await?, pem(key).await?));
    }
    Ok(match &tls.server_name {
        Some(name) => config.domain_name(&**name),
        None => config,
    })
}

/// Returns a PEM text, or reads the file at a path.
async fn pem(text: &str) -> Result<Vec<u8>, ConnectionError> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Ok(text.as_bytes().to_vec());
    }
    let path = text.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
    let read = read.unwrap_or_else(|stopped| Err(std::io::Error::other(stopped)));
    read.map_err(|error| ConnectionError::File { path: text.to_owned(), error })
}
