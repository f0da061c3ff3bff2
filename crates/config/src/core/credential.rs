//! Certificates with private keys, and CA certificates, in Secrets and ConfigMaps.
//!
//! Invalid values are not served: a proxy would reject them, and with them the whole response.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, KeyPair as _,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use x509_parser::asn1_rs::{Oid, oid};
use x509_parser::prelude::FromDer as _;
use x509_parser::prelude::{CertificateRevocationList, X509Certificate};

use super::staple;

/// Limit of a value in bytes: the size limit of Kubernetes objects.
const LONGEST: usize = 1 << 20;
/// Limit of certificates in one value. The bundles of operating systems have about 150.
const MOST: usize = 2_000;
/// The elliptic curves of keys that Envoy accepts.
const CURVES: [&EcdsaSigningAlgorithm; 3] =
    [&ECDSA_P256_SHA256_ASN1_SIGNING, &ECDSA_P384_SHA384_ASN1_SIGNING, &ECDSA_P521_SHA512_ASN1_SIGNING];

/// The extension of certificates that requires an OCSP response with each handshake ("must-staple").
const MUST_STAPLE: Oid<'static> = oid!(1.3.6.1.5.5.7.1.24);

/// Secret bytes. The debug output contains their length only.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Hidden(Arc<[u8]>);

impl Hidden {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Hidden {
    fn from(bytes: Vec<u8>) -> Hidden {
        Hidden(bytes.into())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes)", self.0.len())
    }
}

/// A certificate with its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificatePair {
    /// The certificate chain, in PEM.
    pub certificate: Hidden,
    /// The private key, in PEM.
    pub key: Hidden,
    /// The OCSP response for the certificate, in DER.
    pub staple: Option<Hidden>,
}

/// CA certificates and certificate revocation lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Roots {
    /// Certificates, in PEM.
    pub certificates: Hidden,
    /// Certificate revocation lists, in PEM.
    pub revoked: Option<Hidden>,
}

/// A certificate, or CA certificates, of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content<T> {
    /// It can be used.
    Valid(T),
    /// It cannot be used.
    Invalid {
        /// The reason.
        flaw: Flaw,
        /// The last valid one, which stays in use.
        last: Option<T>,
    },
}

impl<T: Clone> Content<T> {
    fn new(parsed: Result<T, Flaw>) -> Content<T> {
        match parsed {
            Ok(content) => Content::Valid(content),
            Err(flaw) => Content::Invalid { flaw, last: None },
        }
    }

    /// The one in use.
    pub fn in_use(&self) -> Option<&T> {
        match self {
            Content::Valid(content) => Some(content),
            Content::Invalid { last, .. } => last.as_ref(),
        }
    }

    /// The reason why it cannot be used.
    pub fn flaw(&self) -> Option<&Flaw> {
        match self {
            Content::Valid(_) => None,
            Content::Invalid { flaw, .. } => Some(flaw),
        }
    }

    /// The content that stays in use when this one replaces `before`; `None` if that is this one itself.
    pub(crate) fn kept(&self, before: Option<&Content<T>>) -> Option<Content<T>> {
        match (self, before.and_then(Content::in_use)) {
            (Content::Invalid { flaw, last: None }, Some(last)) => {
                Some(Content::Invalid { flaw: flaw.clone(), last: Some(last.clone()) })
            }
            _ => None,
        }
    }
}

/// An invalid value. The message never contains the value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// The key of the value.
    pub key: &'static str,
    /// The problem.
    pub message: &'static str,
}

/// Values by their keys.
pub(crate) trait Values {
    /// The value of a key, unless it is empty.
    fn value(&self, key: &str) -> Option<&Hidden>;
}

/// A certificate with its key, and the reason why the OCSP response beside it is left out.
pub(crate) struct ParsedPair {
    pub(crate) content: Content<CertificatePair>,
    pub(crate) left_out: Option<Flaw>,
}

/// The certificate and key among the values, if any. As in Istio, the older names take precedence.
pub(crate) fn pair(values: &impl Values) -> Option<ParsedPair> {
    let names = [("cert", "key", None), ("tls.crt", "tls.key", Some(STAPLE))];
    let found = names.into_iter().find_map(|(certificate, key, staple)| {
        let values = (values.value(certificate)?, values.value(key)?, staple.and_then(|name| values.value(name)));
        Some(((certificate, key), values))
    });
    let (names, values) = found?;
    let mut left_out = None;
    let content = Content::new(checked_pair(names, values, &mut left_out));
    Some(ParsedPair { content, left_out })
}

fn checked_pair(
    (certificate_name, key_name): (&'static str, &'static str),
    (certificate, key, staple): (&Hidden, &Hidden, Option<&Hidden>),
    left_out: &mut Option<Flaw>,
) -> Result<CertificatePair, Flaw> {
    let leaf = leaf(certificate).map_err(|message| Flaw { key: certificate_name, message })?;
    fits(key, &leaf.public_key).map_err(|message| Flaw { key: key_name, message })?;
    let problem = staple.and_then(|staple| staple::check(staple.bytes(), &leaf.serial).err());
    *left_out = problem.map(|message| Flaw { key: STAPLE, message });
    let staple = staple.filter(|_| left_out.is_none()).cloned();
    if leaf.must_staple && staple.is_none() {
        let message = "the certificate requires an OCSP response (must-staple), and there is none for it";
        return Err(left_out.take().unwrap_or(Flaw { key: STAPLE, message }));
    }
    Ok(CertificatePair { certificate: certificate.clone(), key: key.clone(), staple })
}

/// The key of an OCSP response.
const STAPLE: &str = "tls.ocsp-staple";

/// The CA certificates among the values, if any. As in Istio, the older name takes precedence.
pub(crate) fn roots(values: &impl Values) -> Option<Content<Roots>> {
    let names = [("cacert", "crl"), ("ca.crt", "ca.crl")];
    let found = names.into_iter().find_map(|(certificates, revoked)| {
        Some((certificates, values.value(certificates)?, revoked, values.value(revoked)))
    });
    let (name, certificates, revoked_name, revoked) = found?;
    let checked = || {
        certificates_of(certificates).map_err(|message| Flaw { key: name, message })?;
        if let Some(list) = revoked {
            check_revoked(list).map_err(|message| Flaw { key: revoked_name, message })?;
        }
        Ok(Roots { certificates: certificates.clone(), revoked: revoked.cloned() })
    };
    Some(Content::new(checked()))
}

/// The certificates of a PEM document. All of them must be valid.
fn certificates_of(pem: &Hidden) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    if pem.bytes().len() > LONGEST {
        return Err("the value is longer than 1 MiB");
    }
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.bytes()).take(MOST + 1).collect();
    let found = found.map_err(|_| "the value is not PEM")?;
    match found.len() {
        0 => return Err("there is no certificate in PEM (BEGIN CERTIFICATE)"),
        count if count > MOST => return Err("there are more than 2000 certificates"),
        _ => {}
    }
    let sound = |der: &CertificateDer<'_>| X509Certificate::from_der(der).is_ok_and(|(rest, _)| rest.is_empty());
    match found.iter().all(sound) {
        true => Ok(found),
        false => Err("a certificate cannot be read: it is not X.509"),
    }
}

/// Facts about a server's certificate.
struct Leaf {
    public_key: Vec<u8>,
    serial: Vec<u8>,
    must_staple: bool,
}

/// The first certificate.
fn leaf(pem: &Hidden) -> Result<Leaf, &'static str> {
    let found = certificates_of(pem)?;
    let first = found.first().and_then(|der| X509Certificate::from_der(der).ok());
    let (_, certificate) = first.ok_or("there is no certificate")?;
    Ok(Leaf {
        public_key: certificate.public_key().subject_public_key.data.to_vec(),
        serial: certificate.raw_serial().to_vec(),
        must_staple: certificate.extensions().iter().any(|extension| extension.oid == MUST_STAPLE),
    })
}

/// Checks that Envoy accepts a private key, and that it belongs to the certificate.
fn fits(pem: &Hidden, public: &[u8]) -> Result<(), &'static str> {
    if pem.bytes().len() > LONGEST {
        return Err("the value is longer than 1 MiB");
    }
    let key = PrivateKeyDer::from_pem_slice(pem.bytes())
        .map_err(|_| "there is no private key in PEM (BEGIN PRIVATE KEY) without a passphrase")?;
    let own = match &key {
        PrivateKeyDer::Pkcs1(key) => rsa_public(rsa::KeyPair::from_der(key.secret_pkcs1_der()).ok()),
        PrivateKeyDer::Sec1(key) => CURVES
            .iter()
            .find_map(|curve| EcdsaKeyPair::from_private_key_der(curve, key.secret_sec1_der()).ok())
            .map(|pair| pair.public_key().as_ref().to_vec()),
        PrivateKeyDer::Pkcs8(key) => {
            let der = key.secret_pkcs8_der();
            let curves = CURVES.iter().find_map(|curve| EcdsaKeyPair::from_pkcs8(curve, der).ok());
            let elliptic = curves.map(|pair| pair.public_key().as_ref().to_vec());
            elliptic.or_else(|| rsa_public(rsa::KeyPair::from_pkcs8(der).ok()))
        }
        _ => None,
    };
    match own {
        Some(own) if own == public => Ok(()),
        Some(_) => Err("the private key is not that of the certificate"),
        None => Err("the private key is none that Envoy takes: RSA of 2048 bits or more, or P-256, P-384 or P-521"),
    }
}

fn rsa_public(pair: Option<rsa::KeyPair>) -> Option<Vec<u8>> {
    Some(pair?.public_key().as_ref().to_vec())
}

fn check_revoked(pem: &Hidden) -> Result<(), &'static str> {
    if pem.bytes().len() > LONGEST {
        return Err("the value is longer than 1 MiB");
    }
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(pem.bytes()).take(MOST).collect();
    let lists = lists.map_err(|_| "the value is not PEM")?;
    let sound = |der: &CertificateRevocationListDer<'_>| {
        CertificateRevocationList::from_der(der).is_ok_and(|(rest, _)| rest.is_empty())
    };
    match !lists.is_empty() && lists.iter().all(sound) {
        true => Ok(()),
        false => Err("there is no list of revoked certificates in PEM (BEGIN X509 CRL)"),
    }
}

#[cfg(test)]
mod tests;
