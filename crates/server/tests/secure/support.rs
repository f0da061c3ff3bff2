//! A server with a TLS port, and clients of it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use ca::caller::{BoundPod, Caller, CallerError, Method, TrustedNodeAccounts};
use ca::self_signed::{Settings, create};
use ca::serving::ServingCertificate;
use ca::trust::Source;
use ca::{Authority, KeyKind, Lifetimes, TrustBundle};
use http_body_util::{BodyExt, StreamBody};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use names::{Identity, TrustDomain};
use protos::Message as _;
use protos::envoy::config::core::v3::Node;
use protos::envoy::service::discovery::v3::DiscoveryRequest;
use protos::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use registry::inputs::MeshSettings;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use server::signing::{Issuer, Signing};
use server::{
    Authenticator, Authenticators, CertificateOptions, ConnectionLimits, Credentials, Options, Pace, SecretAccess,
    SecurePort, Security, Server, WorldHandle,
};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use world::World;
use xds::Limits;

pub(crate) const SOTW: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
pub(crate) const CREATE: &str = "/istio.v1.auth.IstioCertificateService/CreateCertificate";
pub(crate) const CDS: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// A name of the control plane.
pub(crate) const NAME: &str = "istiod.istio-system.svc";

/// Accepts tokens `NAMESPACE/ACCOUNT` and `NAMESPACE/ACCOUNT/POD`, the latter with the UID `uid-POD`.
struct Tokens;

#[async_trait]
impl Authenticator for Tokens {
    fn method(&self) -> Method {
        Method::KubernetesToken
    }

    async fn authenticate(&self, credentials: &Credentials) -> Result<Option<Caller>, CallerError> {
        let Some(token) = credentials.bearer() else { return Ok(None) };
        let parts: Vec<&str> = token.split('/').collect();
        let (namespace, account) = match parts[..] {
            [namespace, account] | [namespace, account, _] => (namespace, account),
            _ => return Err(CallerError::Rejected("it is not NAMESPACE/ACCOUNT".to_owned())),
        };
        let pod = parts.get(2).map(|pod| BoundPod { name: (*pod).to_owned(), uid: format!("uid-{pod}") });
        Ok(Some(Caller { method: self.method(), identity: identity(namespace, account), pod }))
    }
}

pub(crate) fn identity(namespace: &str, account: &str) -> Identity {
    Identity::parse(&format!("spiffe://cluster.local/ns/{namespace}/sa/{account}")).unwrap()
}

pub(crate) fn authority(domain: &str) -> Authority {
    create(&Settings { key: KeyKind::P256, ..Settings::new(domain) }, SystemTime::now()).unwrap()
}

/// The roots of `cluster.local`, and of these other trust domains.
pub(crate) fn trust(authority: &Authority, others: &[(&str, &Authority)]) -> TrustBundle {
    let mut bundle = TrustBundle::new(TrustDomain::default(), []);
    bundle.replace(&TrustDomain::default(), Source::Authority, authority.roots()).unwrap();
    for (domain, other) in others {
        bundle.replace(&TrustDomain::parse(domain).unwrap(), Source::MeshConfig, other.roots()).unwrap();
    }
    bundle
}

/// A client certificate and its key.
pub(crate) struct Certified {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

impl Clone for Certified {
    fn clone(&self) -> Certified {
        Certified { chain: self.chain.clone(), key: self.key.clone_key() }
    }
}

/// A certificate that an authority issues without the server.
pub(crate) fn certified(authority: &Authority, identity: &Identity, lifetime: i64) -> Certified {
    let key = rcgen::KeyPair::generate().unwrap();
    let csr = ca::Csr::from_pem(&request(&key, &[])).unwrap();
    let issued = authority
        .issue(&csr, std::slice::from_ref(identity), lifetime, &Lifetimes::default(), SystemTime::now())
        .unwrap();
    Certified { chain: issued.presented(), key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
}

/// A certificate signing request with these names, in PEM.
pub(crate) fn request(key: &rcgen::KeyPair, names: &[&str]) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.subject_alt_names = names.iter().map(|name| rcgen::SanType::URI((*name).try_into().unwrap())).collect();
    params.serialize_request(key).unwrap().pem().unwrap()
}

pub(crate) struct Plane {
    pub(crate) server: Server,
    pub(crate) world: WorldHandle,
    pub(crate) authority: Authority,
    pub(crate) signing: watch::Sender<Arc<Signing>>,
}

/// The settings that tests change.
pub(crate) struct Setup {
    pub(crate) security: Security,
    pub(crate) connections: ConnectionLimits,
    pub(crate) trusted: &'static str,
    pub(crate) lifetimes: Lifetimes,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            security: Security::default(),
            connections: ConnectionLimits::default(),
            trusted: "istio-system/ztunnel",
            lifetimes: Lifetimes::default(),
        }
    }
}

impl Plane {
    pub(crate) async fn start() -> Plane {
        Plane::start_with(Setup::default()).await
    }

    pub(crate) async fn start_with(setup: Setup) -> Plane {
        let authority = authority("cluster.local");
        let signed = Signing { issuer: Issuer::Own(authority.clone()), trust: Arc::new(trust(&authority, &[])) };
        let (signing, watched) = watch::channel(Arc::new(signed));
        let serving = ServingCertificate::issue(&authority, &[NAME.to_owned()], SystemTime::now()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(serving.key.expose_pem().as_bytes()).unwrap();
        let key = aws_lc_rs::sign::any_supported_type(&key).unwrap();
        let certified = Arc::new(rustls::sign::CertifiedKey::new(serving.chain, key));
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let certificates = CertificateOptions {
            lifetimes: setup.lifetimes,
            trusted_accounts: TrustedNodeAccounts::parse(setup.trusted).0,
            cluster: "Kubernetes".into(),
        };
        let port = SecurePort {
            address: any,
            certificate: watch::channel(Some(certified)).1,
            certificates: Some(certificates),
        };
        let security = Security {
            authenticators: Authenticators::new([Arc::new(Tokens) as Arc<dyn Authenticator>]),
            signing: watched,
            port: Some(port),
            ..setup.security
        };
        let options = Options {
            grpc: any,
            http: any,
            monitoring: any,
            keepalive_interval: Duration::from_secs(30),
            keepalive_timeout: Duration::from_secs(10),
            max_connection_age: None,
            vhds: true,
            max_request_bytes: 64 << 10,
            secret_access: SecretAccess::Authenticated,
            registrar: None,
            socket: None,
            connections: setup.connections,
            limits: Limits::default(),
            security,
            version: "test".into(),
            instance: "test".into(),
        };
        let world =
            WorldHandle::start(World::new(MeshSettings::default(), 1), Limits::default(), Pace::UNLIMITED).unwrap();
        world.pods().enable();
        let server = Server::start_with(options, world.clone(), Some(world.configuration())).await.unwrap();
        server.set_ready();
        Plane { server, world, authority, signing }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.addresses().secure.unwrap()
    }

    /// Opens a TLS connection, without a certificate or with one.
    pub(crate) async fn connect(&self, certified: Option<Certified>) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.roots()[0].der().clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match certified {
            None => builder.with_no_client_auth(),
            Some(Certified { chain, key }) => builder.with_client_auth_cert(chain, key).unwrap(),
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        let socket = TcpStream::connect(self.address()).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(NAME).unwrap(), socket).await
    }

    /// Begins HTTP/2. The error is that of the handshake; with TLS 1.3, the client learns late that its certificate is refused.
    pub(crate) async fn client(&self, certified: Option<Certified>) -> Result<Connection, String> {
        let socket = self.connect(certified).await.map_err(|error| error.to_string())?;
        let (send, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        let connection = tokio::spawn(async move { connection.await.map_err(|error| format!("{error:?}")) });
        Ok(Connection { send, connection })
    }

    /// Requests a certificate with a token.
    pub(crate) async fn create(&self, token: &str, request: &IstioCertificateRequest) -> Answer {
        let client = self.client(None).await.unwrap();
        client.create(Some(token), request).await
    }

    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (_, page) = self.get(self.server.addresses().monitoring, "/metrics").await;
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        line.unwrap_or_else(|| panic!("{name} is not in:\n{page}"))
    }

    pub(crate) async fn get(&self, address: SocketAddr, path: &str) -> (u16, String) {
        let socket = TcpStream::connect(address).await.unwrap();
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await.unwrap();
        tokio::spawn(connection);
        let request =
            Request::get(path).header("host", "localhost").body(http_body_util::Empty::<Bytes>::new()).unwrap();
        let response = send.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }
}

type Body = StreamBody<Frames>;
type Frames = futures::stream::BoxStream<'static, Result<http_body::Frame<Bytes>, Infallible>>;

/// A connection.
pub(crate) struct Connection {
    send: SendRequest<Body>,
    pub(crate) connection: tokio::task::JoinHandle<Result<(), String>>,
}

/// The end of a call: its status and message, and the messages before it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u32,
    pub(crate) text: String,
    pub(crate) messages: Vec<Bytes>,
}

impl Answer {
    fn of(headers: &http::HeaderMap, messages: Vec<Bytes>) -> Option<Answer> {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let code = text("grpc-status")?.parse().unwrap();
        Some(Answer { code, text: text("grpc-message").unwrap_or_default(), messages })
    }

    /// The certificates of the response.
    pub(crate) fn chain(&self) -> Vec<String> {
        assert_eq!(self.code, 0, "{self:?}");
        IstioCertificateResponse::decode(&self.messages[0][..]).unwrap().cert_chain
    }
}

/// A stream that stays open.
pub(crate) struct Stream {
    response: http::Response<hyper::body::Incoming>,
    received: BytesMut,
    pub(crate) requests: mpsc::Sender<Bytes>,
}

impl Stream {
    /// The next message, or the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Bytes, Answer> {
        if let Some(answer) = Answer::of(self.response.headers(), Vec::new()) {
            return Err(answer);
        }
        loop {
            if let Some(length) = self.received.get(1..5) {
                let length = 5 + u32::from_be_bytes(length.try_into().unwrap()) as usize;
                if self.received.len() >= length {
                    return Ok(self.received.split_to(length).freeze().slice(5..));
                }
            }
            let frame = match self.response.frame().await {
                Some(Ok(frame)) => frame,
                broken => return Err(Answer { code: 14, text: format!("{broken:?}"), messages: Vec::new() }),
            };
            match frame.into_data() {
                Ok(data) => self.received.extend_from_slice(&data),
                Err(frame) => return Err(Answer::of(frame.trailers_ref().unwrap(), Vec::new()).unwrap()),
            }
        }
    }

    /// Waits for the end of the stream.
    pub(crate) async fn end(&mut self) -> Answer {
        loop {
            if let Err(answer) = self.next().await {
                return answer;
            }
        }
    }
}

impl Connection {
    /// Opens a call with these headers and this first message.
    pub(crate) async fn open(&self, path: &str, headers: &[(&str, &str)], first: Bytes) -> Result<Stream, String> {
        let (requests, body) = mpsc::channel::<Bytes>(4);
        requests.send(first).await.unwrap();
        let frames = futures::stream::unfold(body, |mut body| async move {
            body.recv().await.map(|bytes| (Ok(http_body::Frame::data(bytes)), body))
        });
        let mut request = Request::post(format!("https://{NAME}{path}")).header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body: Frames = Box::pin(frames);
        let request = request.body(StreamBody::new(body)).unwrap();
        let response = self.send.clone().send_request(request).await.map_err(|error| format!("{error:?}"))?;
        Ok(Stream { response, received: BytesMut::new(), requests })
    }

    /// Calls a method with one message.
    pub(crate) async fn call(&self, path: &str, headers: &[(&str, &str)], message: Bytes) -> Answer {
        let mut stream = self.open(path, headers, message).await.unwrap();
        // The call ends with its only message.
        stream.requests = mpsc::channel(1).0;
        let mut messages = Vec::new();
        loop {
            match stream.next().await {
                Ok(message) => messages.push(message),
                Err(answer) => return Answer { messages, ..answer },
            }
        }
    }

    pub(crate) async fn create(&self, token: Option<&str>, request: &IstioCertificateRequest) -> Answer {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        self.call(CREATE, &headers, framed(&request.encode_to_vec())).await
    }

    /// Subscribes to clusters as this node.
    pub(crate) async fn subscribe(&self, token: Option<&str>, node: &Node) -> Result<Stream, String> {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> = bearer.iter().map(|bearer| ("authorization", bearer.as_str())).collect();
        let first = DiscoveryRequest { node: Some(node.clone()), type_url: CDS.into(), ..Default::default() };
        self.open(SOTW, &headers, framed(&first.encode_to_vec())).await
    }
}

pub(crate) fn framed(message: &[u8]) -> Bytes {
    let mut out = BytesMut::from(&[0][..]);
    out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    out.extend_from_slice(message);
    out.freeze()
}

/// A sidecar of a namespace, with this service account in its metadata if it is not empty.
pub(crate) fn node(namespace: &str, account: &str) -> Node {
    let id = format!("sidecar~10.0.0.1~a.{namespace}~{namespace}.svc.cluster.local");
    let text = |text: &str| protos::Value { kind: Some(protos::value::Kind::StringValue(text.to_owned())) };
    let mut fields = BTreeMap::from([("NAMESPACE".to_owned(), text(namespace))]);
    if !account.is_empty() {
        fields.insert("SERVICE_ACCOUNT".to_owned(), text(account));
    }
    Node { id, metadata: Some(protos::Struct { fields }), ..Default::default() }
}

/// The URI names of a certificate in PEM, and its lifetime from now.
pub(crate) fn facts(pem: &str) -> (Vec<String>, Duration) {
    use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let uris = names.value.general_names.iter().map(|name| match name {
        GeneralName::URI(uri) => (*uri).to_owned(),
        other => format!("{other:?}"),
    });
    let end = Duration::from_secs(certificate.validity().not_after.timestamp().cast_unsigned());
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    (uris.collect(), end.saturating_sub(now))
}
