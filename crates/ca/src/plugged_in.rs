//! Certificates that the operator provides: the Secret `cacerts`, or the files of `ROOT_CA_DIR` with the same names.
//!
//! | Istio's names | names of a TLS Secret | content |
//! |---|---|---|
//! | `ca-cert.pem` | `tls.crt` | the issuing certificate (the first one) |
//! | `ca-key.pem` | `tls.key` | its private key |
//! | `cert-chain.pem` | `tls.crt` and `ca.crt` | the certificates between leaf and root |
//! | `root-cert.pem` | `ca.crt` | the roots |
//! | `ca-crl.pem` | – | revocation lists; optional |
//!
//! A set is used only if all parts fit together. The check issues a certificate and verifies its path, so that proxies
//! accept what the authority issues.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use x509_parser::time::ASN1Time;

use crate::authority::{Authority, Parts};
use crate::certificate::{Certificate, CertificateError, seconds};
use crate::key::{KeyError, PrivateKey};
use crate::revocation::{RevocationError, RevocationLists};
use crate::self_signed::GENERATED;
use crate::trust::{anchor, verify_path};

/// The names of the parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layout {
    pub(crate) certificate: &'static str,
    pub(crate) key: &'static str,
    pub(crate) chain: &'static str,
    pub(crate) roots: &'static str,
    pub(crate) revocation: Option<&'static str>,
}

impl Layout {
    pub(crate) const ISTIO: Layout = Layout {
        certificate: "ca-cert.pem",
        key: "ca-key.pem",
        chain: "cert-chain.pem",
        roots: "root-cert.pem",
        revocation: Some("ca-crl.pem"),
    };
    const TLS: Layout =
        Layout { certificate: "tls.crt", key: "tls.key", chain: "tls.crt", roots: "ca.crt", revocation: None };
}

/// A set of plugged-in certificates that cannot be used. No message contains a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluggedInError {
    /// Parts are missing.
    #[error(
        "{} missing, but {} present; add the missing keys, or remove all for a self-signed authority",
        listed(missing),
        listed(present)
    )]
    Incomplete {
        /// The missing keys.
        missing: Vec<&'static str>,
        /// The keys that are present.
        present: Vec<&'static str>,
    },
    /// A part cannot be used.
    #[error("{key}: {problem}")]
    Invalid {
        /// The key of the Secret, or the name of the file.
        key: &'static str,
        /// The problem and its remedy.
        problem: Problem,
    },
}

impl PluggedInError {
    pub(crate) fn at(key: &'static str, problem: Problem) -> PluggedInError {
        PluggedInError::Invalid { key, problem }
    }
}

/// A problem of one part.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The certificates cannot be parsed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The private key cannot be parsed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The revocation lists cannot be used.
    #[error(transparent)]
    Revocation(#[from] RevocationError),
    /// The certificate may not sign others.
    #[error("{subject} is not a certificate authority; create it with CA:TRUE and the key usage keyCertSign")]
    NotAuthority {
        /// The subject of the certificate.
        subject: String,
    },
    /// The key belongs to another certificate.
    #[error("is not the key of {certificate}; provide the private key with which that certificate was requested")]
    KeyMismatch {
        /// The key of the Secret with the certificate.
        certificate: &'static str,
    },
    /// The certificate is not valid yet, or no longer.
    #[error("{subject} is valid from {from} to {to} only; renew it, or correct the clock")]
    NotValid {
        /// The subject of the certificate.
        subject: String,
        /// The start of its validity.
        from: String,
        /// The end of its validity.
        to: String,
    },
    /// The path to a root is broken.
    #[error(
        "a certificate that {subject} issues does not lead to a root of {roots} ({reason}); add the missing intermediate certificates or the right root"
    )]
    NoPath {
        /// The subject of the issuing certificate.
        subject: String,
        /// The key of the Secret with the roots.
        roots: &'static str,
        /// The reason.
        reason: String,
    },
    /// The revocation lists make every certificate invalid.
    #[error(
        "rejects all certificates that {subject} issues ({reason}); no authority of the chain may be revoked, and all need the key usage cRLSign"
    )]
    RejectsAll {
        /// The subject of the issuing certificate.
        subject: String,
        /// The reason.
        reason: String,
    },
}

/// The result of looking at a Secret or directory.
#[derive(Clone, PartialEq, Debug)]
pub enum Loaded {
    /// There are no certificates: the authority is self-signed.
    Absent,
    /// A control plane has stored its self-signed authority here; see [`crate::self_signed::from_secret`].
    SelfSigned,
    /// Certificates of the operator.
    PluggedIn(Authority),
}

/// Checks plugged-in certificates, given as the data of a Secret or as files by name.
///
/// # Errors
/// The set is incomplete or inconsistent.
pub fn load(data: &BTreeMap<String, Vec<u8>>, now: SystemTime) -> Result<Loaded, PluggedInError> {
    let layout = if data.contains_key(Layout::TLS.certificate) { Layout::TLS } else { Layout::ISTIO };
    let mut required = vec![layout.certificate, layout.chain, layout.key, layout.roots];
    required.dedup();
    let (present, missing): (Vec<_>, Vec<_>) = required.into_iter().partition(|key| data.contains_key(*key));
    if present.is_empty() {
        return Ok(Loaded::Absent);
    }
    if !missing.is_empty() {
        return Err(PluggedInError::Incomplete { missing, present });
    }
    if data.contains_key(GENERATED) {
        return Ok(Loaded::SelfSigned);
    }
    parts(data, &layout, now).map(|parts| Loaded::PluggedIn(Authority::new(parts)))
}

fn parts(data: &BTreeMap<String, Vec<u8>>, layout: &Layout, now: SystemTime) -> Result<Parts, PluggedInError> {
    let of = |key: &'static str| data.get(key).map_or(&[][..], Vec::as_slice);
    let list = |key: &'static str| {
        Certificate::list(of(key)).map_err(|error| PluggedInError::at(key, Problem::Certificate(error)))
    };
    let issuer = first(layout.certificate, of(layout.certificate))?;
    let at_key = |error| PluggedInError::at(layout.key, Problem::Key(error));
    let key = PrivateKey::from_pem(of(layout.key)).map_err(at_key)?;
    check_pair(&issuer, &key, layout)?;
    check_valid(&issuer, layout.certificate, now)?;
    let roots = list(layout.roots)?;
    // A chain without certificates is fine if a root signs.
    let chain = match of(layout.chain).trim_ascii() {
        [] => Vec::new(),
        _ => list(layout.chain)?,
    };
    let mut intermediates = Vec::new();
    for certificate in std::iter::once(&issuer).chain(&chain) {
        // A root is sent as the last element of the answer, and never in a handshake.
        if !certificate.is_self_issued() && !intermediates.contains(certificate) {
            intermediates.push(certificate.clone());
        }
    }
    let mut parts = Parts { issuer, key, intermediates, roots, revocation: None };
    check_path(&parts, layout, now)?;
    if let Some(key) = layout.revocation.filter(|key| data.contains_key(*key)) {
        let at_lists = |problem| PluggedInError::at(key, problem);
        let lists = revocation(of(key), &parts, &chain).map_err(|error| at_lists(error.into()))?;
        // Fails if an authority of the chain is revoked, or may not sign lists: proxies would reject every certificate.
        verify_probe(&parts, &lists, now)
            .map_err(|reason| at_lists(Problem::RejectsAll { subject: parts.issuer.subject().to_owned(), reason }))?;
        parts.revocation = Some((String::from_utf8_lossy(of(key)).into_owned(), lists));
    }
    Ok(parts)
}

/// The first certificate of a text.
pub(crate) fn first(key: &'static str, pem: &[u8]) -> Result<Certificate, PluggedInError> {
    let list = Certificate::list(pem).and_then(|list| list.into_iter().next().ok_or(CertificateError::None));
    list.map_err(|error| PluggedInError::at(key, Problem::Certificate(error)))
}

/// Checks that a certificate may sign and has this key.
pub(crate) fn check_pair(issuer: &Certificate, key: &PrivateKey, layout: &Layout) -> Result<(), PluggedInError> {
    if !issuer.is_authority() {
        let problem = Problem::NotAuthority { subject: issuer.subject().to_owned() };
        return Err(PluggedInError::at(layout.certificate, problem));
    }
    if issuer.public_key() != key.public_key() {
        return Err(PluggedInError::at(layout.key, Problem::KeyMismatch { certificate: layout.certificate }));
    }
    Ok(())
}

fn check_valid(certificate: &Certificate, key: &'static str, now: SystemTime) -> Result<(), PluggedInError> {
    if certificate.is_valid_at(now) {
        return Ok(());
    }
    let shown = |time| ASN1Time::from_timestamp(seconds(time)).map_or_else(|_| "unknown".to_owned(), |t| t.to_string());
    let problem = Problem::NotValid {
        subject: certificate.subject().to_owned(),
        from: shown(certificate.not_before()),
        to: shown(certificate.not_after()),
    };
    Err(PluggedInError::at(key, problem))
}

/// Checks that what the authority issues leads to a root.
fn check_path(parts: &Parts, layout: &Layout, now: SystemTime) -> Result<(), PluggedInError> {
    if !parts.roots.iter().any(|root| root.is_valid_at(now))
        && let Some(root) = parts.roots.first()
    {
        check_valid(root, layout.roots, now)?;
    }
    verify_probe(parts, &RevocationLists::default(), now).map_err(|reason| {
        let subject = parts.issuer.subject().to_owned();
        PluggedInError::at(layout.chain, Problem::NoPath { subject, roots: layout.roots, reason })
    })
}

/// Issues a certificate without names, and verifies its path. Returns the reason if that fails.
fn verify_probe(parts: &Parts, lists: &RevocationLists, now: SystemTime) -> Result<(), String> {
    let anchors: Vec<_> = parts.roots.iter().filter(|root| root.is_valid_at(now)).filter_map(anchor).collect();
    let authority = Authority::new(parts.clone());
    let issued = authority.leaf(parts.issuer.public_key(), None, &[], Duration::from_secs(60), now);
    let chain = issued.map_err(|error| error.to_string())?.presented();
    verify_path(&chain, &anchors, lists, now).map_err(|error| error.to_string())
}

/// Each list must be signed by an authority of the set, and each authority of the chain must have a list, as with istiod.
fn revocation(pem: &[u8], parts: &Parts, chain: &[Certificate]) -> Result<RevocationLists, RevocationError> {
    let mut authorities = parts.intermediates.clone();
    authorities.push(parts.issuer.clone());
    authorities.extend_from_slice(&parts.roots);
    let lists = RevocationLists::from_pem(pem, &authorities)?;
    lists.check_complete(&parts.intermediates)?;
    lists.check_complete(chain)?;
    Ok(lists)
}

/// New roots that may not replace the current ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootChangeError {
    /// Several roots are not allowed.
    #[error("the roots differ from the current ones; set ISTIO_MULTIROOT_MESH to change roots without a restart")]
    SingleRoot,
    /// Neither list of roots contains the other.
    #[error(
        "the roots replace current ones; first add the new root to the current ones, wait until all proxies have both, and \
         then remove the old one"
    )]
    Replaced,
}

/// Checks whether new certificates may replace the current ones while proxies run: roots may only be added or removed,
/// and only if the mesh may have several (`ISTIO_MULTIROOT_MESH`).
///
/// # Errors
/// The roots differ in another way.
pub fn check_root_change(current: &Authority, new: &Authority, multiple_roots: bool) -> Result<(), RootChangeError> {
    let contains = |a: &Authority, b: &Authority| b.roots().iter().all(|root| a.roots().contains(root));
    match (contains(current, new), contains(new, current)) {
        (true, true) => Ok(()),
        _ if !multiple_roots => Err(RootChangeError::SingleRoot),
        (false, false) => Err(RootChangeError::Replaced),
        _ => Ok(()),
    }
}

fn listed(keys: &[&str]) -> String {
    format!("{} {}", keys.join(", "), if keys.len() == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests;
