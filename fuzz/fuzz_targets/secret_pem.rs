//! Parses the values of a Secret as certificates and keys. Nothing may panic or hang, and neither errors nor `Debug`
//! may show a value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use config::{AnyObject, ParseOptions, parse_documents};

fuzz_target!(|values: (String, String, String)| {
    let (first, second, third) = values;
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "b"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": first, "tls.key": second, "ca.crt": third, "ca.crl": first},
        "data": {"cert": first, "key": second, "cacert": third, "tls.ocsp-staple": second},
    });
    let parsed = parse_documents(object.to_string().as_bytes(), "input.json", &ParseOptions::default());
    for object in &parsed.objects {
        let AnyObject::Secret(secret) = object else { panic!("another kind") };
        let shown = format!("{secret:?} {:?}", secret.spec.flaws());
        assert!(second.len() < 16 || !shown.contains(&second), "a value is shown");
    }
});
