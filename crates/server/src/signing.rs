//! The issuer of workload certificates and the roots of trust, which change while the server runs.
//!
//! `runtime` owns the sender of a [`Watched`] and replaces the value whenever the key, the certificate or a root changes.
//! Handshakes, streams and certificate requests that begin later use the new one. Open connections whose client certificate
//! the new roots do not accept end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ca::{Authority, Code, TrustBundle};
use names::Identity;
use tokio::sync::watch;

/// The current issuer and roots, and their changes.
pub type Watched = watch::Receiver<Arc<Signing>>;

/// The issuer of workload certificates, and the roots that verify client certificates.
#[derive(Clone, Debug)]
pub struct Signing {
    /// The issuer.
    pub issuer: Issuer,
    /// Verifies client certificates. Keep the same `Arc` if only the issuer changes: if it differs, all open
    /// connections with a client certificate are verified again.
    pub trust: Arc<TrustBundle>,
}

/// The issuer of workload certificates.
#[derive(Clone)]
pub enum Issuer {
    /// The control plane's own authority.
    Own(Authority),
    /// Another authority, to which requests are forwarded.
    External(Arc<dyn ExternalIssuer>),
    /// None, for this reason. The text appears in `/ready` and in the log.
    Unavailable(Arc<str>),
}

impl fmt::Debug for Issuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Issuer::Own(authority) => authority.fmt(f),
            Issuer::External(_) => f.write_str("External"),
            Issuer::Unavailable(reason) => write!(f, "Unavailable({reason})"),
        }
    }
}

/// A request that is forwarded. Its signature and key were checked ([`ca::Csr`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SigningRequest {
    /// The certificate signing request in PEM, as received. The caller chose its names: an issuer that would sign them must
    /// refuse a request whose names are not exactly `identities`.
    pub csr: String,
    /// The only names that the certificate may have, at least one.
    pub identities: Vec<Identity>,
    /// The lifetime, at most the configured maximum.
    pub lifetime: Duration,
    /// The signer that the caller asks for (`CertSigner`).
    pub signer: Option<String>,
}

/// An issuer that does not answer or refuses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ExternalError {
    /// The gRPC code for the client.
    pub code: Code,
    /// The message for the log and the client, without secrets.
    pub message: String,
    /// The value of the label `error` of `citadel_server_csr_sign_err_count` (`CERT_GEN_ERROR`, `CSR_ERROR`, …).
    pub label: &'static str,
}

/// An authority outside of the control plane.
#[async_trait]
pub trait ExternalIssuer: Send + Sync {
    /// Signs a request. Returns the field `cert_chain` of the response: the leaf, one intermediate each, and all roots as
    /// the last element. The future is dropped if the client disconnects.
    ///
    /// # Errors
    /// The authority refuses, does not answer in time, or issued something else.
    async fn sign(&self, request: &SigningRequest) -> Result<Vec<String>, ExternalError>;

    /// The control plane's own authority, which issues the certificates of its ports while another one issues those of
    /// workloads. The sender of [`Watched`] sends a new value when it changes.
    fn own_authority(&self) -> Option<Authority> {
        None
    }
}

impl Signing {
    /// Without an issuer, for this reason, and without roots.
    pub fn unavailable(reason: &str, trust: TrustBundle) -> Signing {
        Signing { issuer: Issuer::Unavailable(reason.into()), trust: Arc::new(trust) }
    }
}
