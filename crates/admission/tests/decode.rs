//! Bodies: what they decode to, and what is said about those that do not.
#![allow(clippy::unwrap_used)]

use admission::{DecodeError, Decoded, Limits, decode};
use serde_json::json;

const YAML: Option<&str> = Some("application/yaml");

fn limits() -> Limits {
    Limits { bytes: 1000, depth: 8, nodes: 50 }
}

fn refused(body: &[u8], content_type: Option<&str>) -> DecodeError {
    decode(body, content_type, &limits()).unwrap_err()
}

#[test]
fn json_and_yaml_are_one() {
    let expected =
        Decoded::from(json!({"a": [1, -2, 0.5, true, null, "x"], "b": {"c": 18_446_744_073_709_551_615_u64}}));
    let json = br#"{"a": [1, -2, 0.5, true, null, "x"], "b": {"c": 18446744073709551615}}"#;
    let yaml = b"a: [1, -2, 0.5, true, null, x]\nb:\n  c: 18446744073709551615\n";
    for content_type in [None, Some("application/json"), Some("application/merge-patch+json; charset=UTF-8"), YAML] {
        assert_eq!(decode(json, content_type, &limits()), Ok(expected.clone()), "{content_type:?}");
    }
    for content_type in [YAML, Some("application/apply-patch+yaml")] {
        assert_eq!(decode(yaml, content_type, &limits()), Ok(expected.clone()), "{content_type:?}");
    }
}

#[test]
fn keys_that_are_there_twice() {
    let json = br#"{"a": 1, "b": [{"c": 1, "c": 2}, {"c": 3}], "a": 4}"#;
    let decoded = decode(json, None, &limits()).unwrap();
    assert_eq!(decoded.duplicates, ["a", "b[0].c"]);
    assert_eq!(decoded.object, json!({"a": 4, "b": [{"c": 2}, {"c": 3}]}));
    let decoded = decode(b"a: 1\nb:\n- c: 1\n  c: 2\na: 4\n", YAML, &limits()).unwrap();
    let mut duplicates = decoded.duplicates;
    duplicates.sort();
    assert_eq!(duplicates, ["a", "b[0].c"]);
}

#[test]
fn content_types() {
    for unknown in ["application/cbor", "text/plain", "application/json; charset=latin1", "nonsense"] {
        let error = refused(b"{}", Some(unknown));
        assert!(matches!(error, DecodeError::UnsupportedMediaType(_)), "{unknown}");
        assert!(error.to_string().contains("accepted media types include: application/json"), "{error}");
    }
}

#[test]
fn invalid_documents_are_rejected() {
    for (body, content_type, expected) in [
        (&b"{\"a\": 1} x"[..], None, "trailing characters"),
        (b"{\"a\": ", None, "EOF"),
        (b"", None, "EOF"),
        (b"\xff\xfe", None, "json parse error"),
        (b"{\"a\": \"\xff\"}", None, "json parse error"),
        (b"", YAML, "empty"),
        (b"a: [1", YAML, "error converting YAML to JSON: line 1"),
        (b"a: \xff", YAML, "error converting YAML to JSON"),
        (b"a: 1\n---\nb: 2\n", YAML, "second document at line"),
    ] {
        let error = refused(body, content_type);
        assert!(matches!(error, DecodeError::Malformed(_)), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn limits_hold() {
    let deep = format!("{}1{}", "[".repeat(20), "]".repeat(20));
    let deep_objects = format!("{}1{}", "{\"a\":".repeat(20), "}".repeat(20));
    let many = format!("[{}1]", "1,".repeat(60));
    let long = format!("\"{}\"", "x".repeat(2000));
    for body in [deep, deep_objects, many, long] {
        let error = refused(body.as_bytes(), None);
        assert!(matches!(error, DecodeError::TooLarge(_)), "{error}");
        decode(body.as_bytes(), YAML, &limits()).unwrap_err();
    }
    let bomb = "a: &a [x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b]\nd: [*c, *c, *c, *c]\n";
    decode(bomb.as_bytes(), YAML, &limits()).unwrap_err();
}
