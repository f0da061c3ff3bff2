//! The delta discovery stream: subscribes and acknowledges as Envoy does.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use protos::envoy::config::cluster::v3::Cluster;
use protos::envoy::config::core::v3::Node as Identity;
use protos::envoy::config::core::v3::config_source::ConfigSourceSpecifier;
use protos::envoy::config::listener::v3::Listener;
use protos::envoy::config::listener::v3::filter::ConfigType;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::HttpConnectionManager;
use protos::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource};
use protos::{Message as _, Struct, Value, value};
use test_harness::run::{Node, Result};
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use super::reading::TYPES;

const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";
/// The maximum size of a response, in bytes.
const LARGEST: usize = 256 << 20;
const CLUSTERS: usize = 0;
const ENDPOINTS: usize = 1;
const LISTENERS: usize = 2;
const ROUTES: usize = 3;

/// An event of the stream.
pub(super) enum Told<'a> {
    /// A response arrived.
    Response(&'a DeltaDiscoveryResponse),
    /// The proxy unsubscribed from these names; the number is the position of their type.
    Dropped(usize, &'a [String]),
}

/// Subscribes to everything that a proxy needs and passes events on, until the stream ends.
pub(super) async fn follow(address: SocketAddr, node: &Node, mut take: impl FnMut(Told<'_>)) -> Result<()> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(LARGEST);
    grpc.ready().await?;
    let (requests, outgoing) = mpsc::channel(64);
    let mut first = request(CLUSTERS);
    first.node = Some(identity(node));
    requests.send(first).await?;
    requests.send(request(LISTENERS)).await?;
    let codec = tonic_prost::ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
    let outgoing = tonic::Request::new(ReceiverStream::new(outgoing));
    let answers = grpc.streaming(outgoing, PathAndQuery::from_static(METHOD), codec).await?;
    let mut answers = answers.into_inner();
    let mut wants = Wants::default();
    while let Some(response) = answers.message().await? {
        take(Told::Response(&response));
        take(Told::Dropped(place(&response)?, &wants.unasked(&response)?));
        let kind = place(&response)?;
        let mut acknowledgement = request(kind);
        acknowledgement.response_nonce.clone_from(&response.nonce);
        requests.send(acknowledgement).await?;
        if let Some((next, more)) = wants.follow(kind, &response)? {
            take(Told::Dropped(next, &more.resource_names_unsubscribe));
            requests.send(more).await?;
        }
    }
    Ok(())
}

/// The position of its type.
fn place(response: &DeltaDiscoveryResponse) -> Result<usize> {
    let kind = TYPES.iter().position(|(_, url)| *url == response.type_url);
    Ok(kind.ok_or_else(|| format!("a response of type {}", response.type_url))?)
}

fn request(kind: usize) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest { type_url: TYPES[kind].1.to_owned(), ..DeltaDiscoveryRequest::default() }
}

/// The references of clusters and listeners, and the subscriptions.
#[derive(Default)]
struct Wants {
    referred: [BTreeMap<String, Vec<String>>; 4],
    asked: [BTreeSet<String>; 4],
}

impl Wants {
    /// Resources that arrived after the proxy had unsubscribed from them.
    fn unasked(&self, response: &DeltaDiscoveryResponse) -> Result<Vec<String>> {
        let kind = place(response)?;
        let asked = |name: &String| !matches!(kind, ENDPOINTS | ROUTES) || self.asked[kind].contains(name);
        let names = response.resources.iter().map(|resource| &resource.name);
        Ok(names.filter(|name| !asked(name)).cloned().collect())
    }

    /// Records the references of the resources. Returns the resulting subscription, if any.
    fn follow(
        &mut self,
        kind: usize,
        response: &DeltaDiscoveryResponse,
    ) -> Result<Option<(usize, DeltaDiscoveryRequest)>> {
        let next = match kind {
            CLUSTERS => ENDPOINTS,
            LISTENERS => ROUTES,
            _ => return Ok(None),
        };
        for name in &response.removed_resources {
            self.referred[kind].remove(name);
        }
        for resource in &response.resources {
            let names = match kind {
                CLUSTERS => endpoints_of(resource)?,
                _ => routes_of(resource)?,
            };
            self.referred[kind].insert(resource.name.clone(), names);
        }
        let wanted: BTreeSet<String> = self.referred[kind].values().flatten().cloned().collect();
        let asked = std::mem::replace(&mut self.asked[next], wanted);
        let wanted = &self.asked[next];
        let subscription = DeltaDiscoveryRequest {
            resource_names_subscribe: wanted.difference(&asked).cloned().collect(),
            resource_names_unsubscribe: asked.difference(wanted).cloned().collect(),
            ..request(next)
        };
        Ok((asked != *wanted).then_some((next, subscription)))
    }
}

fn endpoints_of(resource: &Resource) -> Result<Vec<String>> {
    let bytes = resource.resource.as_ref().map_or(&[][..], |any| &any.value);
    let cluster = Cluster::decode(bytes)?;
    Ok(cluster.eds_cluster_config.map(|_| cluster.name).into_iter().collect())
}

fn routes_of(resource: &Resource) -> Result<Vec<String>> {
    let bytes = resource.resource.as_ref().map_or(&[][..], |any| &any.value);
    let listener = Listener::decode(bytes)?;
    let chains = listener.filter_chains.iter().chain(&listener.default_filter_chain);
    let mut names = Vec::new();
    for filter in chains.flat_map(|chain| &chain.filters) {
        let Some(ConfigType::TypedConfig(any)) = &filter.config_type else {
            continue;
        };
        if !any.type_url.ends_with(".HttpConnectionManager") {
            continue;
        }
        let manager = HttpConnectionManager::decode(&*any.value)?;
        if let Some(RouteSpecifier::Rds(rds)) = manager.route_specifier
            && rds
                .config_source
                .and_then(|source| source.config_source_specifier)
                .is_none_or(|source| matches!(source, ConfigSourceSpecifier::Ads(_)))
        {
            names.push(rds.route_config_name);
        }
    }
    Ok(names)
}

/// The node message of a node.
pub(crate) fn identity(node: &Node) -> Identity {
    let metadata = match structure(&node.metadata).kind {
        Some(value::Kind::StructValue(metadata)) => Some(metadata),
        _ => None,
    };
    Identity { id: node.id.clone(), metadata, ..Identity::default() }
}

fn structure(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    let kind = match json {
        Json::Null => value::Kind::NullValue(0),
        Json::Bool(truth) => value::Kind::BoolValue(*truth),
        Json::Number(number) => value::Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Json::String(text) => value::Kind::StringValue(text.clone()),
        // The node metadata of these tests contains no lists.
        Json::Array(list) => value::Kind::StringValue(format!("{list:?}")),
        Json::Object(fields) => value::Kind::StructValue(Struct {
            fields: fields.iter().map(|(name, field)| (name.clone(), structure(field))).collect(),
        }),
    };
    Value { kind: Some(kind) }
}
