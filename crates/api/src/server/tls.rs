//! Certificates of the server and its clients.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::access::Peer;

/// TLS material.
#[derive(Clone, PartialEq, Eq, Default)]
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

/// The configuration of new connections.
#[derive(Clone)]
pub(crate) struct Config {
    pub(super) server: Arc<ServerConfig>,
    /// Verifies client certificates.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

/// The TLS configuration of a running server. New connections use the newest one. Cheap to clone.
#[derive(Clone)]
pub struct TlsHandle(Arc<RwLock<Config>>);

impl TlsHandle {
    pub(crate) fn new(tls: &Tls) -> Result<TlsHandle, TlsError> {
        Ok(TlsHandle(Arc::new(RwLock::new(tls.config()?))))
    }

    pub(super) fn config(&self) -> Config {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the certificates for new connections.
    ///
    /// # Errors
    /// They are invalid; those in use stay.
    pub fn replace(&self, tls: &Tls) -> Result<(), TlsError> {
        let config = tls.config()?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }
}

impl fmt::Debug for TlsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsHandle").finish_non_exhaustive()
    }
}

impl Tls {
    /// The TLS configuration of the server.
    pub(crate) fn config(&self) -> Result<Config, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = certificates(&self.certificates, "certificate")?;
        let wrong_key = error("key");
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| wrong_key(&e))?;
        let wrong = error("certificate");
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| wrong(&e))?;
        let clients = match &self.client_roots {
            None => None,
            Some(roots) => {
                let wrong = error("certificate authority of clients");
                let mut store = RootCertStore::empty();
                for root in certificates(roots, "certificate authority of clients")? {
                    store.add(root).map_err(|e| wrong(&e))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider);
                let verifier: Arc<dyn ClientCertVerifier> =
                    verifier.allow_unauthenticated().build().map_err(|e| wrong(&e))?;
                Some(verifier)
            }
        };
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(Arc::new(Deferred(verifier.clone()))),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|e| wrong(&e))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Config { server: Arc::new(config), clients })
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

/// Verifies only that a client has the key of its certificate. [`Config::client`] verifies the certificate after the
/// handshake, so that the client of an invalid one gets a response with the reason.
#[derive(Debug)]
struct Deferred(Arc<dyn ClientCertVerifier>);

impl ClientCertVerifier for Deferred {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.0.root_hint_subjects()
    }

    fn client_auth_mandatory(&self) -> bool {
        self.0.client_auth_mandatory()
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

impl Config {
    /// The client of a connection: the name and groups of its certificate, or the reason why it is not accepted.
    pub(super) fn client(&self, connection: &ServerConnection) -> Peer {
        let (Some(chain), Some(verifier)) = (connection.peer_certificates(), &self.clients) else {
            return Peer::default();
        };
        let Some((first, others)) = chain.split_first() else {
            return Peer::default();
        };
        match verifier.verify_client_cert(first, others, UnixTime::now()) {
            Ok(_) => Peer { certificate: subject(first), ..Peer::default() },
            Err(error) => Peer { rejected: Some(explain(&error)), ..Peer::default() },
        }
    }
}

/// Common name and organizations of a certificate.
fn subject(certificate: &CertificateDer<'_>) -> Option<(String, Vec<String>)> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok()).map(str::to_owned);
    Some((name, groups.collect()))
}

/// The reason for which a client certificate is not accepted.
fn explain(error: &rustls::Error) -> String {
    let rustls::Error::InvalidCertificate(problem) = error else {
        return error.to_string();
    };
    match problem {
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "it is not for clients: its extended key usage lacks clientAuth".to_owned()
        }
        CertificateError::UnknownIssuer => {
            "none of the accepted authorities signed it (--api-client-ca, or ca.crt in the data directory)".to_owned()
        }
        problem => problem.to_string(),
    }
}
