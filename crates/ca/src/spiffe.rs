//! SPIFFE bundles: the roots of another trust domain, as a JWK set that its bundle endpoint serves.
//!
//! Only keys with the use `x509-svid` are read. Each has one root in `x5c`. Other keys and unknown fields are ignored, as the
//! specification demands.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::certificate::{Certificate, CertificateError};

/// The largest bundle, in bytes.
pub const MAX_BUNDLE: usize = 1024 * 1024;
/// The most roots in a bundle.
pub const MAX_ROOTS: usize = 256;
/// The limits of the refresh interval that a bundle may ask for.
pub const REFRESH: std::ops::RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(86_400);

/// The use of keys that are roots of X.509 identities.
const X509: &str = "x509-svid";

/// A bundle that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// It is too large.
    #[error("the bundle has more than {MAX_BUNDLE} bytes or {MAX_ROOTS} roots")]
    TooLarge,
    /// It is not the JSON of a bundle.
    #[error("this is not a SPIFFE bundle: {0}")]
    Json(String),
    /// A key for X.509 identities does not have exactly one certificate.
    #[error("key number {number} must have exactly one certificate in `x5c`, in base64")]
    Key {
        /// The position, from 1.
        number: usize,
    },
    /// A certificate cannot be used.
    #[error("the certificate of key number {number} {error}")]
    Certificate {
        /// The position, from 1.
        number: usize,
        /// The reason.
        error: CertificateError,
    },
    /// A certificate is not that of an authority.
    #[error("the certificate of key number {number} ({subject}) is not a certificate authority")]
    NotAuthority {
        /// The position, from 1.
        number: usize,
        /// Its subject.
        subject: String,
    },
    /// There is no root.
    #[error("the bundle has no key with the use {X509:?}")]
    None,
}

/// The roots of a trust domain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bundle {
    /// The roots.
    pub roots: Vec<Certificate>,
    /// The interval after which to read the bundle again (`spiffe_refresh_hint`), within [`REFRESH`].
    pub refresh: Option<Duration>,
    /// The number that grows with each change (`spiffe_sequence`).
    pub sequence: Option<u64>,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    keys: Vec<Key>,
    #[serde(default)]
    spiffe_sequence: Option<u64>,
    #[serde(default)]
    spiffe_refresh_hint: Option<f64>,
}

#[derive(Deserialize)]
struct Key {
    #[serde(default, rename = "use")]
    usage: String,
    #[serde(default)]
    x5c: Vec<String>,
}

/// Parses a bundle.
///
/// # Errors
/// It is too large, not JSON, or one of its roots cannot be used: then none is.
pub fn parse(json: &[u8]) -> Result<Bundle, BundleError> {
    if json.len() > MAX_BUNDLE {
        return Err(BundleError::TooLarge);
    }
    let document: Document = serde_json::from_slice(json)
        .map_err(|error| BundleError::Json(error.to_string().chars().take(200).collect()))?;
    let mut roots: Vec<Certificate> = Vec::new();
    for (at, key) in document.keys.iter().enumerate().filter(|(_, key)| key.usage == X509) {
        let root = root(at + 1, key)?;
        if roots.len() == MAX_ROOTS {
            return Err(BundleError::TooLarge);
        }
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
    if roots.is_empty() {
        return Err(BundleError::None);
    }
    let hint = document.spiffe_refresh_hint.filter(|hint| hint.is_finite() && *hint > 0.0);
    let refresh = hint.map(|hint| {
        let (least, most) = (REFRESH.start(), REFRESH.end());
        Duration::from_secs_f64(hint.min(most.as_secs_f64())).clamp(*least, *most)
    });
    Ok(Bundle { roots, refresh, sequence: document.spiffe_sequence })
}

fn root(number: usize, key: &Key) -> Result<Certificate, BundleError> {
    let [text] = &key.x5c[..] else {
        return Err(BundleError::Key { number });
    };
    let der = STANDARD.decode(text).map_err(|_| BundleError::Key { number })?;
    let root = Certificate::from_der(&der).map_err(|error| BundleError::Certificate { number, error })?;
    match root.is_authority() {
        true => Ok(root),
        false => Err(BundleError::NotAuthority { number, subject: root.subject().to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::tests::{now, root as authority};

    fn key(usage: &str, certificates: &[&Certificate]) -> Value {
        let x5c: Vec<String> = certificates.iter().map(|one| STANDARD.encode(one.der())).collect();
        json!({"kty": "EC", "use": usage, "x5c": x5c, "crv": "P-256"})
    }

    fn read(document: &Value) -> Result<Bundle, BundleError> {
        parse(document.to_string().as_bytes())
    }

    #[test]
    fn the_roots_of_x509_identities_are_read() {
        let (one, two) = (authority("one", now()), authority("two", now()));
        let keys = [
            key("jwt-svid", &[]),
            key(X509, &[one.issuer()]),
            key(X509, &[two.issuer()]),
            key(X509, &[one.issuer()]),
            json!({"kty": "RSA"}),
        ];
        let document = json!({"keys": keys, "spiffe_sequence": 7, "spiffe_refresh_hint": 600, "other": {}});
        let bundle = read(&document).unwrap();
        assert_eq!(bundle.roots, [one.issuer().clone(), two.issuer().clone()]);
        assert_eq!((bundle.sequence, bundle.refresh), (Some(7), Some(Duration::from_secs(600))));
    }

    #[test]
    fn the_refresh_interval_is_bounded() {
        let one = authority("one", now());
        let hint = |hint: Value| {
            read(&json!({"keys": [key(X509, &[one.issuer()])], "spiffe_refresh_hint": hint})).unwrap().refresh
        };
        assert_eq!(hint(json!(1)), Some(*REFRESH.start()));
        assert_eq!(hint(json!(1e300)), Some(*REFRESH.end()));
        assert_eq!((hint(json!(-5)), hint(json!(0)), hint(Value::Null)), (None, None, None));
    }

    #[test]
    fn a_bundle_with_a_bad_root_is_refused_as_a_whole() {
        let one = authority("one", now());
        assert_eq!(read(&json!({"keys": []})), Err(BundleError::None));
        assert!(matches!(parse(b"<html>"), Err(BundleError::Json(_))));
        assert_eq!(parse(&vec![b' '; MAX_BUNDLE + 1]), Err(BundleError::TooLarge));
        let good = key(X509, &[one.issuer()]);
        let refused = |bad: Value| read(&json!({"keys": [good, bad]})).unwrap_err();
        assert_eq!(refused(key(X509, &[])), BundleError::Key { number: 2 });
        assert_eq!(refused(key(X509, &[one.issuer(), one.issuer()])), BundleError::Key { number: 2 });
        assert_eq!(refused(json!({"use": X509, "x5c": ["?"]})), BundleError::Key { number: 2 });
        let damaged = refused(json!({"use": X509, "x5c": ["AAAA"]}));
        assert!(matches!(damaged, BundleError::Certificate { number: 2, .. }));
        let csr = crate::Csr::from_pem(&crate::tests::request().0).unwrap();
        let leaf = one.issue(&csr, &[crate::tests::identity("a")], 0, &crate::Lifetimes::default(), now()).unwrap();
        let leaf = Certificate::from_der(&leaf.der).unwrap();
        assert!(matches!(refused(key(X509, &[&leaf])), BundleError::NotAuthority { number: 2, .. }));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in "\\PC{0,40}", hint in any::<f64>()) {
            let _ = parse(&bytes);
            let document = json!({"keys": [{"use": X509, "x5c": [text]}], "spiffe_refresh_hint": hint});
            prop_assert!(read(&document).is_err());
        }
    }
}
