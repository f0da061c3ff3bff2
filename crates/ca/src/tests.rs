//! Certificates for tests. Other authorities than Rutter's are made with `rcgen`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use names::Identity;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, SigningKey,
};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::UnixTime;

use crate::authority::Issued;
use crate::self_signed::{Settings, create};
use crate::{Authority, Certificate, KeyKind};

pub(crate) const DAY: Duration = Duration::from_secs(86_400);

/// The time of all tests.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000
}

/// A self-signed authority with a small key.
pub(crate) fn root(organization: &str, now: SystemTime) -> Authority {
    create(&Settings { key: KeyKind::P256, ..Settings::new(organization) }, now).unwrap()
}

pub(crate) fn identity(account: &str) -> Identity {
    Identity::parse(&format!("spiffe://cluster.local/ns/shop/sa/{account}")).unwrap()
}

/// A request without a common name, in PEM and DER. It is the same in each call.
pub(crate) fn request() -> (String, Vec<u8>) {
    static REQUEST: LazyLock<(String, Vec<u8>)> = LazyLock::new(|| {
        let mut params = CertificateParams::new(vec!["other.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        (request.pem().unwrap(), request.der().to_vec())
    });
    REQUEST.clone()
}

/// Verifies an issued certificate with rustls, as a TLS server does.
pub(crate) fn verify(issued: &Issued, roots: &[Certificate], now: SystemTime) -> Result<(), rustls::Error> {
    let mut store = RootCertStore::empty();
    for root in roots {
        store.add(root.der().clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(store), provider).build().unwrap();
    let chain = issued.presented();
    let time = UnixTime::since_unix_epoch(now.duration_since(SystemTime::UNIX_EPOCH).unwrap());
    verifier.verify_client_cert(&chain[0], &chain[1..], time).map(|_| ())
}

/// An authority of somebody else, valid for 1,000 days around now.
pub(crate) fn foreign(name: &str, issuer: Option<&Foreign>, change: impl FnOnce(&mut CertificateParams)) -> Foreign {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (now() - DAY * 500).into();
    params.not_after = (now() + DAY * 500).into();
    change(&mut params);
    let key = KeyPair::generate().unwrap();
    match issuer {
        None => CertifiedIssuer::self_signed(params, key).unwrap(),
        Some(issuer) => CertifiedIssuer::signed_by(params, key, issuer).unwrap(),
    }
}

pub(crate) type Foreign = CertifiedIssuer<'static, KeyPair>;

/// The data of a Secret `cacerts`.
pub(crate) fn cacerts(issuer: &Foreign, chain: &[&Foreign], roots: &[&Foreign]) -> BTreeMap<String, Vec<u8>> {
    let list = |certificates: &[&Foreign]| certificates.iter().map(|one| one.pem()).collect::<String>().into_bytes();
    BTreeMap::from([
        ("ca-cert.pem".to_owned(), issuer.pem().into()),
        ("ca-key.pem".to_owned(), issuer.key().serialize_pem().into()),
        ("cert-chain.pem".to_owned(), list(chain)),
        ("root-cert.pem".to_owned(), list(roots)),
    ])
}

/// A revocation list of an authority with these serial numbers, in PEM.
pub(crate) fn revoked(issuer: &Issuer<'_, impl SigningKey>, serials: &[&[u8]]) -> String {
    let one = |serial: &&[u8]| rcgen::RevokedCertParams {
        serial_number: rcgen::SerialNumber::from_slice(serial),
        revocation_time: (now() - DAY).into(),
        reason_code: None,
        invalidity_date: None,
    };
    let params = rcgen::CertificateRevocationListParams {
        this_update: (now() - DAY).into(),
        next_update: (now() + DAY).into(),
        crl_number: rcgen::SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: serials.iter().map(one).collect(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    params.signed_by(issuer).unwrap().pem().unwrap()
}
