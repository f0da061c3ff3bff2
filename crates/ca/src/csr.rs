//! Certificate signing requests. Only the public key of a request is used, and whether it has a common name; names and
//! extensions that it asks for are ignored.

use rustls_pki_types::CertificateSigningRequestDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::der;
use crate::signature::{self, Curve, Family};

/// The largest accepted request, in bytes of PEM or DER.
pub const MAX_REQUEST: usize = 32 * 1024;
/// The sizes of RSA keys that are signed, in bits.
pub const RSA_BITS: std::ops::RangeInclusive<u32> = 2048..=8192;
/// The largest public exponent of an RSA key, in bits. Larger ones only make each verification slower.
const EXPONENT_BITS: u32 = 32;

/// A request that cannot be signed. Its gRPC code is `InvalidArgument`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsrError {
    /// The request is larger than the limit.
    #[error("the certificate signing request has {size} bytes; at most {MAX_REQUEST} are accepted")]
    TooLarge {
        /// The size in bytes.
        size: usize,
    },
    /// The text has no PEM block with a request.
    #[error("the certificate signing request is not PEM; it must begin with -----BEGIN CERTIFICATE REQUEST-----")]
    Pem,
    /// The request is not valid DER.
    #[error("the certificate signing request is malformed")]
    Malformed,
    /// The public key is of an unsupported kind.
    #[error("the certificate signing request has an unsupported key; use RSA, P-256 or P-384")]
    UnsupportedKey,
    /// The RSA key has too few or too many bits, or an unusual exponent.
    #[error(
        "the certificate signing request has an RSA key with {bits} bits and an exponent with {exponent} bits; \
         use {} to {} bits and an odd exponent with 2 to {EXPONENT_BITS} bits",
        RSA_BITS.start(),
        RSA_BITS.end()
    )]
    RsaKey {
        /// The bits of the modulus.
        bits: u32,
        /// The bits of the public exponent.
        exponent: u32,
    },
    /// The signature is not that of the request's own key.
    #[error(
        "the signature of the certificate signing request is invalid; sign it with the private key of its public key"
    )]
    Signature,
}

/// A verified request: the sender has the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Csr {
    public_key: Vec<u8>,
    has_common_name: bool,
}

impl Csr {
    /// Parses and verifies a request in PEM.
    ///
    /// # Errors
    /// The request is too large, malformed, not signed by its key, or its key is not accepted.
    pub fn from_pem(text: &str) -> Result<Csr, CsrError> {
        if text.len() > MAX_REQUEST {
            return Err(CsrError::TooLarge { size: text.len() });
        }
        // Older tools, such as Java's keytool, write this label.
        let text = text.replace(" NEW CERTIFICATE REQUEST-----", " CERTIFICATE REQUEST-----");
        let der = CertificateSigningRequestDer::from_pem_slice(text.as_bytes()).map_err(|_| CsrError::Pem)?;
        Csr::from_der(&der)
    }

    /// Parses and verifies a request in DER.
    ///
    /// # Errors
    /// As [`Csr::from_pem`].
    pub fn from_der(der: &[u8]) -> Result<Csr, CsrError> {
        if der.len() > MAX_REQUEST {
            return Err(CsrError::TooLarge { size: der.len() });
        }
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| CsrError::Malformed)?;
        if !rest.is_empty() {
            return Err(CsrError::Malformed);
        }
        let info = &request.certification_request_info;
        // The key is checked first, so that no time is spent on a signature of an extreme key.
        let public_key = checked_key(&info.subject_pki)?;
        let signature = &request.signature_value.data;
        if request.signature_value.unused_bits != 0
            || !signature::is_valid(&info.subject_pki, &request.signature_algorithm, info.raw, signature)
        {
            return Err(CsrError::Signature);
        }
        let has_common_name = info.subject.iter_common_name().any(|name| !name.as_slice().is_empty());
        Ok(Csr { public_key, has_common_name })
    }

    /// The public key as an encoded SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// Whether the subject has a common name. If so, the certificate gets one, too (from the caller's identity).
    pub fn has_common_name(&self) -> bool {
        self.has_common_name
    }
}

/// Checks a key and encodes it again, so that nothing else of the request gets into the certificate.
fn checked_key(key: &SubjectPublicKeyInfo<'_>) -> Result<Vec<u8>, CsrError> {
    match signature::family(key).ok_or(CsrError::UnsupportedKey)? {
        Family::Rsa => {
            let Ok(PublicKey::RSA(rsa)) = key.parsed() else {
                return Err(CsrError::Malformed);
            };
            let (size, exponent) = (bits(rsa.modulus), bits(rsa.exponent));
            let odd = rsa.exponent.last().is_some_and(|last| last & 1 == 1);
            if !RSA_BITS.contains(&size) || !odd || !(2..=EXPONENT_BITS).contains(&exponent) {
                return Err(CsrError::RsaKey { bits: size, exponent });
            }
            Ok(der::rsa_public_key(rsa.modulus, rsa.exponent))
        }
        Family::Ec(curve) => {
            let point = &key.subject_public_key.data;
            let length = match curve {
                Curve::P256 => 65,
                Curve::P384 => 97,
            };
            if point.len() != length || point[0] != 4 {
                return Err(CsrError::UnsupportedKey);
            }
            Ok(der::ec_public_key(curve, point))
        }
    }
}

/// The number of bits of an unsigned big-endian number.
pub(crate) fn bits(number: &[u8]) -> u32 {
    let start = number.iter().position(|byte| *byte != 0);
    start.map_or(0, |start| {
        let rest = u32::try_from(number.len() - start - 1).unwrap_or(u32::MAX / 8 - 1);
        rest * 8 + 8 - number[start].leading_zeros()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};

    use super::*;
    use crate::certificate::pem;
    use crate::tests::request;

    #[test]
    fn only_the_public_key_is_taken() {
        for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384, &rcgen::PKCS_RSA_SHA256] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let mut params = CertificateParams::new(vec!["attacker.example".to_owned()]).unwrap();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let text = params.serialize_request(&key).unwrap().pem().unwrap();
            let csr = Csr::from_pem(&text).unwrap();
            assert_eq!(csr, Csr { public_key: key.subject_public_key_info(), has_common_name: true });
        }
        let (_, der) = request();
        assert!(!Csr::from_der(&der).unwrap().has_common_name());
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let (_, der) = request();
        assert_eq!(Csr::from_pem("nothing"), Err(CsrError::Pem));
        assert_eq!(Csr::from_pem(&pem("CERTIFICATE REQUEST", b"abc")), Err(CsrError::Malformed));
        assert!(matches!(Csr::from_pem(&"a".repeat(MAX_REQUEST + 1)), Err(CsrError::TooLarge { .. })));
        assert!(matches!(Csr::from_der(&vec![0x30; MAX_REQUEST + 1]), Err(CsrError::TooLarge { .. })));
        let mut longer = der.clone();
        longer.push(0);
        assert_eq!(Csr::from_der(&longer), Err(CsrError::Malformed));
        let mut forged = der;
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(Csr::from_der(&forged), Err(CsrError::Signature));
    }

    #[test]
    fn the_label_of_older_tools_is_accepted() {
        let (_, der) = request();
        let expected = Csr::from_der(&der);
        assert!(expected.is_ok());
        assert_eq!(Csr::from_pem(&pem("NEW CERTIFICATE REQUEST", &der)), expected);
        assert_eq!(Csr::from_pem(&pem("CERTIFICATE", &der)), Err(CsrError::Pem));
        assert_eq!(Csr::from_pem(""), Err(CsrError::Pem));
    }

    #[test]
    fn other_keys_are_refused() {
        for algorithm in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P521_SHA512] {
            let key = KeyPair::generate_for(algorithm).unwrap();
            let der = CertificateParams::default().serialize_request(&key).unwrap();
            assert_eq!(Csr::from_der(der.der()), Err(CsrError::UnsupportedKey));
        }
    }

    /// A request with any RSA key and an empty signature: the key is judged first.
    fn rsa_request(modulus: &[u8], exponent: &[u8]) -> Result<Csr, CsrError> {
        let key = der::rsa_public_key(modulus, exponent);
        let der = yasna::construct_der(|w| {
            w.write_sequence(|w| {
                w.next().write_sequence(|w| {
                    w.next().write_u8(0);
                    w.next().write_der(&[0x30, 0]);
                    w.next().write_der(&key);
                    w.next().write_tagged_implicit(yasna::Tag::context(0), |w| w.write_set(|_| ()));
                });
                w.next().write_sequence(|w| {
                    w.next().write_oid(&yasna::models::ObjectIdentifier::from_slice(&[1, 2, 840, 113549, 1, 1, 11]));
                    w.next().write_null();
                });
                w.next().write_bitvec_bytes(&[0; 256], 2048);
            });
        });
        Csr::from_der(&der)
    }

    #[test]
    fn weak_and_extreme_rsa_keys_are_refused_before_their_signature_is_verified() {
        let e: &[u8] = &[1, 0, 1];
        assert_eq!(rsa_request(&[0xff; 128], e), Err(CsrError::RsaKey { bits: 1024, exponent: 17 }));
        assert_eq!(rsa_request(&[0xff; 1025], e), Err(CsrError::RsaKey { bits: 8200, exponent: 17 }));
        assert_eq!(rsa_request(&[0xff; 256], &[2]), Err(CsrError::RsaKey { bits: 2048, exponent: 2 }));
        assert_eq!(rsa_request(&[0xff; 256], &[1]), Err(CsrError::RsaKey { bits: 2048, exponent: 1 }));
        assert_eq!(rsa_request(&[0xff; 256], &[0xff; 200]), Err(CsrError::RsaKey { bits: 2048, exponent: 1600 }));
        assert_eq!(rsa_request(&[0xff; 256], e), Err(CsrError::Signature));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(Csr::from_der(&bytes).is_err());
            prop_assert!(Csr::from_pem(&String::from_utf8_lossy(&bytes)).is_err());
            prop_assert!(Csr::from_pem(&pem("CERTIFICATE REQUEST", &bytes)).is_err());
        }

        #[test]
        fn a_changed_request_never_gets_another_certificate(at in any::<prop::sample::Index>(), flip in 1u8..) {
            let (_, mut der) = request();
            let original = Csr::from_der(&der).unwrap();
            let at = at.index(der.len());
            der[at] ^= flip;
            // The parser is lenient about the tag of the signature algorithm, which is not signed. Nothing is taken from it.
            match Csr::from_der(&der) {
                Ok(csr) => prop_assert_eq!(csr, original, "byte {}", at),
                Err(error) => prop_assert!(!error.to_string().is_empty()),
            }
        }
    }
}
