//! Verification of the signatures of requests and revocation lists.

use aws_lc_rs::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use x509_parser::oid_registry as oids;
use x509_parser::x509::{AlgorithmIdentifier, SubjectPublicKeyInfo};

/// The elliptic curves that keys may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Curve {
    P256,
    P384,
}

/// The family of a public key; `None` for all that are not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    Rsa,
    Ec(Curve),
}

pub(crate) fn family(key: &SubjectPublicKeyInfo<'_>) -> Option<Family> {
    let algorithm = &key.algorithm;
    if algorithm.algorithm == oids::OID_PKCS1_RSAENCRYPTION {
        return Some(Family::Rsa);
    }
    if algorithm.algorithm != oids::OID_KEY_TYPE_EC_PUBLIC_KEY {
        return None;
    }
    let curve = algorithm.parameters.as_ref()?.as_oid().ok()?;
    match curve {
        _ if curve == oids::OID_EC_P256 => Some(Family::Ec(Curve::P256)),
        _ if curve == oids::OID_NIST_EC_P384 => Some(Family::Ec(Curve::P384)),
        _ => None,
    }
}

/// Whether the signature of a message is valid. SHA-1 and RSA keys below 2048 bits are refused.
pub(crate) fn is_valid(
    key: &SubjectPublicKeyInfo<'_>,
    algorithm: &AlgorithmIdentifier<'_>,
    message: &[u8],
    signature: &[u8],
) -> bool {
    let oid = &algorithm.algorithm;
    let verification: &'static dyn VerificationAlgorithm = match family(key) {
        Some(Family::Rsa) if *oid == oids::OID_PKCS1_SHA256WITHRSA => &signature::RSA_PKCS1_2048_8192_SHA256,
        Some(Family::Rsa) if *oid == oids::OID_PKCS1_SHA384WITHRSA => &signature::RSA_PKCS1_2048_8192_SHA384,
        Some(Family::Rsa) if *oid == oids::OID_PKCS1_SHA512WITHRSA => &signature::RSA_PKCS1_2048_8192_SHA512,
        Some(Family::Ec(Curve::P256)) if *oid == oids::OID_SIG_ECDSA_WITH_SHA256 => &signature::ECDSA_P256_SHA256_ASN1,
        Some(Family::Ec(Curve::P256)) if *oid == oids::OID_SIG_ECDSA_WITH_SHA384 => &signature::ECDSA_P256_SHA384_ASN1,
        Some(Family::Ec(Curve::P384)) if *oid == oids::OID_SIG_ECDSA_WITH_SHA256 => &signature::ECDSA_P384_SHA256_ASN1,
        Some(Family::Ec(Curve::P384)) if *oid == oids::OID_SIG_ECDSA_WITH_SHA384 => &signature::ECDSA_P384_SHA384_ASN1,
        _ => return false,
    };
    UnparsedPublicKey::new(verification, &key.subject_public_key.data).verify(message, signature).is_ok()
}
