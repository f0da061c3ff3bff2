//! Certificate revocation lists (`ca-crl.pem`). A list is checked against the certificate that signed it before it is used.

use std::fmt;
use std::sync::Arc;

use rustls_pki_types::CertificateRevocationListDer;
use rustls_pki_types::pem::PemObject as _;
use webpki::{CertRevocationList, OwnedCertRevocationList};
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::certificate::{Certificate, MAX_PEM};
use crate::signature;

/// The most lists in one PEM text.
pub const MAX_LISTS: usize = 64;

/// Revocation lists that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RevocationError {
    /// The text is larger than the limit, or has too many lists.
    #[error("is larger than {MAX_PEM} bytes or has more than {MAX_LISTS} revocation lists; remove old ones")]
    TooLarge,
    /// There is no list.
    #[error("has no revocation list; it must have PEM blocks that begin with -----BEGIN X509 CRL-----")]
    None,
    /// A list is damaged, a delta list, of version 1, or has no next update.
    #[error(
        "its revocation list number {number} cannot be used ({reason}); create a full list of version 2 with a next update"
    )]
    Unusable {
        /// The position, from 1.
        number: usize,
        /// The reason.
        reason: String,
    },
    /// A list has no valid signature of a known authority.
    #[error(
        "its revocation list number {number} is not signed by a certificate of the chain or by a root; sign it with one of their keys"
    )]
    Unsigned {
        /// The position, from 1.
        number: usize,
    },
    /// An authority of the chain has no list.
    #[error(
        "has no revocation list of {subject}; Envoy rejects a chain if only some of its authorities have a list, so add one for each"
    )]
    Missing {
        /// The subject of the authority.
        subject: String,
    },
}

/// Verified revocation lists. Clones are cheap.
#[derive(Clone, Default)]
pub struct RevocationLists(Arc<[CertRevocationList<'static>]>);

impl RevocationLists {
    /// Parses lists in PEM. Each must be signed by one of the authorities.
    ///
    /// # Errors
    /// There is no list, or one cannot be used or is not signed by an authority.
    pub fn from_pem(pem: &[u8], authorities: &[Certificate]) -> Result<RevocationLists, RevocationError> {
        if pem.len() > MAX_PEM {
            return Err(RevocationError::TooLarge);
        }
        let mut lists = Vec::new();
        for der in CertificateRevocationListDer::pem_slice_iter(pem) {
            let number = lists.len() + 1;
            let unusable = |reason: String| RevocationError::Unusable { number, reason };
            if number > MAX_LISTS {
                return Err(RevocationError::TooLarge);
            }
            let der = der.map_err(|error| unusable(error.to_string()))?;
            let list = OwnedCertRevocationList::from_der(&der).map_err(|error| unusable(error.to_string()))?;
            if !authorities.iter().any(|authority| is_signed_by(&der, authority)) {
                return Err(RevocationError::Unsigned { number });
            }
            lists.push(CertRevocationList::Owned(list));
        }
        if lists.is_empty() { Err(RevocationError::None) } else { Ok(RevocationLists(lists.into())) }
    }

    /// Checks that each authority has a list.
    ///
    /// # Errors
    /// The first one without a list.
    pub fn check_complete(&self, authorities: &[Certificate]) -> Result<(), RevocationError> {
        let has_list = |authority: &Certificate| {
            let subject = content(authority.encoded_subject());
            self.0.iter().any(|list| list.issuer() == subject)
        };
        match authorities.iter().find(|authority| !has_list(authority)) {
            None => Ok(()),
            Some(authority) => Err(RevocationError::Missing { subject: authority.subject().to_owned() }),
        }
    }

    pub(crate) fn lists(&self) -> Vec<&CertRevocationList<'static>> {
        self.0.iter().collect()
    }
}

impl fmt::Debug for RevocationLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RevocationLists({})", self.0.len())
    }
}

/// The content of an encoded name, without tag and length.
fn content(name: &[u8]) -> &[u8] {
    let header = match name.get(1) {
        Some(length) if length & 0x80 != 0 => 2 + usize::from(length & 0x7f),
        _ => 2,
    };
    name.get(header..).unwrap_or_default()
}

fn is_signed_by(der: &[u8], authority: &Certificate) -> bool {
    let Ok((rest, list)) = CertificateRevocationList::from_der(der) else {
        return false;
    };
    let Ok((_, key)) = SubjectPublicKeyInfo::from_der(authority.public_key()) else {
        return false;
    };
    let content = &list.tbs_cert_list;
    rest.is_empty()
        && content.issuer.as_raw() == authority.encoded_subject()
        && signature::is_valid(&key, &list.signature_algorithm, content.as_ref(), &list.signature_value.data)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::certificate::pem;
    use crate::tests::{now, root};

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let authority = root("mesh", now());
            prop_assert!(RevocationLists::from_pem(&bytes, authority.roots()).is_err());
            prop_assert!(RevocationLists::from_pem(pem("X509 CRL", &bytes).as_bytes(), authority.roots()).is_err());
            prop_assert!(!is_signed_by(&bytes, authority.issuer()));
        }
    }
}
