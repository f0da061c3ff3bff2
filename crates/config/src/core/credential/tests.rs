//! Valid and invalid certificates and keys.

use std::collections::BTreeMap;

use proptest::prelude::*;
use rcgen::{
    CertificateParams, CustomExtension, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519,
    SignatureAlgorithm,
};

use super::*;
use crate::core::Secret;
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
    let found = pair(&map(values))?.content;
    found.flaw().map(|flaw| (flaw.key, flaw.message))
}

#[test]
fn keys_that_envoy_takes() {
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let (certificate, key) = signed(algorithm);
        let values = [("tls.crt", certificate.as_bytes()), ("tls.key", key.as_bytes())];
        assert!(pair(&map(&values)).unwrap().content.in_use().is_some(), "{algorithm:?}");
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
    assert!(roots(&map(&[("cacert", both.as_bytes())])).unwrap().in_use().is_some());
    let revoked = map(&[("ca.crt", certificate.as_bytes()), ("ca.crl", certificate.as_bytes())]);
    assert_eq!(roots(&revoked).unwrap().flaw().unwrap().key, "ca.crl");
    assert!(roots(&map(&[("ca.crl", certificate.as_bytes())])).is_none());
}

/// A self-signed certificate that requires an OCSP response.
fn must_staple() -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.example.com".to_owned()]).unwrap();
    let feature = CustomExtension::from_oid_content(&[1, 3, 6, 1, 5, 5, 7, 1, 24], vec![0x30, 3, 2, 1, 5]);
    params.custom_extensions.push(feature);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn a_staple_that_envoy_would_refuse_is_left_out() {
    let parsed = |(certificate, key): &(String, String), staple: &[u8]| {
        let values = [("tls.crt", certificate.as_bytes()), ("tls.key", key.as_bytes()), ("tls.ocsp-staple", staple)];
        pair(&map(&values)).unwrap()
    };
    let plain = parsed(&signed(&PKCS_ECDSA_P256_SHA256), b"nonsense");
    assert_eq!(plain.left_out.unwrap().message, "the value is no OCSP response in DER");
    assert_eq!(plain.content.in_use().unwrap().staple, None);
    for staple in [&b""[..], b"nonsense"] {
        let required = parsed(&must_staple(), staple);
        assert_eq!(required.content.flaw().unwrap().key, "tls.ocsp-staple");
        assert_eq!((required.content.in_use(), required.left_out), (None, None));
    }
}

fn parsed_secret(kind: &str, values: &[(&str, &str)]) -> Secret {
    let data: BTreeMap<&str, &str> = values.iter().copied().collect();
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "type": kind, "metadata": {"name": "a", "namespace": "b"}, "stringData": data,
    });
    let parsed = parse_documents(text.to_string().as_bytes(), "f", &ParseOptions::default());
    match parsed.objects.into_iter().next() {
        Some(AnyObject::Secret(object)) => object.spec.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_invalid_value_keeps_the_last_valid_one_and_a_removed_value_does_not() {
    let (certificate, key) = signed(&PKCS_ECDSA_P256_SHA256);
    let (ca, _) = signed(&PKCS_ECDSA_P256_SHA256);
    let tls =
        |key, ca| parsed_secret("kubernetes.io/tls", &[("tls.crt", &certificate), ("tls.key", key), ("ca.crt", ca)]);
    let good = tls(&key, &ca);
    let broken = tls("nonsense", &ca);
    assert_eq!(broken.keeping(&broken), None, "there is nothing to keep");
    let kept = broken.keeping(&good).unwrap();
    assert_eq!(kept.pair.as_ref().unwrap().in_use(), good.pair.as_ref().unwrap().in_use());
    assert_eq!((kept.flaws(), &kept.roots), (broken.flaws(), &good.roots));
    // It is kept as long as the values are invalid.
    let again = tls("nonsense again", "nonsense").keeping(&kept).unwrap();
    assert_eq!(again.pair.as_ref().unwrap().in_use(), good.pair.as_ref().unwrap().in_use());
    assert_eq!(again.roots.as_ref().unwrap().in_use(), good.roots.as_ref().unwrap().in_use());
    assert_eq!(again.flaws().len(), 2);
    assert_eq!(good.keeping(&again), None);
    // A TLS Secret must have a certificate: an empty one is invalid.
    assert!(tls("", &ca).keeping(&good).is_some());
    assert_eq!(parsed_secret("Opaque", &[("tls.crt", &certificate)]).keeping(&good), None);
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
            prop_assert!(pair(&values).is_none_or(|pair| pair.content.in_use().is_none()));
            prop_assert!(fits(&key.into_bytes().into(), &first).is_err());
        }
        let revoked = framed("X509 CRL", &second);
        let values = map(&[("ca.crt", &first), ("ca.crl", revoked.as_bytes())]);
        prop_assert!(roots(&values).is_none_or(|roots| roots.in_use().is_none()));
    }
}
