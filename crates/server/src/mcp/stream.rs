//! One client that reads configuration.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use bytes::Bytes;
use protos::Message as _;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use protos::value::Kind as Is;
use tokio::sync::{mpsc, watch};
use xds::Rope;

use super::{Answer, Configuration};
use crate::grpc::{Down, Messages, Status};

/// Types of one stream.
const TYPES: usize = 256;
/// Bytes of a type.
const TYPE_BYTES: usize = 512;

/// What a stream needs of the server.
#[derive(Clone)]
pub(crate) struct Service {
    pub(crate) configuration: Configuration,
    /// True: the server stops.
    pub(crate) stopped: watch::Receiver<bool>,
}

/// Whether the first request of a stream comes from a reader of configuration.
pub(crate) fn wants(message: &Bytes) -> bool {
    let request = DiscoveryRequest::decode(message.clone()).unwrap_or_default();
    let metadata = request.node.and_then(|node| node.metadata);
    let generator = metadata.and_then(|metadata| metadata.fields.get("GENERATOR")?.kind.clone());
    matches!(generator, Some(Is::StringValue(text)) if text == "api")
}

/// What a client has been told of a type.
#[derive(Default)]
struct Told {
    version: String,
    nonce: String,
    /// It has not answered yet.
    outstanding: bool,
    generation: u64,
}

struct Stream<'a> {
    configuration: &'a Configuration,
    down: &'a mpsc::Sender<Down>,
    told: BTreeMap<String, Told>,
    nonces: u64,
}

impl Service {
    /// Serves a stream whose first message was read already, to its end.
    pub(crate) async fn serve(mut self, first: Bytes, messages: &mut Messages, down: &mpsc::Sender<Down>) -> Status {
        let mut changes = self.configuration.changes();
        let mut stream = Stream {
            configuration: &self.configuration,
            down,
            told: BTreeMap::new(),
            nonces: 0,
        };
        let mut next = Some(first);
        let ended = loop {
            let outcome = match next.take() {
                Some(message) => stream.request(message).await,
                None => tokio::select! {
                    message = messages.next() => match message {
                        Ok(Some(message)) => { next = Some(message); Ok(()) }
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
        // The end needs a place in the queue; whoever sends it does not wait.
        drop(down.reserve().await);
        ended
    }
}

async fn stopping(stopped: &mut watch::Receiver<bool>) {
    // Its sender goes with the server.
    let _ = stopped.wait_for(|stop| *stop).await;
}

impl Stream<'_> {
    async fn request(&mut self, message: Bytes) -> Result<(), Status> {
        let invalid = |text: String| Status::new(Status::INVALID_ARGUMENT, text);
        let request = DiscoveryRequest::decode(message).map_err(|e| invalid(e.to_string()))?;
        let type_url = request.type_url;
        if type_url.is_empty() || type_url.len() > TYPE_BYTES {
            return Err(invalid(format!("a type has 1 to {TYPE_BYTES} bytes")));
        }
        let count = self.told.len();
        match self.told.entry(type_url.clone()) {
            Entry::Vacant(_) if count >= TYPES => {
                return Err(invalid(format!("at most {TYPES} types are served on one stream")));
            }
            // The first request of a type is answered, whatever nonce it has: Istio's client makes one up.
            Entry::Vacant(entry) => drop(entry.insert(Told::default())),
            Entry::Occupied(mut entry) => {
                let told = entry.get_mut();
                if request.response_nonce.is_empty() {
                    // It asks again.
                    told.version.clear();
                } else if request.response_nonce != told.nonce {
                    // About an answer that another has replaced.
                    return Ok(());
                }
                told.outstanding = false;
                if let Some(error) = request.error_detail {
                    tracing::warn!(
                        kind = type_url,
                        reason = error.message,
                        "another control plane refuses configuration"
                    );
                }
                if told.generation == self.configuration.generation(&type_url) && !told.version.is_empty() {
                    return Ok(());
                }
            }
        }
        self.send(&type_url).await
    }

    /// Something has changed.
    async fn push(&mut self) -> Result<(), Status> {
        let stale = |(kind, told): (&String, &Told)| {
            let stale = !told.outstanding && told.generation != self.configuration.generation(kind);
            stale.then(|| kind.clone())
        };
        let stale: Vec<String> = self.told.iter().filter_map(stale).collect();
        for kind in stale {
            self.send(&kind).await?;
        }
        Ok(())
    }

    /// Tells all of a type, if that differs from what was told last.
    async fn send(&mut self, type_url: &str) -> Result<(), Status> {
        let (configuration, kind) = (self.configuration.clone(), type_url.to_owned());
        let answer = tokio::task::spawn_blocking(move || configuration.answer(&kind)).await;
        let answer: Answer = answer.map_err(|_| Status::new(Status::INTERNAL, "an internal error; see the log"))?;
        let Some(told) = self.told.get_mut(type_url) else {
            return Ok(());
        };
        told.generation = answer.generation;
        if told.version == answer.version {
            return Ok(());
        }
        self.nonces += 1;
        told.nonce = self.nonces.to_string();
        told.version.clone_from(&answer.version);
        told.outstanding = true;
        let head = DiscoveryResponse {
            version_info: answer.version,
            type_url: type_url.to_owned(),
            nonce: told.nonce.clone(),
            ..DiscoveryResponse::default()
        };
        // A message's fields may come in any order, and those of the resources are shared by all readers.
        let rope = Rope::from_pieces(vec![head.encode_to_vec().into(), answer.resources]);
        let sent = self.down.send(Down::Message(rope)).await;
        sent.map_err(|_| Status::new(Status::UNAVAILABLE, "the client went"))
    }
}
