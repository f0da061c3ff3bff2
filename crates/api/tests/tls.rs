//! Authentication over TLS: client certificates, tokens, anonymous callers.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use api::server::{ServerOptions, Tls};
use api::{Api, Options, Server};
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use store::memory::Memory;
use support::{Reply, Request, access, exchange};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// An authority, and what it signs.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    /// Certificate and key of this name, in these groups.
    fn sign(&self, name: &str, groups: &[&str], usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

struct Client<'a> {
    server: &'a Server,
    roots: &'a str,
}

impl Client<'_> {
    /// A request by who has this certificate; an answer of status 0 if there is no talking.
    async fn get(&self, path: &str, certificate: Option<&(String, String)>, token: Option<&str>) -> Reply {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.roots.as_bytes()).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        let stream = TcpStream::connect(self.server.https().unwrap()).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let Ok(stream) = TlsConnector::from(Arc::new(config)).connect(name, stream).await else {
            return Reply::default();
        };
        let request = Request {
            method: "GET".into(),
            path: path.into(),
            headers: token.map(|token| ("Authorization".into(), format!("Bearer {token}"))).into_iter().collect(),
            body: Vec::new(),
        };
        exchange(stream, &request.bytes(), None).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_identified_by_client_certificates() {
    const SECRETS: &str = "/api/v1/secrets";
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    let (certificates, key) = ours.sign("server", &[], ExtendedKeyUsagePurpose::ServerAuth);
    let tls = Tls { certificates, key, client_roots: Some(ours.pem.clone()) };
    let options = Options { access: access(), ..Options::default() };
    let api = Api::new(Arc::new(Memory::default()), options);
    let listen = ServerOptions { https: Some((([127, 0, 0, 1], 0).into(), tls)), ..ServerOptions::default() };
    let server = Server::start(listen, api).await.unwrap();
    let client = Client { server: &server, roots: &ours.pem };
    let person = |authority: &Authority, name: &str, groups: &[&str]| {
        authority.sign(name, groups, ExtendedKeyUsagePurpose::ClientAuth)
    };
    let (master, nobody) = (person(&ours, "ada", &["system:masters"]), person(&ours, "bob", &["readers"]));
    assert_eq!(client.get(SECRETS, Some(&master), None).await.status, 200);
    let (code, _, message) = client.get(SECRETS, Some(&nobody), None).await.failure();
    assert_eq!(code, 403);
    assert!(message.contains("User \"bob\" cannot list resource \"secrets\""), "{message}");
    // A name of a certificate is not a name of a token.
    let named = person(&ours, "system:anonymous", &[]);
    assert_eq!(client.get(SECRETS, Some(&named), None).await.status, 403);
    // A token counts before a certificate.
    assert_eq!(client.get("/api/v1/namespaces", Some(&nobody), Some("reader-token")).await.status, 200);
    assert_eq!(client.get(SECRETS, Some(&master), Some("forged")).await.failure().0, 401);
    assert_eq!(client.get(SECRETS, None, Some("admin-token")).await.status, 200);
    // Nothing shown: nothing but what is public.
    assert_eq!(client.get(SECRETS, None, None).await.failure().0, 401);
    assert_eq!(client.get("/healthz", None, None).await.status, 200);
    // A certificate that somebody else signed, or that is for servers.
    let forged = person(&foreign, "ada", &["system:masters"]);
    let (code, _, message) = client.get(SECRETS, Some(&forged), None).await.failure();
    assert_eq!(code, 401);
    assert!(message.contains("none of the accepted authorities signed it"), "{message}");
    let server_like = ours.sign("ada", &["system:masters"], ExtendedKeyUsagePurpose::ServerAuth);
    let (code, _, message) = client.get(SECRETS, Some(&server_like), None).await.failure();
    assert_eq!(code, 401);
    assert!(message.contains("its extended key usage lacks clientAuth"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_replaced_while_the_server_runs() {
    let (first, next) = (Authority::new("first"), Authority::new("next"));
    let tls = |authority: &Authority| {
        let (certificates, key) = authority.sign("server", &[], ExtendedKeyUsagePurpose::ServerAuth);
        Tls { certificates, key, client_roots: None }
    };
    let api = Api::new(Arc::new(Memory::default()), Options { access: access(), ..Options::default() });
    let listen = ServerOptions { https: Some((([127, 0, 0, 1], 0).into(), tls(&first))), ..ServerOptions::default() };
    let server = Server::start(listen, api).await.unwrap();
    let get = async |authority: &Authority| {
        Client { server: &server, roots: &authority.pem }.get("/healthz", None, None).await.status
    };
    assert_eq!((get(&first).await, get(&next).await), (200, 0));
    let handle = server.tls().unwrap();
    assert!(handle.replace(&Tls { key: "none".into(), ..tls(&next) }).is_err());
    assert_eq!(get(&first).await, 200, "those in use stay");
    handle.replace(&tls(&next)).unwrap();
    assert_eq!((get(&first).await, get(&next).await), (0, 200));
}
