//! Private keys of the authority and of the control plane's own certificates.

use std::fmt;
use std::sync::Arc;

use rcgen::{KeyPair, PublicKeyData as _, RsaKeySize, SigningKey as _};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;

/// The largest accepted key file, in bytes.
pub const MAX_KEY: usize = 16 * 1024;

/// The kind of a private key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// RSA with this many bits. New keys may have 2048, 3072 or 4096; 2048 to 8192 are accepted.
    Rsa(u32),
    /// ECDSA on the curve P-256.
    P256,
    /// ECDSA on the curve P-384.
    P384,
}

impl Default for KeyKind {
    /// RSA with 2048 bits, as istiod generates.
    fn default() -> KeyKind {
        KeyKind::Rsa(2048)
    }
}

/// A private key that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is no private key in PEM, or it is encrypted or damaged.
    #[error("is not an unencrypted private key in PEM (PKCS#8, PKCS#1 or SEC1); RSA keys have 2048 to 8192 bits")]
    Unreadable,
    /// The key's algorithm is not supported.
    #[error("is neither an RSA nor a P-256 or P-384 key; create a key of one of these kinds")]
    Unsupported,
    /// RSA keys of this size cannot be generated.
    #[error("cannot generate an RSA key with {0} bits; use 2048, 3072 or 4096")]
    Size(u32),
    /// The cryptographic library failed.
    #[error("the cryptographic library failed")]
    Library,
}

/// A private key. Clones are cheap and share the key; debug output shows its kind only.
#[derive(Clone)]
pub struct PrivateKey(Arc<Inner>);

struct Inner {
    pair: KeyPair,
    kind: KeyKind,
    pem: String,
}

impl PrivateKey {
    /// Generates a key.
    ///
    /// # Errors
    /// The size of an RSA key is not 2048, 3072 or 4096, or the library fails.
    pub fn generate(kind: KeyKind) -> Result<PrivateKey, KeyError> {
        let size = |size| KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, size);
        let pair = match kind {
            KeyKind::Rsa(2048) => size(RsaKeySize::_2048),
            KeyKind::Rsa(3072) => size(RsaKeySize::_3072),
            KeyKind::Rsa(4096) => size(RsaKeySize::_4096),
            KeyKind::Rsa(bits) => return Err(KeyError::Size(bits)),
            KeyKind::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            KeyKind::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        };
        let pair = pair.map_err(|_| KeyError::Library)?;
        let pem = pair.serialize_pem();
        Ok(PrivateKey(Arc::new(Inner { pair, kind, pem })))
    }

    /// Parses a key in PEM: PKCS#8, PKCS#1 or SEC1.
    ///
    /// # Errors
    /// The text is no such key, or the key is weak or of another kind.
    pub fn from_pem(pem: &[u8]) -> Result<PrivateKey, KeyError> {
        let text = std::str::from_utf8(pem).ok().filter(|text| text.len() <= MAX_KEY);
        let text = text.ok_or(KeyError::Unreadable)?;
        let der = PrivateKeyDer::from_pem_slice(pem).map_err(|_| KeyError::Unreadable)?;
        let pair = KeyPair::try_from(&der).map_err(|_| KeyError::Unreadable)?;
        let algorithm = pair.algorithm();
        let kind = if algorithm == &rcgen::PKCS_ECDSA_P256_SHA256 {
            KeyKind::P256
        } else if algorithm == &rcgen::PKCS_ECDSA_P384_SHA384 {
            KeyKind::P384
        } else if algorithm == &rcgen::PKCS_RSA_SHA256 {
            KeyKind::Rsa(rsa_bits(pair.der_bytes()).ok_or(KeyError::Unreadable)?)
        } else {
            return Err(KeyError::Unsupported);
        };
        Ok(PrivateKey(Arc::new(Inner { pair, kind, pem: text.to_owned() })))
    }

    /// The kind of the key.
    pub fn kind(&self) -> KeyKind {
        self.0.kind
    }

    /// The private key itself, in PEM. Store it encrypted ([`crate::sealed`]) or in a Secret; never log it.
    pub fn expose_pem(&self) -> &str {
        &self.0.pem
    }

    /// The public key as an encoded SubjectPublicKeyInfo.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        self.0.pair.subject_public_key_info()
    }

    /// The bits of the public key, from which key identifiers are derived.
    pub(crate) fn public_bits(&self) -> &[u8] {
        self.0.pair.der_bytes()
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.0.pair.sign(message).map_err(|_| KeyError::Library)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({:?})", self.0.kind)
    }
}

/// The number of bits of the modulus in an encoded RSAPublicKey.
fn rsa_bits(der: &[u8]) -> Option<u32> {
    yasna::parse_der(der, |reader| {
        reader.read_sequence(|reader| {
            let (modulus, _) = reader.next().read_bigint_bytes()?;
            reader.next().read_bigint_bytes()?;
            Ok(crate::csr::bits(&modulus))
        })
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_parse_back_and_are_never_shown() {
        for kind in [KeyKind::P256, KeyKind::P384, KeyKind::Rsa(2048)] {
            let key = PrivateKey::generate(kind).unwrap();
            let again = PrivateKey::from_pem(key.expose_pem().as_bytes()).unwrap();
            assert_eq!((again.kind(), again.public_key()), (kind, key.public_key()));
            assert_eq!(format!("{again:?}"), format!("PrivateKey({kind:?})"));
        }
    }

    #[test]
    fn other_keys_are_refused() {
        let ed = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().serialize_pem();
        assert_eq!(PrivateKey::from_pem(ed.as_bytes()).unwrap_err(), KeyError::Unsupported);
        let wide = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap().serialize_pem();
        assert_eq!(PrivateKey::from_pem(wide.as_bytes()).unwrap_err(), KeyError::Unsupported);
        let with_parameters = format!(
            "{}{}",
            crate::certificate::pem("EC PARAMETERS", &[6, 8, 42, 134, 72, 206, 61, 3, 1, 7]),
            KeyPair::generate().unwrap().serialize_pem()
        );
        assert_eq!(
            PrivateKey::from_pem(with_parameters.as_bytes()).unwrap().kind(),
            KeyKind::P256,
            "as openssl writes it"
        );
        assert_eq!(PrivateKey::from_pem(b"secret").unwrap_err(), KeyError::Unreadable);
        assert_eq!(PrivateKey::generate(KeyKind::Rsa(1024)).unwrap_err(), KeyError::Size(1024));
    }
}
