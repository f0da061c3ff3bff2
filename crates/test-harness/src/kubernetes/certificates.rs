//! The certificates of one cluster: a certificate authority, and the certificates that it signs for servers and users.

use std::fmt;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::run::Result;

/// A certificate authority for one cluster.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Result<Authority> {
        let mut params = named("cluster-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?.pem();
        Ok(Authority { issuer: Issuer::new(params, key), certificate })
    }

    /// The CA certificate, in PEM.
    pub(super) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a server certificate for these host names and addresses.
    pub(super) fn server(&self, names: &[String]) -> Result<Identity> {
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name = distinguished("kube-apiserver", None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params)
    }

    /// Issues a user certificate. Kubernetes reads the user from the common name and a group from the organization.
    pub(super) fn user(&self, name: &str, group: Option<&str>) -> Result<Identity> {
        let mut params = named(name, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    fn sign(&self, mut params: CertificateParams) -> Result<Identity> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok(Identity { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

/// Creates the key pair that signs service account tokens, in PEM.
pub(super) fn signing_key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}

/// Creates a random bearer token.
pub(super) fn token() -> Result<String> {
    // A hash of a fresh private key is as random as the key.
    let key = KeyPair::generate()?;
    let hash = <sha2::Sha256 as sha2::Digest>::digest(key.serialize_der());
    Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn named(name: &str, group: Option<&str>) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = distinguished(name, group);
    params
}

fn distinguished(name: &str, group: Option<&str>) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    if let Some(group) = group {
        distinguished.push(DnType::OrganizationName, group);
    }
    distinguished
}
