//! Private keys, and certificate signing requests for them.

use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize, SanType};
use x509_parser::der_parser::asn1_rs::{Any, FromDer as _, Integer, OctetString, Sequence};

use crate::pem;
use crate::settings::KeyKind;

/// A key was not created.
#[derive(thiserror::Error, Debug)]
pub(crate) enum KeyError {
    /// The cryptographic library failed.
    #[error("cannot create a private key")]
    Library,
    /// The request was not created.
    #[error("cannot create a certificate signing request: {0}")]
    Request(#[from] rcgen::Error),
}

/// A private key and the request for its certificate, in PEM.
pub(crate) struct NewKey {
    pub(crate) key: String,
    pub(crate) request: String,
}

impl NewKey {
    /// Creates a key, and a request for a certificate of this SPIFFE ID. RSA keys take up to seconds.
    pub(crate) fn create(kind: KeyKind, pkcs8: bool, spiffe_id: &str) -> Result<NewKey, KeyError> {
        let pair = match kind {
            KeyKind::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
            KeyKind::Rsa3072 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
            KeyKind::Rsa4096 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
            KeyKind::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            KeyKind::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        }?;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names.push(SanType::URI(spiffe_id.try_into()?));
        let request = params.serialize_request(&pair)?.pem()?;
        let der = pair.serialize_der();
        let key = match kind {
            _ if pkcs8 => pem::block("PRIVATE KEY", &der),
            KeyKind::P256 | KeyKind::P384 => pem::block("EC PRIVATE KEY", &sec1(kind, &der)?),
            _ => pem::block("RSA PRIVATE KEY", &pkcs1(&der).ok_or(KeyError::Library)?),
        };
        Ok(NewKey { key, request })
    }
}

/// The RSA key in a PKCS#8 structure.
fn pkcs1(pkcs8: &[u8]) -> Option<Vec<u8>> {
    let (_, outer) = Sequence::from_der(pkcs8).ok()?;
    let (rest, _version) = Integer::from_der(&outer.content).ok()?;
    let (rest, _algorithm) = Any::from_der(rest).ok()?;
    let (_, key) = OctetString::from_der(rest).ok()?;
    Some(key.into_cow().into_owned())
}

/// An EC key with its curve, as in RFC 5915.
fn sec1(kind: KeyKind, pkcs8: &[u8]) -> Result<Vec<u8>, KeyError> {
    let algorithm = match kind {
        KeyKind::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
        _ => &ECDSA_P256_SHA256_ASN1_SIGNING,
    };
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8).map_err(|_| KeyError::Library)?;
    let der = pair.private_key().as_der().map_err(|_| KeyError::Library)?;
    Ok(der.as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use rcgen::{PublicKeyData, SignatureAlgorithm};
    use x509_parser::certification_request::X509CertificationRequest;
    use x509_parser::extensions::ParsedExtension;
    use x509_parser::pem::Pem;

    use super::*;

    /// A public key of a request.
    struct Public<'a>(&'a [u8], KeyKind);

    impl PublicKeyData for Public<'_> {
        fn der_bytes(&self) -> &[u8] {
            self.0
        }

        fn algorithm(&self) -> &'static SignatureAlgorithm {
            match self.1 {
                KeyKind::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
                KeyKind::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
                _ => &rcgen::PKCS_RSA_SHA256,
            }
        }
    }

    #[test]
    fn keys_have_the_form_that_was_asked_for() {
        for (kind, pkcs8, label) in [
            (KeyKind::Rsa2048, false, "RSA PRIVATE KEY"),
            (KeyKind::Rsa2048, true, "PRIVATE KEY"),
            (KeyKind::P256, false, "EC PRIVATE KEY"),
            (KeyKind::P384, false, "EC PRIVATE KEY"),
            (KeyKind::P384, true, "PRIVATE KEY"),
        ] {
            let id = "spiffe://cluster.local/ns/a/sa/b";
            let new = NewKey::create(kind, pkcs8, id).unwrap();
            assert!(new.key.starts_with(&format!("-----BEGIN {label}-----\n")), "{kind:?}");
            // The request is signed with the key, so a certificate for its public key must match the written key.
            let request = Pem::iter_from_buffer(new.request.as_bytes()).next().unwrap().unwrap();
            let (_, request) = X509CertificationRequest::from_der(&request.contents).unwrap();
            let names = request.requested_extensions().unwrap().find_map(|extension| match extension {
                ParsedExtension::SubjectAlternativeName(names) => Some(format!("{:?}", names.general_names)),
                _ => None,
            });
            assert_eq!(names.unwrap(), format!("[URI({id:?})]"));
            let public = Public(&request.certification_request_info.subject_pki.subject_public_key.data, kind);
            let issuer = KeyPair::generate().unwrap();
            let signer = rcgen::Issuer::new(CertificateParams::default(), &issuer);
            let certificate = CertificateParams::default().signed_by(&public, &signer).unwrap().pem();
            pem::check_pair(certificate.as_bytes(), new.key.as_bytes()).unwrap();
        }
    }
}
