//! TLS of the ports: their certificate, handshakes, and the verification of client certificates.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ca::trust::TrustError;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, ServerConnection};
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::authentication::ClientCertificate;
use crate::grpc::Status;
use crate::log_limit::LogLimit;
use crate::signing;

/// The longest time between two looks at the clock: timers stand still while a machine is suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// The TLS configuration of the port. It uses the newest certificate and the newest roots for each handshake.
///
/// Sessions are not resumed, because a resumed session is not verified again: an expired or revoked certificate would remain
/// usable.
///
/// # Errors
/// The cryptographic library does not support the protocol versions.
pub(crate) fn config(
    certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
    signing: signing::Watched,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let verifier = Arc::new(Verifier { signing, algorithms });
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(Current(certificate)));
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

/// The TLS configuration of the webhooks. Their client, the API server, is not authenticated.
///
/// # Errors
/// The cryptographic library does not support the protocol versions.
pub(crate) fn of_webhooks(
    certificate: watch::Receiver<Option<Arc<CertifiedKey>>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = builder.with_no_client_auth().with_cert_resolver(Arc::new(Current(certificate)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Waits for the first certificate of a port. Until then, connections wait in the backlog. Returns whether there is one: the
/// server may stop before.
pub(crate) async fn has_certificate(
    certificate: &mut watch::Receiver<Option<Arc<CertifiedKey>>>,
    stopped: &mut watch::Receiver<bool>,
) -> bool {
    tokio::select! {
        present = certificate.wait_for(Option::is_some) => present.is_ok(),
        _ = stopped.wait_for(|stop| *stop) => false,
    }
}

/// Makes a TLS stream of a connection. If the handshake fails, logs `failed` and the reason, and returns none.
pub(crate) async fn handshake(
    acceptor: &TlsAcceptor,
    (socket, address): (TcpStream, SocketAddr),
    log: &LogLimit,
    failed: &str,
) -> Option<TlsStream<TcpStream>> {
    let _ = socket.set_nodelay(true);
    match acceptor.accept(socket).await {
        Ok(stream) => Some(stream),
        Err(error) => {
            log.note(|more| tracing::info!(client = %address.ip(), %error, more, "{failed}"));
            None
        }
    }
}

/// Presents the newest certificate.
struct Current(watch::Receiver<Option<Arc<CertifiedKey>>>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.borrow().clone()
    }
}

impl fmt::Debug for Current {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Current").finish_non_exhaustive()
    }
}

/// Verifies client certificates with the newest roots. A client may have none.
#[derive(Debug)]
struct Verifier {
    signing: signing::Watched,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        // Clients have one certificate. Hints would have to change with the roots.
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let chain: Vec<CertificateDer<'_>> = std::iter::once(leaf).chain(intermediates).cloned().collect();
        let trust = self.signing.borrow().trust.clone();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        match trust.verify(&chain, now) {
            Ok(_) => Ok(ClientCertVerified::assertion()),
            Err(error) => Err(rustls::Error::InvalidCertificate(alert(&error))),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The error that determines the alert for the client.
fn alert(error: &TrustError) -> CertificateError {
    match error {
        TrustError::Revoked => CertificateError::Revoked,
        TrustError::NotValid => CertificateError::Expired,
        TrustError::Chain => CertificateError::BadEncoding,
        TrustError::UnknownDomain(_) | TrustError::Path(_) => CertificateError::UnknownIssuer,
        _ => CertificateError::ApplicationVerificationFailure,
    }
}

/// The verified certificate of a client after the handshake.
///
/// # Errors
/// The roots have changed since the handshake.
pub(crate) fn client(
    session: &ServerConnection,
    signing: &signing::Watched,
) -> Result<Option<Arc<ClientCertificate>>, TrustError> {
    let Some(chain) = session.peer_certificates() else {
        return Ok(None);
    };
    let trust = signing.borrow().trust.clone();
    ClientCertificate::verify(chain, &trust, SystemTime::now()).map(|certificate| Some(Arc::new(certificate)))
}

/// Waits until the certificate of a client is not valid any more: it expires, it is revoked, or its root is removed. Without
/// a certificate, waits forever.
pub(crate) async fn invalid(certificate: Option<Arc<ClientCertificate>>, mut signing: signing::Watched) -> Status {
    let Some(certificate) = certificate else {
        return std::future::pending().await;
    };
    // The roots may have changed since the certificate was verified.
    let mut verified = None;
    loop {
        let trust = signing.borrow_and_update().trust.clone();
        let now = SystemTime::now();
        let is_same = verified.as_ref().is_some_and(|verified| Arc::ptr_eq(verified, &trust));
        if !is_same && let Err(error) = certificate.verify_again(&trust, now) {
            return Status::new(Status::UNAUTHENTICATED, format!("{error}; connect again with another one"));
        }
        verified = Some(trust);
        let left = certificate.not_after.duration_since(now).unwrap_or_default();
        if left.is_zero() {
            let text = "the client's certificate has expired; connect again with the renewed one";
            return Status::new(Status::UNAUTHENTICATED, text);
        }
        let changed = async {
            if signing.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(left.min(LONGEST_SLEEP)) => {}
            () = changed => {}
        }
    }
}
