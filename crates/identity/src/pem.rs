//! Certificates and keys in PEM.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// A certificate or key that cannot be used. The text never shows the content.
#[derive(Clone, PartialEq, Eq, thiserror::Error, Debug)]
pub(crate) enum PemError {
    /// There is no certificate.
    #[error("there is no certificate in PEM")]
    NoCertificate,
    /// A certificate cannot be decoded.
    #[error("certificate {0} is not valid")]
    Certificate(usize),
    /// There is no private key that can be used.
    #[error("there is no private key in PEM, or it is of a kind that is not supported")]
    Key,
    /// The key is that of another certificate.
    #[error("the private key does not belong to the certificate")]
    Mismatch,
}

/// A block of PEM.
pub(crate) fn block(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let lines = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let body: String = lines.flat_map(|line| [line, "\n".into()]).collect();
    format!("-----BEGIN {label}-----\n{body}-----END {label}-----\n")
}

/// The certificates of a chain, at least one.
fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let certificates = CertificateDer::pem_slice_iter(pem).enumerate();
    let chain: Vec<_> = certificates
        .map(|(index, read)| read.map_err(|_| PemError::Certificate(index + 1)))
        .collect::<Result<_, _>>()?;
    if chain.is_empty() { Err(PemError::NoCertificate) } else { Ok(chain) }
}

/// Checks that a chain belongs to a key, and returns the moment at which its leaf expires.
pub(crate) fn check_pair(chain_pem: &[u8], key_pem: &[u8]) -> Result<SystemTime, PemError> {
    let chain = chain(chain_pem)?;
    let expires = expires(&chain[0]).ok_or(PemError::Certificate(1))?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| PemError::Key)?;
    let key = any_supported_type(&key).map_err(|_| PemError::Key)?;
    CertifiedKey::new(chain, key).keys_match().map_err(|_| PemError::Mismatch)?;
    Ok(expires)
}

fn expires(certificate: &[u8]) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    let seconds = certificate.validity().not_after.timestamp();
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

/// Merges trust roots: each certificate once, in the order of their encoding. Certificates that cannot be decoded are left out,
/// because a proxy would reject all others with them.
pub(crate) fn bundle<'a>(pems: impl IntoIterator<Item = &'a [u8]>) -> Result<String, PemError> {
    let certificates = pems.into_iter().flat_map(CertificateDer::pem_slice_iter).flatten();
    let valid = certificates.filter(|der| X509Certificate::from_der(der).is_ok_and(|(rest, _)| rest.is_empty()));
    let roots: BTreeSet<String> = valid.map(|der| block("CERTIFICATE", &der)).collect();
    if roots.is_empty() { Err(PemError::NoCertificate) } else { Ok(roots.into_iter().collect()) }
}

/// Joins blocks of PEM; each begins on a new line.
pub(crate) fn concat(blocks: &[String]) -> String {
    blocks.iter().flat_map(|block| [block.trim_end(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn issued() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (CertificateParams::default().self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    #[test]
    fn a_pair_must_match() {
        let ((one, key), (two, _)) = (issued(), issued());
        assert!(check_pair(one.as_bytes(), key.as_bytes()).unwrap() > SystemTime::now());
        assert_eq!(check_pair(two.as_bytes(), key.as_bytes()), Err(PemError::Mismatch));
        assert_eq!(check_pair(one.as_bytes(), one.as_bytes()), Err(PemError::Key));
        assert_eq!(check_pair(key.as_bytes(), key.as_bytes()), Err(PemError::NoCertificate));
    }

    #[test]
    fn roots_are_merged_and_wrong_ones_left_out() {
        let ((one, _), (two, _)) = (issued(), issued());
        let wrong = block("CERTIFICATE", b"not a certificate");
        let merged = bundle([format!("{two}{wrong}{one}").as_bytes(), one.as_bytes()]).unwrap();
        assert_eq!(merged.matches("BEGIN").count(), 2);
        assert_eq!(bundle([one.as_bytes(), two.as_bytes()]).unwrap(), merged);
        assert_eq!(bundle([wrong.as_bytes()]), Err(PemError::NoCertificate));
        assert_eq!(concat(&["a".to_owned(), "b\n\n".to_owned()]), "a\nb\n");
    }

    proptest! {
        #[test]
        fn no_input_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300), body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let blocks = format!("{}{}", block("CERTIFICATE", &body), block("EC PRIVATE KEY", &bytes));
            for text in [&bytes[..], blocks.as_bytes()] {
                let _ = (bundle([text]), check_pair(text, text));
            }
        }

        #[test]
        fn a_block_is_read_back(body in proptest::collection::vec(any::<u8>(), 0..300)) {
            let read = CertificateDer::from_pem_slice(block("CERTIFICATE", &body).as_bytes()).unwrap();
            prop_assert_eq!(&*read, &body[..]);
        }
    }
}
