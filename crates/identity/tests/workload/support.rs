//! A certificate authority that the test controls, and the identity of a workload that uses it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agent_core::environment::Environment;
use agent_core::exchange::MeshRoots;
use hyper_util::rt::{TokioExecutor, TokioIo};
use identity::{Certificates, Identity, Settings};
use prometheus::Registry;
use protos::istio::v1::auth::{IstioCertificateRequest, IstioCertificateResponse};
use protos::value::Kind;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PublicKeyData, SanType, SignatureAlgorithm,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

/// The name that all certificates have besides their SPIFFE ID.
pub(crate) const NAME: &str = "workload.test";

/// A root with its key.
pub(crate) struct Root {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

impl Root {
    pub(crate) fn new(name: &str) -> Root {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Root { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate and its key.
    pub(crate) fn certify(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (self.sign(&key, "spiffe://cluster.local/ns/a/sa/client"), key.serialize_pem())
    }

    fn sign(&self, key: &impl PublicKeyData, id: &str) -> String {
        let mut params = CertificateParams::new([NAME.to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::URI(id.try_into().unwrap()));
        params.not_after = std::time::SystemTime::now().checked_add(Duration::from_secs(60)).unwrap().into();
        params.signed_by(key, &self.issuer).unwrap().pem()
    }
}

struct Public(Vec<u8>);

impl PublicKeyData for Public {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

/// A request as the authority saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Seen {
    pub(crate) token: Option<String>,
    pub(crate) cluster: Option<String>,
    pub(crate) signer: String,
    pub(crate) lifetime: i64,
    pub(crate) id: String,
}

/// A certificate authority over plain text.
#[derive(Clone)]
pub(crate) struct Authority {
    pub(crate) address: SocketAddr,
    pub(crate) root: Arc<Root>,
    refusal: Arc<Mutex<Option<Code>>>,
    seen: watch::Sender<Vec<Seen>>,
}

impl Authority {
    pub(crate) async fn start() -> Authority {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = Authority {
            address: listener.local_addr().unwrap(),
            root: Arc::new(Root::new("one")),
            refusal: Arc::default(),
            seen: watch::Sender::new(Vec::new()),
        };
        let serving = authority.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let authority = serving.clone();
                let answer = hyper::service::service_fn(move |request| {
                    let authority = authority.clone();
                    async move {
                        let codec = ProstCodec::<IstioCertificateResponse, IstioCertificateRequest>::default();
                        Ok::<_, Infallible>(Grpc::new(codec).unary(authority, request).await)
                    }
                });
                let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(connection.serve_connection(TokioIo::new(socket), answer));
            }
        });
        authority
    }

    /// Answers further requests with this code, or with certificates.
    pub(crate) fn refuse(&self, code: Option<Code>) {
        *self.refusal.lock().unwrap() = code;
    }

    /// Waits until there were this many requests, and returns all.
    pub(crate) async fn seen(&self, count: usize) -> Vec<Seen> {
        let mut seen = self.seen.subscribe();
        soon(seen.wait_for(|seen| seen.len() >= count)).await.unwrap().clone()
    }

    fn answer(&self, request: Request<IstioCertificateRequest>) -> Result<Response<IstioCertificateResponse>, Status> {
        let header = |name| Some(request.metadata().get(name)?.to_str().unwrap().to_owned());
        let (token, cluster) = (header("authorization"), header("clusterid"));
        let message = request.into_inner();
        let (_, der) = x509_parser::pem::parse_x509_pem(message.csr.as_bytes()).unwrap();
        let (_, csr) = X509CertificationRequest::from_der(&der.contents).unwrap();
        let id = csr.requested_extensions().into_iter().flatten().find_map(|extension| match extension {
            ParsedExtension::SubjectAlternativeName(names) => match names.general_names[..] {
                [GeneralName::URI(id)] => Some(id.to_owned()),
                _ => None,
            },
            _ => None,
        });
        let id = id.unwrap();
        let signer = match &message.metadata.unwrap().fields["CertSigner"].kind {
            Some(Kind::StringValue(signer)) => signer.clone(),
            other => panic!("{other:?}"),
        };
        let seen = Seen { token, cluster, signer, lifetime: message.validity_duration, id: id.clone() };
        self.seen.send_modify(|all| all.push(seen));
        if let Some(code) = *self.refusal.lock().unwrap() {
            return Err(Status::new(code, "the test refuses"));
        }
        let key = Public(csr.certification_request_info.subject_pki.subject_public_key.data.to_vec());
        let cert_chain = vec![self.root.sign(&key, &id), self.root.pem.clone()];
        Ok(Response::new(IstioCertificateResponse { cert_chain }))
    }
}

impl UnaryService<IstioCertificateRequest> for Authority {
    type Response = IstioCertificateResponse;
    type Future = BoxFuture<Response<IstioCertificateResponse>, Status>;

    fn call(&mut self, request: Request<IstioCertificateRequest>) -> Self::Future {
        let answer = self.answer(request);
        Box::pin(async { answer })
    }
}

/// The identity of a workload.
pub(crate) struct Workload {
    pub(crate) identity: Identity,
    pub(crate) mesh: watch::Sender<MeshRoots>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) registry: Registry,
}

/// Settings in a folder, with a certificate authority over plain text and keys that are created quickly.
pub(crate) fn settings(folder: &Path, authority: SocketAddr, variables: &[(&str, &str)]) -> Settings {
    let fixed = [("ECC_SIGNATURE_ALGORITHM", "ECDSA"), ("FILE_DEBOUNCE_DURATION", "1ms"), ("POD_NAMESPACE", "shop")];
    let environment: Environment = fixed.iter().chain(variables).copied().collect();
    let mut settings = Settings::from_environment(&environment, &authority.to_string()).unwrap();
    settings.folder = folder.to_owned();
    settings.authority.roots = agent_core::upstream::Roots::PlainText;
    settings.authority.token = Some(folder.join("token"));
    settings
}

impl Workload {
    pub(crate) async fn start(settings: Settings) -> Workload {
        let (mesh, mesh_receiver) = watch::channel(MeshRoots::default());
        let (stop, stopped) = watch::channel(false);
        let registry = Registry::new();
        let identity = identity::start(settings, mesh_receiver, &registry, stopped).await.unwrap();
        Workload { identity, mesh, stop, registry }
    }

    /// Waits until the certificates fulfil a condition.
    pub(crate) async fn certificates(&self, condition: impl Fn(&Certificates) -> bool) -> Certificates {
        let mut certificates = self.identity.certificates();
        let waiting = certificates.wait_for(|now| now.as_ref().is_some_and(&condition));
        soon(waiting).await.unwrap().clone().unwrap()
    }

    /// The value of a metric without labels other than `request_type`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().find(|family| family.name() == name).unwrap();
        family.get_metric()[0].get_counter().get_value()
    }
}

pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.expect("timed out")
}
