//! TLS to servers whose certificate is not verified.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// Whether a server must prove that it has the key of its certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Possession {
    /// It must.
    Proved,
    /// Its signature is ignored, so that certificates that cannot be parsed are accepted, too.
    Ignored,
}

/// A configuration of a client that accepts any certificate.
///
/// # Errors
/// TLS cannot be used.
pub fn unverified(possession: Possession) -> Result<ClientConfig, Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.dangerous().with_custom_certificate_verifier(any_certificate(possession)).with_no_client_auth())
}

/// A verifier that accepts any certificate, for a client with settings of its own.
#[must_use]
pub fn any_certificate(possession: Possession) -> Arc<dyn ServerCertVerifier> {
    Arc::new(AnyCertificate { provider: Arc::new(aws_lc_rs::default_provider()), possession })
}

/// A function of rustls that verifies the signature of a handshake.
type VerifySignature = fn(
    &[u8],
    &CertificateDer<'_>,
    &DigitallySignedStruct,
    &WebPkiSupportedAlgorithms,
) -> Result<HandshakeSignatureValid, Error>;

#[derive(Debug)]
struct AnyCertificate {
    provider: Arc<CryptoProvider>,
    possession: Possession,
}

impl AnyCertificate {
    fn verify(
        &self,
        verify: VerifySignature,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match self.possession {
            Possession::Ignored => Ok(HandshakeSignatureValid::assertion()),
            Possession::Proved => {
                verify(message, certificate, signed, &self.provider.signature_verification_algorithms)
            }
        }
    }
}

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(verify_tls12_signature, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify(verify_tls13_signature, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
