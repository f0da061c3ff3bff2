//! The DNS part of an agent: it subscribes to the name table and acknowledges each version.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use protos::Message as _;
use protos::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use protos::istio::networking::nds::v1::NameTable;
use test_harness::run::{Node, Protocol, Result};
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};

use crate::observer::stream::identity;

const TYPE: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
const SERVICE: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService";
/// The maximum time until a table arrives on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The addresses of each name.
pub type Table = BTreeMap<String, Vec<String>>;

/// A connected agent.
#[derive(Debug)]
pub struct Agent {
    stream: Stream,
    /// The number of responses so far.
    pub answers: usize,
}

#[derive(Debug)]
enum Stream {
    Sotw(mpsc::Sender<DiscoveryRequest>, tonic::Streaming<DiscoveryResponse>),
    Delta(mpsc::Sender<DeltaDiscoveryRequest>, tonic::Streaming<DeltaDiscoveryResponse>),
}

impl Agent {
    /// Connects as the agent of a node and requests the name table.
    pub async fn start(address: SocketAddr, node: &Node, protocol: Protocol) -> Result<Agent> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let stream = match protocol {
            Protocol::Sotw => {
                let first = DiscoveryRequest {
                    node: Some(identity(node)),
                    type_url: TYPE.to_owned(),
                    ..DiscoveryRequest::default()
                };
                let (requests, answers) = open(channel, "StreamAggregatedResources", first).await?;
                Stream::Sotw(requests, answers)
            }
            Protocol::Delta => {
                let first = DeltaDiscoveryRequest {
                    node: Some(identity(node)),
                    type_url: TYPE.to_owned(),
                    ..DeltaDiscoveryRequest::default()
                };
                let (requests, answers) = open(channel, "DeltaAggregatedResources", first).await?;
                Stream::Delta(requests, answers)
            }
        };
        Ok(Agent { stream, answers: 0 })
    }

    /// The next table that arrives.
    pub async fn next(&mut self) -> Result<Table> {
        let body = tokio::time::timeout(PATIENCE, self.stream.next()).await.map_err(|_| "no name table came")??;
        self.answers += 1;
        let table = NameTable::decode(&*body)?.table.into_iter();
        Ok(table.map(|(host, info)| (host, info.ips)).collect())
    }
}

impl Stream {
    /// The body of the only resource in the next response, which is acknowledged.
    async fn next(&mut self) -> Result<Vec<u8>> {
        let (kind, bodies): (String, Vec<Vec<u8>>) = match self {
            Stream::Sotw(requests, answers) => {
                let answer = answers.message().await?.ok_or("the stream ended")?;
                let acknowledgement = DiscoveryRequest {
                    type_url: TYPE.to_owned(),
                    version_info: answer.version_info,
                    response_nonce: answer.nonce,
                    ..DiscoveryRequest::default()
                };
                requests.send(acknowledgement).await?;
                let bodies = answer.resources.into_iter().map(|any| any.value.to_vec());
                (answer.type_url, bodies.collect())
            }
            Stream::Delta(requests, answers) => {
                let answer = answers.message().await?.ok_or("the stream ended")?;
                let acknowledgement = DeltaDiscoveryRequest {
                    type_url: TYPE.to_owned(),
                    response_nonce: answer.nonce,
                    ..DeltaDiscoveryRequest::default()
                };
                requests.send(acknowledgement).await?;
                let bodies = answer.resources.into_iter().filter_map(|resource| resource.resource);
                (answer.type_url, bodies.map(|any| any.value.to_vec()).collect())
            }
        };
        match <[Vec<u8>; 1]>::try_from(bodies) {
            Ok([body]) if kind == TYPE => Ok(body),
            other => Err(format!("an answer of type {kind} with {:?}", other.map(|_| "one resource")).into()),
        }
    }
}

/// Opens a discovery stream with its first request.
async fn open<Q, A>(channel: Channel, method: &str, first: Q) -> Result<(mpsc::Sender<Q>, tonic::Streaming<A>)>
where
    Q: protos::Message + Send + Sync + 'static,
    A: protos::Message + Default + Send + Sync + 'static,
{
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await?;
    let (requests, outgoing) = mpsc::channel(8);
    requests.send(first).await.map_err(|_| "the stream ended")?;
    let path = PathAndQuery::try_from(format!("{SERVICE}/{method}"))?;
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let outgoing = tonic::Request::new(ReceiverStream::new(outgoing));
    let answers = grpc.streaming(outgoing, path, codec).await?;
    Ok((requests, answers.into_inner()))
}
