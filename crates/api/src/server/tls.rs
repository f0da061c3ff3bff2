//! Certificates of the server and its clients.

use std::fmt;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// TLS material.
#[derive(Clone, Default)]
pub struct Tls {
    /// The server's certificate chain in PEM.
    pub certificates: String,
    /// The private key in PEM.
    pub key: String,
    /// The CA of client certificates in PEM; none disables client certificates.
    pub client_roots: Option<String>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("client_roots", &self.client_roots.is_some()).finish_non_exhaustive()
    }
}

/// The error for invalid TLS material.
#[derive(Debug, thiserror::Error)]
#[error("invalid {what} of the API server: {why}")]
pub struct TlsError {
    what: &'static str,
    why: String,
}

fn error(what: &'static str) -> impl Fn(&dyn fmt::Display) -> TlsError {
    move |why| TlsError { what, why: why.to_string() }
}

impl Tls {
    /// The TLS configuration of the server.
    pub(crate) fn config(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(&self.certificates, "certificate")?;
        let wrong_key = error("key");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| wrong_key(&e))?;
        let wrong = error("certificate");
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e))?;
        let builder = match &self.client_roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let wrong = error("certificate authority of clients");
                let mut store = RootCertStore::empty();
                for root in certificates(roots, "certificate authority of clients")? {
                    store.add(root).map_err(|e| wrong(&e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider);
                builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().map_err(|e| wrong(&e))?)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| wrong(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

fn certificates(pem: &str, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = error(what);
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let all = all.map_err(|e| wrong(&e))?;
    match all.is_empty() {
        true => Err(wrong(&"the file contains none")),
        false => Ok(all),
    }
}

/// Common name and organizations of the verified client certificate, if there is one.
pub(super) fn subject(connection: &ServerConnection) -> Option<(String, Vec<String>)> {
    let certificate = connection.peer_certificates()?.first()?;
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    Some((name, groups.collect()))
}
