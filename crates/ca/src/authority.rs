//! The authority: an issuing certificate, its key and the path to the roots. It issues workload certificates as Istio does.
//!
//! | field of the certificate | content |
//! |---|---|
//! | subject | empty; the first identity as common name if the request has one and the identity has at most 64 bytes |
//! | subject alternative names | the caller's identities as URIs; critical |
//! | validity | from 2 minutes before now, for the requested lifetime, at most until the issuer expires |
//! | key usage | digital signature, key encipherment; server and client authentication |
//! | serial number | 127 random bits |
//!
//! An [`Authority`] exists only if its key, certificate and chain fit together: [`crate::plugged_in`] and
//! [`crate::self_signed`] create it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use names::Identity;
use rustls_pki_types::CertificateDer;

use crate::Code;
use crate::certificate::{Certificate, bundle, pem, seconds, time};
use crate::csr::{Csr, CsrError};
use crate::der::{self, AlternativeName, Role, Signer, Template};
use crate::key::{KeyError, PrivateKey};
use crate::revocation::RevocationLists;

/// Certificates are valid from this long before they are issued, to tolerate clock skew.
pub const BACK_DATE: Duration = Duration::from_secs(120);
/// The longest common name, in bytes (RFC 5280).
const MAX_COMMON_NAME: usize = 64;
/// The longest identity, in bytes (the SPIFFE specification).
const MAX_IDENTITY: usize = 2048;
/// The most identities in a certificate.
const MAX_IDENTITIES: usize = 32;

/// The lifetimes of workload certificates (`DEFAULT_WORKLOAD_CERT_TTL`, `MAX_WORKLOAD_CERT_TTL`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    /// The lifetime if the request has none.
    pub default: Duration,
    /// The longest lifetime that may be requested.
    pub maximum: Duration,
}

impl Default for Lifetimes {
    /// 24 hours, at most 90 days.
    fn default() -> Lifetimes {
        let day = Duration::from_secs(86_400);
        Lifetimes { default: day, maximum: day * 90 }
    }
}

impl Lifetimes {
    /// The lifetime for a requested one in seconds; zero or less requests the default.
    ///
    /// # Errors
    /// The requested lifetime is too long.
    pub fn granted(&self, requested: i64) -> Result<Duration, IssueError> {
        match u64::try_from(requested) {
            Ok(0) | Err(_) => Ok(self.default),
            Ok(seconds) if seconds > self.maximum.as_secs() => {
                Err(IssueError::Lifetime { requested, maximum: self.maximum })
            }
            Ok(seconds) => Ok(Duration::from_secs(seconds)),
        }
    }
}

/// No certificate was issued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The request cannot be signed.
    #[error(transparent)]
    Csr(#[from] CsrError),
    /// The requested lifetime is too long.
    #[error("the requested lifetime of {requested}s is longer than the maximum of {}s (MAX_WORKLOAD_CERT_TTL)", maximum.as_secs())]
    Lifetime {
        /// The requested lifetime in seconds.
        requested: i64,
        /// The maximum.
        maximum: Duration,
    },
    /// The caller has no identity, too many, or one that a certificate cannot hold.
    #[error("the caller has no identity that a certificate can hold")]
    Identity,
    /// A name of the control plane's own certificate is not valid, or there is none.
    #[error("{0:?} is neither a DNS name nor an address; correct ISTIOD_CUSTOM_HOST or the discovery address")]
    Name(String),
    /// There is no authority yet.
    #[error("the certificate authority is not ready")]
    NotReady,
    /// The issuing certificate has expired.
    #[error("the issuing certificate of the authority ({subject}) has expired; renew it")]
    IssuerExpired {
        /// The subject of the issuing certificate.
        subject: String,
    },
    /// The cryptographic library failed.
    #[error("cannot sign: {0}")]
    Signing(#[from] KeyError),
}

impl IssueError {
    /// The gRPC code. Its message is `CSR signing error (…)`.
    pub fn code(&self) -> Code {
        match self {
            IssueError::Csr(_) | IssueError::Lifetime { .. } => Code::InvalidArgument,
            IssueError::Identity => Code::Unauthenticated,
            IssueError::Name(_) | IssueError::NotReady | IssueError::IssuerExpired { .. } | IssueError::Signing(_) => {
                Code::Internal
            }
        }
    }

    /// The value of the label `error` of istiod's metric `citadel_server_csr_sign_err_count`.
    pub fn label(&self) -> &'static str {
        match self {
            IssueError::Csr(_) => "CSR_ERROR",
            IssueError::Lifetime { .. } => "TTL_ERROR",
            IssueError::NotReady => "CA_NOT_READY",
            _ => "CERT_GEN_ERROR",
        }
    }
}

/// A certificate authority. Clones are cheap.
#[derive(Clone)]
pub struct Authority(Arc<Inner>);

/// The parts of an authority, checked by the modules that create one.
#[derive(Clone)]
pub(crate) struct Parts {
    pub(crate) issuer: Certificate,
    pub(crate) key: PrivateKey,
    /// Sent between leaf and roots: the issuer, unless it is a root, and certificates above it.
    pub(crate) intermediates: Vec<Certificate>,
    pub(crate) roots: Vec<Certificate>,
    /// Revocation lists, as PEM and verified.
    pub(crate) revocation: Option<(String, RevocationLists)>,
}

struct Inner {
    parts: Parts,
    intermediate_pems: Vec<String>,
    root_pem: String,
}

impl Authority {
    pub(crate) fn new(parts: Parts) -> Authority {
        let intermediate_pems = parts.intermediates.iter().map(Certificate::pem).collect();
        let root_pem = bundle(&parts.roots);
        Authority(Arc::new(Inner { parts, intermediate_pems, root_pem }))
    }

    /// Issues a certificate. `lifetime` is the requested lifetime in seconds; zero or less requests the default.
    ///
    /// # Errors
    /// The lifetime is too long, the issuer has expired, or the identities cannot be encoded.
    pub fn issue(
        &self,
        csr: &Csr,
        identities: &[Identity],
        lifetime: i64,
        limits: &Lifetimes,
        now: SystemTime,
    ) -> Result<Issued, IssueError> {
        let lifetime = limits.granted(lifetime)?;
        if identities.is_empty() || identities.len() > MAX_IDENTITIES || !identities.iter().all(is_encodable) {
            return Err(IssueError::Identity);
        }
        let names: Vec<AlternativeName> = identities.iter().cloned().map(AlternativeName::Uri).collect();
        let first = identities[0].to_string();
        let common_name = (csr.has_common_name() && first.len() <= MAX_COMMON_NAME).then_some(&*first);
        self.leaf(csr.public_key(), common_name, &names, lifetime, now)
    }

    /// Issues a certificate for any names.
    pub(crate) fn leaf(
        &self,
        public_key: &[u8],
        common_name: Option<&str>,
        names: &[AlternativeName],
        lifetime: Duration,
        now: SystemTime,
    ) -> Result<Issued, IssueError> {
        let (issuer, now) = (self.issuer(), seconds(now));
        if now >= issuer.end() {
            return Err(IssueError::IssuerExpired { subject: issuer.subject().to_owned() });
        }
        let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        let end = now.saturating_add(lifetime).min(issuer.end());
        let template = Template {
            subject: &der::subject(None, common_name),
            public_key,
            valid: (now - BACK_DATE.as_secs().cast_signed(), end),
            role: Role::Leaf(names),
        };
        Ok(Issued {
            der: der::certificate(&template, &self.signer())?.into(),
            not_after: time(end),
            authority: self.clone(),
        })
    }

    /// The issuing certificate.
    pub fn issuer(&self) -> &Certificate {
        &self.0.parts.issuer
    }

    /// The certificates between a leaf and the roots; empty if a root signs.
    pub fn intermediates(&self) -> &[Certificate] {
        &self.0.parts.intermediates
    }

    /// The roots that the authority's certificates lead to, and further ones that its source lists.
    pub fn roots(&self) -> &[Certificate] {
        &self.0.parts.roots
    }

    /// The roots in PEM (`istio-ca-root-cert`).
    pub fn roots_pem(&self) -> &str {
        &self.0.root_pem
    }

    /// The revocation lists in PEM (`istio-ca-crl`), if the operator provides them.
    pub fn revocation_pem(&self) -> Option<&str> {
        self.0.parts.revocation.as_ref().map(|(pem, _)| &**pem)
    }

    /// The revocation lists for [`crate::TrustBundle::set_revocation`]; empty if the operator provides none.
    pub fn revocation_lists(&self) -> RevocationLists {
        self.0.parts.revocation.as_ref().map_or_else(RevocationLists::default, |(_, lists)| lists.clone())
    }

    /// The private key of the issuing certificate.
    pub fn key(&self) -> &PrivateKey {
        &self.0.parts.key
    }

    pub(crate) fn signer(&self) -> Signer<'_> {
        let issuer = self.issuer();
        Signer { subject: issuer.encoded_subject(), key_id: issuer.key_id(), key: self.key() }
    }
}

impl PartialEq for Authority {
    /// Whether both have the same certificates and revocation lists. Equal certificates have equal keys.
    fn eq(&self, other: &Authority) -> bool {
        let (a, b) = (&self.0.parts, &other.0.parts);
        a.issuer == b.issuer
            && a.intermediates == b.intermediates
            && a.roots == b.roots
            && self.revocation_pem() == other.revocation_pem()
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &self.0.parts;
        f.debug_struct("Authority")
            .field("issuer", &parts.issuer)
            .field("key", &parts.key)
            .field("intermediates", &parts.intermediates)
            .field("roots", &parts.roots)
            .field("revocation", &parts.revocation.is_some())
            .finish()
    }
}

/// An issued certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The certificate in DER.
    pub der: CertificateDer<'static>,
    /// The moment at which it expires.
    pub not_after: SystemTime,
    authority: Authority,
}

impl Issued {
    /// The field `cert_chain` of the response: the leaf, each intermediate, and all roots as the last element.
    pub fn chain(&self) -> Vec<String> {
        let inner = &self.authority.0;
        let mut chain = Vec::with_capacity(inner.intermediate_pems.len() + 2);
        chain.push(pem("CERTIFICATE", &self.der));
        chain.extend(inner.intermediate_pems.iter().cloned());
        chain.push(inner.root_pem.clone());
        chain
    }

    /// The certificates that a server presents: the leaf and the intermediates.
    pub fn presented(&self) -> Vec<CertificateDer<'static>> {
        let intermediates = self.authority.intermediates().iter();
        std::iter::once(self.der.clone()).chain(intermediates.map(|certificate| certificate.der().clone())).collect()
    }
}

/// Whether a certificate can hold an identity: a URI of printable ASCII, of bounded length.
fn is_encodable(identity: &Identity) -> bool {
    let text = identity.to_string();
    text.len() <= MAX_IDENTITY && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests;
