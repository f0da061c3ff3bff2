//! The stream: subscribing, acknowledging, coming back.

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
use crate::Change;

const STREAM: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The largest answer.
const ANSWER_BYTES: usize = 256 << 20;
/// How long connecting, and the other side's first sign, may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// An idle connection is asked this often whether it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// What Istio's own client says when it knows no better: newer than every condition on versions.
const VERSION: &str = "65536.65536.65536";
/// `INVALID_ARGUMENT`.
const INVALID: i32 = 3;

/// Who we tell the other side that we are.
#[derive(Clone, Debug)]
pub struct Node {
    /// Our namespace.
    pub namespace: Arc<str>,
    /// Our pod, or any name that tells replicas apart.
    pub name: Arc<str>,
    /// Our address.
    pub ip: Arc<str>,
    /// Our revision; empty: none. The other side may send only what is labelled for it.
    pub revision: Arc<str>,
}

/// What is followed, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The other side.
    pub address: Address,
    /// Who we are.
    pub node: Node,
    /// What is asked for.
    pub kinds: Vec<Kind>,
    /// How objects are read.
    pub parse: ParseOptions,
    /// The first wait before coming back, and the longest: it doubles. Each is cut by up to a half at random.
    pub wait: (Duration, Duration),
}

impl Options {
    /// Every kind that travels, waits from half a second to half a minute.
    pub fn new(address: Address, node: Node) -> Options {
        Options {
            address,
            node,
            kinds: Kind::ALL
                .iter()
                .copied()
                .filter(|kind| kind.is_complete() && *kind != Kind::MeshNetworks)
                .collect(),
            parse: ParseOptions::default(),
            wait: (Duration::from_millis(500), Duration::from_secs(30)),
        }
    }
}

/// Follows the other side until nobody takes the changes any more. The first change comes when every kind was answered
/// once, and holds everything; it may be empty. The channel's bound is what slows the other side down.
pub async fn follow(options: Options, changes: mpsc::Sender<Change>) {
    let name: Arc<str> = format!("xds://{}", options.address.authority).into();
    let taken = changes.clone();
    let mut follower = Follower {
        state: State::new(name.clone(), &options.kinds, options.parse.clone()),
        first: Some(Change::default()),
        options,
        changes,
        heard: false,
    };
    let mut wait = follower.options.wait.0;
    loop {
        follower.heard = false;
        let ended = tokio::select! {
            ended = follower.connect() => ended,
            () = taken.closed() => return,
        };
        let Err(reason) = ended else { return };
        if follower.heard {
            wait = follower.options.wait.0;
        }
        let pause = jittered(wait);
        tracing::warn!(source = %name, reason, ?pause, "the other control plane went; what it said stays");
        tokio::select! {
            () = sleep(pause) => {}
            () = taken.closed() => return,
        }
        wait = (wait * 2).min(follower.options.wait.1);
    }
}

/// Between a half and the whole of it.
fn jittered(wait: Duration) -> Duration {
    let random = RandomState::new().hash_one(Instant::now()) % 1000;
    wait.mul_f64(0.5 + random as f64 / 2000.0)
}

struct Follower {
    options: Options,
    state: State,
    /// What is to be said of what came before everything had come; none afterwards.
    first: Option<Change>,
    changes: mpsc::Sender<Change>,
    /// Whether this connection brought an answer.
    heard: bool,
}

impl Follower {
    /// One connection. Ends well when nobody takes the changes any more.
    async fn connect(&mut self) -> Result<(), String> {
        let channel = timeout(PATIENCE, channel(&self.options.address));
        let channel = channel.await.map_err(|_| "connecting took too long".to_owned())??;
        // Room for all subscriptions at once, which are sent before anything is read.
        let (requests, outgoing) = mpsc::channel(self.options.kinds.len() + 1);
        let mut node = Some(self.node());
        for (type_url, version) in self.state.subscriptions() {
            let request = DiscoveryRequest {
                node: node.take(),
                type_url: type_url.to_owned(),
                version_info: version.to_owned(),
                ..DiscoveryRequest::default()
            };
            requests.try_send(request).map_err(|e| e.to_string())?;
        }
        let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(ANSWER_BYTES);
        grpc.ready().await.map_err(|e| e.to_string())?;
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let call = grpc.streaming(
            Request::new(ReceiverStream::new(outgoing)),
            PathAndQuery::from_static(STREAM),
            codec,
        );
        let answers = timeout(PATIENCE, call)
            .await
            .map_err(|_| "the other side does not answer".to_owned())?;
        self.read(
            answers.map_err(|status| status.message().to_owned())?.into_inner(),
            &requests,
        )
        .await
    }

    async fn read(
        &mut self,
        mut answers: Streaming<DiscoveryResponse>,
        requests: &mpsc::Sender<DiscoveryRequest>,
    ) -> Result<(), String> {
        loop {
            let response = match answers.message().await {
                Ok(Some(response)) => response,
                Ok(None) => return Err("the stream ended".into()),
                Err(status) => return Err(format!("{:?}: {}", status.code(), status.message())),
            };
            self.heard = true;
            let (change, outcome) = self.state.take(&response);
            if let Err(reason) = &outcome {
                tracing::warn!(
                    kind = response.type_url,
                    reason,
                    "an answer of the other control plane is refused"
                );
            }
            let acknowledgement = DiscoveryRequest {
                version_info: self.state.version(&response.type_url).to_owned(),
                type_url: response.type_url,
                response_nonce: response.nonce,
                error_detail: outcome.err().map(|message| rpc::Status {
                    code: INVALID,
                    message,
                    ..rpc::Status::default()
                }),
                ..DiscoveryRequest::default()
            };
            if !self.pass_on(change).await {
                return Ok(());
            }
            // Acknowledged when it was taken, so that a slow reader slows the other side.
            requests
                .send(acknowledgement)
                .await
                .map_err(|_| "the stream ended".to_owned())?;
        }
    }

    /// False: nobody takes it.
    async fn pass_on(&mut self, change: Change) -> bool {
        let change = match self.first.take() {
            None => change,
            Some(mut first) => {
                first.diagnostics.extend(change.diagnostics);
                if !self.state.is_synced() {
                    self.first = Some(first);
                    return true;
                }
                first.upserts = self.state.objects().cloned().collect();
                return self.changes.send(first).await.is_ok();
            }
        };
        change.is_empty() || self.changes.send(change).await.is_ok()
    }

    fn node(&self) -> v3::Node {
        let Node {
            namespace,
            name,
            ip,
            revision,
        } = &self.options.node;
        let mut metadata = vec![
            ("GENERATOR", "api"),
            ("ISTIO_VERSION", VERSION),
            ("NAMESPACE", &**namespace),
        ];
        if !revision.is_empty() {
            metadata.push(("ISTIO_REVISION", &**revision));
        }
        let text = |text: &str| Value {
            kind: Some(value::Kind::StringValue(text.to_owned())),
        };
        v3::Node {
            id: format!("sidecar~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
            metadata: Some(Struct {
                fields: metadata
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), text(value)))
                    .collect(),
            }),
            ..v3::Node::default()
        }
    }
}

async fn channel(address: &Address) -> Result<Channel, String> {
    let scheme = if address.tls.is_some() { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", address.authority))
        .map_err(|e| e.to_string())?
        .connect_timeout(PATIENCE)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(PATIENCE)
        .keep_alive_while_idle(true);
    if let Some(tls) = &address.tls {
        endpoint = endpoint.tls_config(tls_config(tls).await?).map_err(|e| e.to_string())?;
    }
    endpoint.connect().await.map_err(|error| {
        // The outer error only says that it is one.
        let source = std::error::Error::source(&error).map(ToString::to_string);
        source.unwrap_or_else(|| error.to_string())
    })
}

async fn tls_config(tls: &Tls) -> Result<ClientTlsConfig, String> {
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

/// The text itself, or the file that it names.
async fn pem(text: &str) -> Result<Vec<u8>, String> {
    if text.trim_start().starts_with("-----BEGIN") {
        return Ok(text.as_bytes().to_vec());
    }
    let path = text.to_owned();
    let read = tokio::task::spawn_blocking(move || std::fs::read(&path).map_err(|e| format!("{path}: {e}")));
    read.await.map_err(|e| e.to_string())?
}
