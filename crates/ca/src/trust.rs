//! The trust bundle: roots by trust domain, and the verification of client certificates against them.
//!
//! Roots come from several sources and are replaced source by source. Trust domain aliases share the roots of the mesh's
//! own trust domain. A root counts only while it is valid. A client needs exactly one URI name, a SPIFFE identity, whose
//! trust domain selects the roots: a root of one domain never vouches for another.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use names::{Identity, TrustDomain};
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{
    EndEntityCert, ExpirationPolicy, KeyUsage, RevocationCheckDepth, RevocationOptionsBuilder, UnknownStatusPolicy,
    aws_lc_rs as algorithms,
};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificate::{Certificate, MAX_CERTIFICATE, bundle, seconds};
use crate::revocation::RevocationLists;

/// The most certificates that a client may present.
pub const MAX_CHAIN: usize = 10;

/// The signature algorithms of certificates: no SHA-1, no RSA key below 2048 bits.
static ALGORITHMS: &[&dyn SignatureVerificationAlgorithm] = &[
    algorithms::ECDSA_P256_SHA256,
    algorithms::ECDSA_P256_SHA384,
    algorithms::ECDSA_P384_SHA256,
    algorithms::ECDSA_P384_SHA384,
    algorithms::ECDSA_P521_SHA512,
    algorithms::ED25519,
    algorithms::RSA_PKCS1_2048_8192_SHA256,
    algorithms::RSA_PKCS1_2048_8192_SHA384,
    algorithms::RSA_PKCS1_2048_8192_SHA512,
    algorithms::RSA_PSS_2048_8192_SHA256_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA384_LEGACY_KEY,
    algorithms::RSA_PSS_2048_8192_SHA512_LEGACY_KEY,
];

/// The origin of roots.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// The mesh's own authority.
    Authority,
    /// Roots that the authority no longer uses, but whose certificates may still be in use.
    RotatedOut,
    /// `caCertificates` of MeshConfig.
    MeshConfig,
    /// A SPIFFE bundle endpoint.
    SpiffeBundle,
    /// The file with further roots beside the certificate of the control plane's ports.
    File,
}

/// A root that cannot be trusted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the root {subject} is not a certificate authority; remove it, or create it with CA:TRUE and the key usage keyCertSign"
)]
pub struct RootError {
    /// The subject of the certificate.
    pub subject: String,
}

/// A client certificate that is not trusted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The chain is empty, too long, too large or damaged.
    #[error("the client's certificate chain is empty, damaged, or has more than {MAX_CHAIN} certificates")]
    Chain,
    /// The certificate does not have exactly one URI with a SPIFFE identity.
    #[error("the client's certificate must have exactly one URI name, and it must be a SPIFFE identity: {0}")]
    Identity(String),
    /// No roots are configured for the trust domain.
    #[error(
        "no valid root is known for the trust domain {0}; add it to trustDomainAliases, or its root to caCertificates of MeshConfig"
    )]
    UnknownDomain(TrustDomain),
    /// A certificate of the chain is revoked.
    #[error("a certificate of the client's chain is revoked")]
    Revoked,
    /// A certificate of the chain is expired or not valid yet.
    #[error("a certificate of the client's chain is expired or not valid yet")]
    NotValid,
    /// The chain leads to no root of the trust domain.
    #[error("the client's certificate leads to no root of its trust domain: {0}")]
    Path(String),
}

/// Roots by trust domain.
#[derive(Clone, Debug)]
pub struct TrustBundle {
    own: TrustDomain,
    aliases: BTreeSet<TrustDomain>,
    /// By trust domain and source. Entries of the own domain hold for its aliases, too.
    roots: BTreeMap<(TrustDomain, Source), Vec<Root>>,
    revocation: RevocationLists,
}

#[derive(Clone, Debug)]
struct Root {
    certificate: Certificate,
    anchor: TrustAnchor<'static>,
}

impl TrustBundle {
    /// A bundle without roots.
    pub fn new(own: TrustDomain, aliases: impl IntoIterator<Item = TrustDomain>) -> TrustBundle {
        let aliases = aliases.into_iter().filter(|alias| *alias != own).collect();
        TrustBundle { own, aliases, roots: BTreeMap::new(), revocation: RevocationLists::default() }
    }

    /// Whether identities of a trust domain belong to this mesh: it is the own one or an alias.
    pub fn is_own(&self, domain: &TrustDomain) -> bool {
        *domain == self.own || self.aliases.contains(domain)
    }

    /// An identity of an alias in the own trust domain, as the same workload; others stay as they are.
    pub fn in_own_domain(&self, identity: Identity) -> Identity {
        match self.aliases.contains(&identity.trust_domain) {
            true => Identity { trust_domain: self.own.clone(), ..identity },
            false => identity,
        }
    }

    /// Replaces the roots of a source for a trust domain. Without certificates, removes them.
    ///
    /// # Errors
    /// A certificate is not a CA. Then nothing is replaced.
    pub fn replace(
        &mut self,
        domain: &TrustDomain,
        source: Source,
        certificates: &[Certificate],
    ) -> Result<(), RootError> {
        let root = |certificate: &Certificate| {
            let anchor = anchor(certificate).filter(|_| certificate.is_authority());
            let error = || RootError { subject: certificate.subject().to_owned() };
            Ok(Root { anchor: anchor.ok_or_else(error)?, certificate: certificate.clone() })
        };
        let roots = certificates.iter().map(root).collect::<Result<Vec<_>, _>>()?;
        self.roots.insert((domain.clone(), source), roots);
        Ok(())
    }

    /// Sets the revocation lists.
    pub fn set_revocation(&mut self, lists: RevocationLists) {
        self.revocation = lists;
    }

    /// The valid roots of a trust domain in PEM: sorted, each once.
    pub fn pem(&self, domain: &TrustDomain, now: SystemTime) -> String {
        sorted(self.valid(domain, now).map(|root| &root.certificate))
    }

    /// The valid roots of all trust domains in PEM: sorted, each once.
    pub fn all_pem(&self, now: SystemTime) -> String {
        bundle(&self.certificates(now))
    }

    /// The valid roots of all trust domains: sorted, each once.
    pub fn certificates(&self, now: SystemTime) -> Vec<Certificate> {
        let roots = self.roots.values().flatten().map(|root| &root.certificate).filter(|root| root.is_valid_at(now));
        let by_der: BTreeMap<&[u8], &Certificate> = roots.map(|root| (root.der().as_ref(), root)).collect();
        by_der.into_values().cloned().collect()
    }

    /// The trust domains that have roots, and the aliases.
    pub fn domains(&self) -> BTreeSet<TrustDomain> {
        let with_roots = self.roots.iter().filter(|(_, roots)| !roots.is_empty());
        with_roots.map(|((domain, _), _)| domain).chain(&self.aliases).cloned().collect()
    }

    /// Verifies the certificates that a client presents, leaf first, and returns its identity.
    ///
    /// An authority without a revocation list revokes nothing, and a list remains in effect after its next update.
    ///
    /// # Errors
    /// The identity is missing or ambiguous, or the chain does not lead to a valid root of its trust domain.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: SystemTime) -> Result<Identity, TrustError> {
        let sizes_are_good = chain.iter().all(|certificate| certificate.len() <= MAX_CERTIFICATE);
        let leaf = chain.first().filter(|_| chain.len() <= MAX_CHAIN && sizes_are_good).ok_or(TrustError::Chain)?;
        let identity = identity(leaf)?;
        let anchors: Vec<_> = self.valid(&identity.trust_domain, now).map(|root| root.anchor.clone()).collect();
        if anchors.is_empty() {
            return Err(TrustError::UnknownDomain(identity.trust_domain));
        }
        verify_path(chain, &anchors, &self.revocation, now)?;
        Ok(identity)
    }

    fn valid(&self, domain: &TrustDomain, now: SystemTime) -> impl Iterator<Item = &Root> {
        let is_alias = self.aliases.contains(domain);
        let entries = self.roots.iter().filter(move |((of, _), _)| of == domain || (is_alias && *of == self.own));
        entries.flat_map(|(_, roots)| roots).filter(move |root| root.certificate.is_valid_at(now))
    }
}

fn sorted<'a>(certificates: impl Iterator<Item = &'a Certificate>) -> String {
    let by_der: BTreeMap<&[u8], &Certificate> = certificates.map(|root| (root.der().as_ref(), root)).collect();
    bundle(by_der.into_values())
}

/// The trust anchor of a root; `None` if it cannot be one.
pub(crate) fn anchor(root: &Certificate) -> Option<TrustAnchor<'static>> {
    webpki::anchor_from_trusted_cert(root.der()).ok().map(|anchor| anchor.to_owned())
}

/// Verifies a path from a leaf to an anchor.
pub(crate) fn verify_path(
    chain: &[CertificateDer<'_>],
    anchors: &[TrustAnchor<'_>],
    revocation: &RevocationLists,
    now: SystemTime,
) -> Result<(), TrustError> {
    let (leaf, intermediates) = chain.split_first().ok_or(TrustError::Chain)?;
    let leaf = EndEntityCert::try_from(leaf).map_err(path_error)?;
    let lists = revocation.lists();
    let options = RevocationOptionsBuilder::new(&lists).ok().map(|builder| {
        let builder = builder.with_depth(RevocationCheckDepth::Chain).with_status_policy(UnknownStatusPolicy::Allow);
        builder.with_expiration_policy(ExpirationPolicy::Ignore).build()
    });
    let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds(now)).unwrap_or(0)));
    leaf.verify_for_usage(ALGORITHMS, anchors, intermediates, time, KeyUsage::client_auth(), options, None)
        .map_err(path_error)?;
    Ok(())
}

fn path_error(error: webpki::Error) -> TrustError {
    match error {
        webpki::Error::CertRevoked => TrustError::Revoked,
        webpki::Error::CertExpired { .. } | webpki::Error::CertNotValidYet { .. } => TrustError::NotValid,
        other => TrustError::Path(other.to_string()),
    }
}

/// The SPIFFE identity of a certificate, which nothing has verified yet.
pub(crate) fn identity(der: &[u8]) -> Result<Identity, TrustError> {
    let (rest, certificate) = X509Certificate::from_der(der).map_err(|_| TrustError::Chain)?;
    if !rest.is_empty() {
        return Err(TrustError::Chain);
    }
    let names = certificate.subject_alternative_name();
    let names = names.map_err(|_| TrustError::Identity("its alternative names are damaged".to_owned()))?;
    let mut uris = Vec::new();
    for name in names.iter().flat_map(|names| &names.value.general_names) {
        match name {
            GeneralName::URI(uri) => uris.push(*uri),
            GeneralName::Invalid(..) => return Err(TrustError::Identity("a name is damaged".to_owned())),
            _ => {}
        }
    }
    match uris[..] {
        [uri] => Identity::parse(uri).map_err(|error| TrustError::Identity(error.to_string())),
        _ => Err(TrustError::Identity(format!("it has {} URI names", uris.len()))),
    }
}

#[cfg(test)]
mod tests;
