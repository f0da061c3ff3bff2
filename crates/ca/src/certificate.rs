//! Certificates: parsed once, with the encoded parts that signing repeats.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The largest accepted certificate, in bytes of DER.
pub const MAX_CERTIFICATE: usize = 64 * 1024;
/// The largest accepted PEM text, in bytes: the limit of a Kubernetes Secret.
pub const MAX_PEM: usize = 1024 * 1024;
/// The most certificates in one PEM text.
pub const MAX_CERTIFICATES: usize = 512;

/// A certificate that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// The text or the certificate is larger than the limit.
    #[error("is larger than {limit} bytes; remove what does not belong there")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
    /// There are too many certificates.
    #[error("has more than {MAX_CERTIFICATES} certificates; remove expired ones")]
    TooMany,
    /// There is no PEM block with a certificate.
    #[error("has no certificate; it must have PEM blocks that begin with -----BEGIN CERTIFICATE-----")]
    None,
    /// The PEM text is damaged.
    #[error("is not valid PEM; write it again, with line breaks")]
    Pem,
    /// A certificate is not valid DER.
    #[error("its certificate number {number} is damaged; write it again")]
    Malformed {
        /// The position, from 1.
        number: usize,
    },
}

/// An X.509 certificate. Clones are cheap.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(Arc<Parsed>);

#[derive(PartialEq, Eq)]
struct Parsed {
    der: CertificateDer<'static>,
    subject: Vec<u8>,
    public_key: Vec<u8>,
    key_id: Option<Vec<u8>>,
    not_before: i64,
    not_after: i64,
    is_authority: bool,
    is_self_issued: bool,
    shown: String,
}

impl Certificate {
    /// Parses one certificate in DER.
    ///
    /// # Errors
    /// It is too large, damaged, or followed by other bytes.
    pub fn from_der(der: &[u8]) -> Result<Certificate, CertificateError> {
        if der.len() > MAX_CERTIFICATE {
            return Err(CertificateError::TooLarge { limit: MAX_CERTIFICATE });
        }
        let malformed = CertificateError::Malformed { number: 1 };
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| malformed.clone())?;
        if !rest.is_empty() {
            return Err(malformed);
        }
        let key_id = parsed.iter_extensions().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
            _ => None,
        });
        // Without a key usage extension, the key may be used for everything.
        let may_sign = match parsed.key_usage() {
            Ok(usage) => usage.is_none_or(|usage| usage.value.key_cert_sign()),
            Err(_) => false,
        };
        let is_ca = parsed.basic_constraints().ok().flatten().is_some_and(|constraints| constraints.value.ca);
        Ok(Certificate(Arc::new(Parsed {
            subject: parsed.subject().as_raw().to_vec(),
            public_key: parsed.public_key().raw.to_vec(),
            key_id,
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
            is_authority: is_ca && may_sign,
            is_self_issued: parsed.subject().as_raw() == parsed.issuer().as_raw(),
            shown: parsed.subject().to_string().chars().take(200).collect(),
            der: CertificateDer::from(der.to_vec()),
        })))
    }

    /// Parses all certificates of a PEM text. Other PEM blocks are skipped.
    ///
    /// # Errors
    /// There is no certificate, or one is damaged, or there are too many.
    pub fn list(pem: &[u8]) -> Result<Vec<Certificate>, CertificateError> {
        if pem.len() > MAX_PEM {
            return Err(CertificateError::TooLarge { limit: MAX_PEM });
        }
        let mut found = Vec::new();
        for der in CertificateDer::pem_slice_iter(pem) {
            let der = der.map_err(|_| CertificateError::Pem)?;
            if found.len() == MAX_CERTIFICATES {
                return Err(CertificateError::TooMany);
            }
            let number = found.len() + 1;
            found.push(Certificate::from_der(&der).map_err(|error| match error {
                CertificateError::Malformed { .. } => CertificateError::Malformed { number },
                other => other,
            })?);
        }
        if found.is_empty() { Err(CertificateError::None) } else { Ok(found) }
    }

    /// The certificate in DER.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.0.der
    }

    /// The certificate in PEM, with a line break at the end.
    pub fn pem(&self) -> String {
        pem("CERTIFICATE", &self.0.der)
    }

    /// The first moment at which the certificate is valid.
    pub fn not_before(&self) -> SystemTime {
        time(self.0.not_before)
    }

    /// The moment at which the certificate expires.
    pub fn not_after(&self) -> SystemTime {
        time(self.0.not_after)
    }

    /// Whether the certificate is valid at a time.
    pub fn is_valid_at(&self, now: SystemTime) -> bool {
        let now = seconds(now);
        self.0.not_before <= now && now < self.0.not_after
    }

    /// Whether the certificate may sign others: it is a CA, and its key usage does not exclude it.
    pub fn is_authority(&self) -> bool {
        self.0.is_authority
    }

    /// The subject as text, for messages; truncated to 200 characters.
    pub fn subject(&self) -> &str {
        &self.0.shown
    }

    pub(crate) fn encoded_subject(&self) -> &[u8] {
        &self.0.subject
    }

    pub(crate) fn public_key(&self) -> &[u8] {
        &self.0.public_key
    }

    pub(crate) fn key_id(&self) -> Option<&[u8]> {
        self.0.key_id.as_deref()
    }

    /// Whether both are certificates of one authority, with the same name and key: one verifies what the other one does.
    pub(crate) fn is_same_authority(&self, other: &Certificate) -> bool {
        self.encoded_subject() == other.encoded_subject()
            && self.public_key() == other.public_key()
            && self.key_id() == other.key_id()
    }

    /// Whether subject and issuer are the same, as in roots.
    pub(crate) fn is_self_issued(&self) -> bool {
        self.0.is_self_issued
    }

    pub(crate) fn end(&self) -> i64 {
        self.0.not_after
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({})", self.subject())
    }
}

/// All certificates as one PEM text.
pub fn bundle<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> String {
    certificates.into_iter().map(Certificate::pem).collect()
}

/// Seconds since 1970; negative before.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    let whole = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => whole(since),
        Err(error) => -whole(error.duration()),
    }
}

pub(crate) fn time(seconds: i64) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A PEM block with lines of 64 characters.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    // Base64 is ASCII, so that every index is a boundary.
    for start in (0..text.len()).step_by(64) {
        out.push_str(&text[start..text.len().min(start + 64)]);
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::{now, root};

    #[test]
    fn a_list_parses_back_and_names_the_damaged_one() {
        let root = root("mesh", now());
        let certificate = &root.roots()[0];
        let text = format!("# comment\n{}\n{}", certificate.pem(), certificate.pem());
        let list = Certificate::list(text.as_bytes()).unwrap();
        assert_eq!(list, [certificate.clone(), certificate.clone()]);
        assert!(certificate.is_authority() && certificate.is_valid_at(now()));
        let broken = format!("{}{}", certificate.pem(), pem("CERTIFICATE", b"nothing"));
        assert_eq!(Certificate::list(broken.as_bytes()), Err(CertificateError::Malformed { number: 2 }));
        assert_eq!(Certificate::list(b""), Err(CertificateError::None));
        assert!(Certificate::list(&vec![b'a'; MAX_PEM + 1]).is_err());
        let many = certificate.pem().repeat(MAX_CERTIFICATES + 1);
        assert!(matches!(
            Certificate::list(many.as_bytes()),
            Err(CertificateError::TooMany | CertificateError::TooLarge { .. })
        ));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Certificate::from_der(&bytes);
            let _ = Certificate::list(&bytes);
            let _ = Certificate::list(pem("CERTIFICATE", &bytes).as_bytes());
        }

        #[test]
        fn seconds_and_time_agree(at in -60_000_000_000i64..300_000_000_000) {
            prop_assert_eq!(seconds(time(at)), at);
        }
    }
}
