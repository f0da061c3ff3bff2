//! A client of the TLS port: requests certificates and opens discovery streams with a token or a certificate.

use std::net::SocketAddr;

use protos::envoy::config::core::v3::Node;
use protos::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use protos::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use protos::{Struct, Value, value};
use test_harness::run::Result;
use tokio::sync::mpsc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

const CREATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";
const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";

/// A private key, and a certificate signing request for it.
pub struct Key {
    pair: rcgen::KeyPair,
}

/// The credentials of a call besides the certificate.
#[derive(Clone, Copy, Default)]
pub struct Proof<'a> {
    /// The bearer token.
    pub token: Option<&'a str>,
    /// The ID of the cluster that issued the token.
    pub cluster: Option<&'a str>,
}

impl<'a> Proof<'a> {
    /// A token of the home cluster.
    pub fn token(token: &'a str) -> Proof<'a> {
        Proof { token: Some(token), cluster: None }
    }

    fn on<T>(self, message: T) -> Result<Request<T>> {
        let mut request = Request::new(message);
        if let Some(token) = self.token {
            request.metadata_mut().insert("authorization", MetadataValue::try_from(format!("Bearer {token}"))?);
        }
        if let Some(cluster) = self.cluster {
            request.metadata_mut().insert("clusterid", MetadataValue::try_from(cluster)?);
        }
        Ok(request)
    }
}

impl Key {
    /// Generates a key.
    pub fn new() -> Result<Key> {
        Ok(Key { pair: rcgen::KeyPair::generate()? })
    }

    /// The key in PEM.
    pub fn pem(&self) -> String {
        self.pair.serialize_pem()
    }

    /// A request with these URI names.
    pub fn request(&self, names: &[&str]) -> Result<String> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for name in names {
            params.subject_alt_names.push(rcgen::SanType::URI((*name).try_into()?));
        }
        Ok(params.serialize_request(&self.pair)?.pem()?)
    }
}

/// A connection to the TLS port.
#[derive(Clone, Debug)]
pub struct Client(Channel);

/// A stream that stays open.
pub struct Stream {
    responses: Streaming<DiscoveryResponse>,
    requests: mpsc::Sender<DiscoveryRequest>,
}

impl Client {
    /// Connects, with a certificate chain and key in PEM if there are any, and verifies the server by this root and name.
    pub async fn connect(
        address: SocketAddr,
        (root, name): (&str, &str),
        certified: Option<(&str, &str)>,
    ) -> Result<Client> {
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(root)).domain_name(name);
        if let Some((chain, key)) = certified {
            tls = tls.identity(Identity::from_pem(chain, key));
        }
        Ok(Client(Endpoint::from_shared(format!("https://{address}"))?.tls_config(tls)?.connect().await?))
    }

    /// Requests a certificate; `metadata` are the fields of the request's metadata.
    pub async fn create(
        &self,
        proof: Proof<'_>,
        csr: &str,
        metadata: &[(&str, &str)],
    ) -> Result<std::result::Result<Vec<String>, Status>> {
        self.create_for(proof, csr, metadata, 0).await
    }

    /// Requests a certificate with a lifetime in seconds.
    pub async fn create_for(
        &self,
        proof: Proof<'_>,
        csr: &str,
        metadata: &[(&str, &str)],
        lifetime: i64,
    ) -> Result<std::result::Result<Vec<String>, Status>> {
        let fields = metadata.iter().map(|(name, text)| ((*name).to_owned(), text_value(text))).collect();
        let message = IstioCertificateRequest {
            csr: csr.to_owned(),
            metadata: Some(Struct { fields }),
            validity_duration: lifetime,
        };
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await?;
        let codec = ProstCodec::<IstioCertificateRequest, IstioCertificateResponse>::default();
        let answer = grpc.unary(proof.on(message)?, PathAndQuery::from_static(CREATE), codec).await;
        Ok(answer.map(|response| response.into_inner().cert_chain))
    }

    /// Subscribes to clusters as a sidecar of this namespace and service account.
    pub async fn subscribe(
        &self,
        proof: Proof<'_>,
        (namespace, account): (&str, &str),
    ) -> Result<std::result::Result<Stream, Status>> {
        self.subscribe_as(proof, ("10.0.0.1", namespace), &[("SERVICE_ACCOUNT", account)]).await
    }

    /// Subscribes to clusters as a sidecar with this address, namespace, and metadata. The entry `probe` is the probe of its
    /// workload.
    pub async fn subscribe_as(
        &self,
        proof: Proof<'_>,
        (address, namespace): (&str, &str),
        metadata: &[(&str, &str)],
    ) -> Result<std::result::Result<Stream, Status>> {
        let id = format!("sidecar~{address}~a.{namespace}~{namespace}.svc.cluster.local");
        let mut fields = Struct::default().fields;
        fields.insert("NAMESPACE".to_owned(), text_value(namespace));
        for (name, text) in metadata {
            let (name, value) = match *name {
                "probe" => {
                    let probe = [("readinessProbe".to_owned(), text_value(text))];
                    let settings = Struct { fields: probe.into_iter().collect() };
                    ("PROXY_CONFIG", Value { kind: Some(value::Kind::StructValue(settings)) })
                }
                name => (name, text_value(text)),
            };
            fields.insert(name.to_owned(), value);
        }
        let node = Node { id, metadata: Some(Struct { fields }), ..Node::default() };
        let first = DiscoveryRequest { node: Some(node), type_url: CDS.to_owned(), ..DiscoveryRequest::default() };
        self.open(proof, first).await
    }

    /// Requests a debug page over xDS.
    pub async fn debug(&self, proof: Proof<'_>, page: &str) -> Result<std::result::Result<String, Status>> {
        let first = DiscoveryRequest {
            type_url: "istio.io/debug".to_owned(),
            resource_names: vec![page.to_owned()],
            ..DiscoveryRequest::default()
        };
        let mut stream = match self.open(proof, first).await? {
            Ok(stream) => stream,
            Err(status) => return Ok(Err(status)),
        };
        let text = |response: DiscoveryResponse| {
            let page = response.resources.into_iter().next().map(|page| page.value).unwrap_or_default();
            String::from_utf8_lossy(&page).into_owned()
        };
        Ok(stream.next().await.map(text))
    }

    async fn open(&self, proof: Proof<'_>, first: DiscoveryRequest) -> Result<std::result::Result<Stream, Status>> {
        let mut grpc = tonic::client::Grpc::new(self.0.clone());
        grpc.ready().await?;
        let (requests, outgoing) = mpsc::channel(4);
        requests.send(first).await?;
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let request = proof.on(ReceiverStream::new(outgoing))?;
        let opened = grpc.streaming(request, PathAndQuery::from_static(SOTW), codec).await;
        Ok(opened.map(|responses| Stream { responses: responses.into_inner(), requests }))
    }
}

impl Stream {
    /// Reports that the workload is healthy, or has this error.
    pub async fn report(&self, error: Option<&str>) -> Result<()> {
        let error = error.map(|text| protos::google::rpc::Status { message: text.to_owned(), ..Default::default() });
        let request =
            DiscoveryRequest { type_url: HEALTH.to_owned(), error_detail: error, ..DiscoveryRequest::default() };
        Ok(self.requests.send(request).await?)
    }

    /// The next response.
    pub async fn next(&mut self) -> std::result::Result<DiscoveryResponse, Status> {
        match self.responses.message().await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(Status::new(Code::Ok, "the stream ended")),
            Err(status) => Err(status),
        }
    }
}

/// The code of a stream's first response.
pub async fn code(opened: std::result::Result<Stream, Status>) -> Code {
    match opened {
        Err(status) => status.code(),
        Ok(mut stream) => stream.next().await.err().map_or(Code::Ok, |status| status.code()),
    }
}

fn text_value(text: &str) -> Value {
    Value { kind: Some(value::Kind::StringValue(text.to_owned())) }
}
