//! The stream of one client that reads configuration.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use bytes::Bytes;
use protos::Message as _;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use protos::value::Kind as Is;
use tokio::sync::{mpsc, watch};
use xds::{Rate, Rope};

use super::{Answer, Configuration};
use crate::grpc::{Down, Messages, Status};

/// The maximum number of types on one stream.
const TYPES: usize = 256;
/// The maximum length of a type, in bytes.
const TYPE_BYTES: usize = 512;
/// Requests per second, and their burst.
const REQUESTS: (u32, u32) = (100, 1000);
/// Per second and as a burst: requests for a type that was sent already, each of which sends all of its objects again.
const REPEATS: (u32, u32) = (1, 32);

/// The parts of the server that a stream uses.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) configuration: Configuration,
    /// True when the server stops.
    pub(crate) stopped: watch::Receiver<bool>,
}

/// Whether the first request of a stream comes from a client that reads configuration.
pub(crate) fn wants(message: &Bytes) -> bool {
    let request = DiscoveryRequest::decode(message.clone()).unwrap_or_default();
    let metadata = request.node.and_then(|node| node.metadata);
    let generator = metadata.and_then(|metadata| metadata.fields.get("GENERATOR")?.kind.clone());
    matches!(generator, Some(Is::StringValue(text)) if text == "api")
}

/// The state of a subscribed type.
#[derive(Default)]
struct TypeState {
    version: String,
    nonce: String,
    /// Whether the last response is not acknowledged yet.
    outstanding: bool,
    generation: u64,
}

struct Stream<'a> {
    configuration: &'a Configuration,
    down: &'a mpsc::Sender<Down>,
    types: BTreeMap<String, TypeState>,
    nonces: u64,
    started: Instant,
    requests: Rate,
    repeats: Rate,
}

impl Service {
    /// Serves a stream, whose first message was already read, until it ends.
    pub(crate) async fn serve(mut self, first: Bytes, messages: &mut Messages, down: &mpsc::Sender<Down>) -> Status {
        let mut changes = self.configuration.changes();
        let mut stream = Stream::new(&self.configuration, down);
        let mut next = Some(first);
        let ended = loop {
            let outcome = match next.take() {
                Some(message) => stream.request(message).await,
                None => tokio::select! {
                    message = messages.next() => match message {
                        Ok(Some((message, _))) => { next = Some(message); Ok(()) }
                        Ok(None) => break Status::new(Status::OK, ""),
                        Err(status) => break status,
                    },
                    _ = changes.changed() => stream.push().await,
                    () = down.closed() => break Status::new(Status::UNAVAILABLE, "the client went"),
                    () = stopping(&mut self.stopped) => {
                        break Status::new(Status::UNAVAILABLE, "the control plane is shutting down");
                    }
                },
            };
            if let Err(status) = outcome {
                break status;
            }
        };
        // The final status needs room in the queue, because its sender does not wait.
        drop(down.reserve().await);
        ended
    }
}

async fn stopping(stopped: &mut watch::Receiver<bool>) {
    // An error means that the server was dropped.
    let _ = stopped.wait_for(|stop| *stop).await;
}

impl<'a> Stream<'a> {
    fn new(configuration: &'a Configuration, down: &'a mpsc::Sender<Down>) -> Stream<'a> {
        let start = Duration::ZERO;
        let (requests, repeats) = (Rate::new(REQUESTS.1, start), Rate::new(REPEATS.1, start));
        let (types, nonces, started) = (BTreeMap::new(), 0, Instant::now());
        Stream { configuration, down, types, nonces, started, requests, repeats }
    }

    async fn request(&mut self, message: Bytes) -> Result<(), Status> {
        let now = self.started.elapsed();
        let too_many = |what: &str| Status::new(Status::RESOURCE_EXHAUSTED, format!("too many requests{what}"));
        if !self.requests.take(1, REQUESTS, now) {
            return Err(too_many(""));
        }
        let invalid = |text: String| Status::new(Status::INVALID_ARGUMENT, text);
        let request = DiscoveryRequest::decode(message).map_err(|e| invalid(e.to_string()))?;
        let type_url = request.type_url;
        if type_url.is_empty() || type_url.len() > TYPE_BYTES {
            return Err(invalid(format!("a type has 1 to {TYPE_BYTES} bytes")));
        }
        let count = self.types.len();
        match self.types.entry(type_url.clone()) {
            Entry::Vacant(_) if count >= TYPES => {
                return Err(invalid(format!("at most {TYPES} types are served on one stream")));
            }
            // The first request of a type is answered whatever its nonce: Istio's client sends a random one.
            Entry::Vacant(entry) => drop(entry.insert(TypeState::default())),
            Entry::Occupied(mut entry) => {
                let state = entry.get_mut();
                if request.response_nonce.is_empty() {
                    // The client requests the type again.
                    if !self.repeats.take(1, REPEATS, now) {
                        return Err(too_many(" for types that were sent already"));
                    }
                    state.version.clear();
                } else if request.response_nonce != state.nonce {
                    // An ACK or NACK of an outdated response.
                    return Ok(());
                }
                state.outstanding = false;
                if let Some(error) = request.error_detail {
                    tracing::warn!(
                        kind = type_url,
                        reason = error.message,
                        "another control plane refuses configuration"
                    );
                }
                if state.generation == self.configuration.generation(&type_url) && !state.version.is_empty() {
                    return Ok(());
                }
            }
        }
        self.send(&type_url).await
    }

    /// Sends the types that have changed and have no outstanding response.
    async fn push(&mut self) -> Result<(), Status> {
        let stale = |(kind, state): (&String, &TypeState)| {
            let stale = !state.outstanding && state.generation != self.configuration.generation(kind);
            stale.then(|| kind.clone())
        };
        let stale: Vec<String> = self.types.iter().filter_map(stale).collect();
        for kind in stale {
            self.send(&kind).await?;
        }
        Ok(())
    }

    /// Sends a type unless its content is unchanged.
    async fn send(&mut self, type_url: &str) -> Result<(), Status> {
        let (configuration, kind) = (self.configuration.clone(), type_url.to_owned());
        let answer = tokio::task::spawn_blocking(move || configuration.answer(&kind)).await;
        let answer: Answer = answer.map_err(|_| Status::new(Status::INTERNAL, "an internal error; see the log"))?;
        let Some(state) = self.types.get_mut(type_url) else {
            return Ok(());
        };
        state.generation = answer.generation;
        if state.version == answer.version {
            return Ok(());
        }
        self.nonces += 1;
        state.nonce = self.nonces.to_string();
        state.version.clone_from(&answer.version);
        state.outstanding = true;
        let head = DiscoveryResponse {
            version_info: answer.version,
            type_url: type_url.to_owned(),
            nonce: state.nonce.clone(),
            ..DiscoveryResponse::default()
        };
        // The fields of a message may have any order, so all streams share those of the resources.
        let rope = Rope::from_pieces(vec![head.encode_to_vec().into(), answer.resources]);
        let sent = self.down.send(Down::Message(rope)).await;
        sent.map_err(|_| Status::new(Status::UNAVAILABLE, "the client went"))
    }
}
