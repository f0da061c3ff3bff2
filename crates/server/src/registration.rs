//! Streams of proxies outside of Kubernetes, which register as WorkloadEntries.
//!
//! A stream that starts waits until its entry is written, or is refused. Another task registers workloads
//! ([`Event`]); the world's thread has no part in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use controllers::registration::{Claim, Of, Proof, Refusal, Stream};
use model::proxy::Proxy;
use protos::envoy::config::core::v3::Node;
use protos::value::Kind;
use tokio::sync::{mpsc, oneshot};

use crate::grpc::Status;
use crate::peer::Peer;

/// The type of requests with which a proxy reports the health of its workload. They have no response.
pub(crate) const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";

/// The number of queued events; streams wait when the queue is full.
const EVENTS: usize = 1024;

/// An event of a stream.
#[derive(Debug)]
pub enum Event {
    /// A proxy connects, and waits for the answer.
    Connect(Stream, Box<Claim>, oneshot::Sender<Result<(), Refusal>>),
    /// A proxy reports an error of its workload, or that it is healthy.
    Health(Stream, Option<String>),
    /// A stream has ended.
    Disconnect(Stream),
}

/// Passes the events of streams on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Registrar {
    events: mpsc::Sender<Event>,
    last: Arc<AtomicU64>,
    /// Whether proxies with `AUTO_REGISTER_GROUP` are registered.
    registers: bool,
    /// Whether proxies with `WORKLOAD_ENTRY` are.
    health: bool,
}

/// The registration of a stream.
pub(crate) struct Registered(Registrar, Stream);

impl Registrar {
    /// Creates a registrar, and the receiver of its events.
    pub fn new(registers: bool, health: bool) -> (Registrar, mpsc::Receiver<Event>) {
        let (events, receiver) = mpsc::channel(EVENTS);
        (Registrar { events, last: Arc::default(), registers, health }, receiver)
    }

    /// Registers a proxy, if its metadata asks for that.
    pub(crate) async fn connect(&self, node: &Node, proxy: &Proxy, peer: &Peer) -> Result<Option<Registered>, Status> {
        let Some(claim) = self.claim(node, proxy, peer) else {
            return Ok(None);
        };
        let stream = self.last.fetch_add(1, Ordering::Relaxed);
        let (reply, answer) = oneshot::channel();
        let ending = || Status::new(Status::UNAVAILABLE, "the control plane is shutting down");
        let event = Event::Connect(stream, Box::new(claim), reply);
        self.events.send(event).await.map_err(|_| ending())?;
        match answer.await {
            Ok(Ok(())) => Ok(Some(Registered(self.clone(), stream))),
            Ok(Err(refusal)) => {
                tracing::warn!(node = %proxy.id, reason = %refusal, "refused to register a workload");
                Err(status(&refusal))
            }
            Err(_) => Err(ending()),
        }
    }

    fn claim(&self, node: &Node, proxy: &Proxy, peer: &Peer) -> Option<Claim> {
        let text = |key: &str| -> Option<Arc<str>> {
            let value = node.metadata.as_ref()?.fields.get(key)?.kind.as_ref()?;
            match value {
                Kind::StringValue(text) if !text.is_empty() => Some(text.as_str().into()),
                _ => None,
            }
        };
        let group = text("AUTO_REGISTER_GROUP").filter(|_| self.registers).map(Of::Group);
        let of = group.or_else(|| text("WORKLOAD_ENTRY").filter(|_| self.health).map(Of::Entry))?;
        let locality = &proxy.locality;
        let parts = [&*locality.region, &*locality.zone, &*locality.sub_zone];
        let given = parts.iter().rposition(|part| !part.is_empty()).map_or(0, |last| last + 1);
        Some(Claim {
            id: proxy.id.clone(),
            namespace: proxy.namespace.clone(),
            of,
            address: *proxy.addresses.first()?,
            network: proxy.network.clone(),
            labels: proxy.labels.clone(),
            locality: parts[..given].join("/"),
            probed: is_probed(node),
            proof: match peer {
                Peer::Authenticated(identity) => {
                    Proof::Identity(identity.namespace.clone(), identity.service_account.clone())
                }
                Peer::Local { namespace } => Proof::Local(namespace.clone()),
                Peer::Loopback | Peer::Anonymous => Proof::Nothing,
            },
        })
    }
}

/// Whether the proxy's configuration has a probe of its workload.
fn is_probed(node: &Node) -> bool {
    let settings = node.metadata.as_ref().and_then(|metadata| metadata.fields.get("PROXY_CONFIG")?.kind.as_ref());
    matches!(settings, Some(Kind::StructValue(fields)) if fields.fields.contains_key("readinessProbe"))
}

/// istiod's codes.
fn status(refusal: &Refusal) -> Status {
    let code = match refusal {
        Refusal::NoGroup { .. } => Status::FAILED_PRECONDITION,
        Refusal::Unavailable { .. } => Status::UNAVAILABLE,
        Refusal::NoEntry(_) | Refusal::Identity { .. } | Refusal::Write { .. } => Status::UNKNOWN,
    };
    Status::new(code, refusal.to_string())
}

impl Registered {
    /// Passes a report of the workload's health on.
    pub(crate) async fn report(&self, error: Option<String>) {
        // An error means that the control plane ends.
        let _ = self.0.events.send(Event::Health(self.1, error)).await;
    }

    /// The stream has ended.
    pub(crate) async fn end(self) {
        let _ = self.0.events.send(Event::Disconnect(self.1)).await;
    }
}

#[cfg(test)]
mod tests {
    use protos::{Struct, Value};

    use super::*;

    fn node(fields: &[(&str, &str)]) -> Node {
        let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
        let mut fields: std::collections::HashMap<String, Value> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), text(value))).collect();
        if fields.remove("probe").is_some() {
            let probe = Struct { fields: [("readinessProbe".to_owned(), text(""))].into() };
            fields.insert("PROXY_CONFIG".into(), Value { kind: Some(Kind::StructValue(probe)) });
        }
        Node {
            id: "sidecar~10.0.0.1~vm-1.shop~shop.svc.cluster.local".into(),
            metadata: Some(Struct { fields: fields.into_iter().collect() }),
            locality: Some(protos::envoy::config::core::v3::Locality {
                region: "r".into(),
                zone: "z".into(),
                ..Default::default()
            }),
            ..Node::default()
        }
    }

    #[test]
    fn a_claim_has_what_the_node_says_and_the_peer_proves() {
        let claim = |fields: &[(&str, &str)], registers, peer: &Peer| {
            let node = node(fields);
            let proxy = envoy::parse_node(&node).expect("a sidecar");
            Registrar::new(registers, true).0.claim(&node, &proxy, peer)
        };
        let both = [("AUTO_REGISTER_GROUP", "vm"), ("WORKLOAD_ENTRY", "we"), ("NETWORK", "n"), ("probe", "")];
        let group = claim(&both, true, &Peer::Anonymous).expect("it registers");
        assert_eq!((&group.of, &*group.entry()), (&Of::Group("vm".into()), "vm-10.0.0.1-n"));
        assert_eq!((&*group.locality, group.probed, &group.proof), ("r/z", true, &Proof::Nothing));
        let entry = claim(&both, false, &Peer::Local { namespace: None }).expect("it has an entry");
        assert_eq!((entry.of, entry.proof), (Of::Entry("we".into()), Proof::Local(None)));
        assert_eq!(claim(&[("AUTO_REGISTER_GROUP", "")], true, &Peer::Anonymous), None);
    }

    #[tokio::test]
    async fn a_refused_stream_gets_istiods_code() {
        let (registrar, mut events) = Registrar::new(true, true);
        let node = node(&[("AUTO_REGISTER_GROUP", "vm")]);
        let proxy = envoy::parse_node(&node).expect("a sidecar");
        let refused = async {
            let Some(Event::Connect(_, claim, reply)) = events.recv().await else { panic!("no event") };
            let _ = reply.send(Err(Refusal::NoGroup { id: claim.id.clone(), group: "shop/vm".into() }));
        };
        let (answer, ()) = tokio::join!(registrar.connect(&node, &proxy, &Peer::Anonymous), refused);
        let Err(status) = answer else { panic!("it was registered") };
        assert_eq!(status.code, Status::FAILED_PRECONDITION);
        assert!(status.message.contains("WorkloadGroup shop/vm"), "{}", status.message);
    }
}
