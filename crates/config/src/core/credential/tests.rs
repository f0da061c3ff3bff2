//! Valid and invalid certificates and keys.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm,
};

use super::*;
use crate::{AnyObject, ParseOptions, parse_documents};

struct Map(BTreeMap<&'static str, Hidden>);

impl Values for Map {
    fn value(&self, key: &str) -> Option<&Hidden> {
        self.0.get(key).filter(|value| !value.bytes().is_empty())
    }
}

fn map(values: &[(&'static str, &[u8])]) -> Map {
    Map(values.iter().map(|(key, value)| (*key, value.to_vec().into())).collect())
}

fn signed(algorithm: &'static SignatureAlgorithm) -> (String, String) {
    let key = KeyPair::generate_for(algorithm).unwrap();
    let params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn flaw(values: &[(&'static str, &[u8])]) -> Option<(&'static str, &'static str)> {
    let found = pair(&map(values))?.err()?;
    Some((found.key, found.message))
}

#[test]
fn keys_that_envoy_takes() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let (certificate, key) = signed(algorithm);
        let values = [("tls.crt", certificate.as_bytes()), ("tls.key", key.as_bytes())];
        assert!(pair(&map(&values)).unwrap().is_ok(), "{algorithm:?}");
    }
    let (certificate, key) = signed(&PKCS_ED25519);
    let (at, message) = flaw(&[("cert", certificate.as_bytes()), ("key", key.as_bytes())]).unwrap();
    assert_eq!(at, "key");
    assert!(message.contains("none that Envoy takes"), "{message}");
}

#[test]
fn what_does_not_fit_together_is_found() {
    let ((certificate, key), (_, other)) = (signed(&PKCS_ECDSA_P256_SHA256), signed(&PKCS_ECDSA_P256_SHA256));
    let with = |certificate: &str, key: &str| flaw(&[("tls.crt", certificate.as_bytes()), ("tls.key", key.as_bytes())]);
    assert_eq!(with(&certificate, &key), None);
    let found = |at, text: &str, expected: Option<(&'static str, &'static str)>| {
        let (key, message) = expected.unwrap();
        assert_eq!(key, at);
        assert!(message.contains(text), "{message}");
    };
    found("tls.key", "not that of the certificate", with(&certificate, &other));
    found("tls.key", "no private key", with(&certificate, "nonsense"));
    found("tls.crt", "no certificate", with("nonsense", &key));
    found("tls.crt", "no certificate", with(&key, &key));
    let odd = certificate.replace("-----END", "?\n-----END");
    found("tls.crt", "not PEM", with(&odd, &key));
    let short = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    found("tls.crt", "not X.509", with(short, &key));
    let long = "\n".repeat(LONGEST + 1);
    found("tls.crt", "longer than", with(&long, &key));
    // A pair needs certificate and key.
    assert!(pair(&map(&[("tls.crt", certificate.as_bytes())])).is_none());
    assert!(pair(&map(&[("tls.crt", certificate.as_bytes()), ("tls.key", b"")])).is_none());
}

#[test]
fn authorities_and_what_they_revoked() {
    let (certificate, _) = signed(&PKCS_ECDSA_P256_SHA256);
    let both = format!("{certificate}{certificate}");
    assert!(roots(&map(&[("cacert", both.as_bytes())])).unwrap().is_ok());
    let revoked = map(&[("ca.crt", certificate.as_bytes()), ("ca.crl", certificate.as_bytes())]);
    assert_eq!(roots(&revoked).unwrap().unwrap_err().key, "ca.crl");
    assert!(roots(&map(&[("ca.crl", certificate.as_bytes())])).is_none());
}

fn secret(key: &str, value: &str) -> AnyObject {
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {
            "name": "a", "namespace": "b",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": value},
        },
        "stringData": {key: value},
    });
    let parsed = parse_documents(text.to_string().as_bytes(), "f", &ParseOptions::default());
    for diagnostic in &parsed.diagnostics {
        assert!(!diagnostic.is_error() && !diagnostic.to_string().contains(value), "{diagnostic}");
    }
    parsed.objects.into_iter().next().unwrap()
}

#[test]
fn nobody_sees_a_value() {
    let object = secret("tls.key", "hunter2-hunter2");
    for shown in [format!("{object:?}"), object.spec_json().to_string()] {
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    assert!(object.raw().is_none());
}

proptest! {
    #[test]
    fn any_bytes_are_a_flaw_and_no_panic(first in any::<Vec<u8>>(), second in any::<Vec<u8>>(), staple in any::<Vec<u8>>()) {
        let framed = |kind: &str, bytes: &[u8]| {
            use base64::Engine as _;
            let text = base64::engine::general_purpose::STANDARD.encode(bytes);
            format!("-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n")
        };
        let certificate = framed("CERTIFICATE", &first);
        for kind in ["PRIVATE KEY", "EC PRIVATE KEY", "RSA PRIVATE KEY"] {
            let key = framed(kind, &second);
            let values = map(&[("tls.crt", certificate.as_bytes()), ("tls.key", key.as_bytes()), ("tls.ocsp-staple", &staple)]);
            prop_assert!(pair(&values).is_none_or(|pair| pair.is_err()));
            prop_assert!(fits(&key.into_bytes().into(), &first).is_err());
        }
        let revoked = framed("X509 CRL", &second);
        let values = map(&[("ca.crt", &first), ("ca.crl", revoked.as_bytes())]);
        prop_assert!(roots(&values).is_none_or(|roots| roots.is_err()));
        let _ = is_response(&staple);
    }
}
