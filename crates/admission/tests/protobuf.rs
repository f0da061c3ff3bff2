//! Bodies in Kubernetes' protobuf: what is written by the tables comes back, and what is broken is refused.

#![allow(clippy::unwrap_used)]

use admission::{DecodeError, Limits, decode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::Timestamp;
use config::schema::wire::{Entry, Field, Form, Message, message, messages};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

const MEDIA: Option<&str> = Some("application/vnd.kubernetes.protobuf");

fn read(body: &[u8]) -> Result<Json, DecodeError> {
    decode(body, MEDIA, &Limits::default()).map(|decoded| decoded.object)
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(at: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(at) << 3, out);
    varint(value, out);
}

fn bytes(at: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(at) << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// A body: the envelope around a message.
fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let (mut meta, mut out) = (Vec::new(), b"k8s\0".to_vec());
    bytes(1, api_version.as_bytes(), &mut meta);
    bytes(2, kind.as_bytes(), &mut meta);
    bytes(1, &meta, &mut out);
    bytes(2, raw, &mut out);
    bytes(3, b"", &mut out);
    bytes(4, b"", &mut out);
    out
}

/// Writes an object by its table.
fn encode(object: &Map<String, Json>, table: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, entry) in table.entries() {
        match entry {
            Entry::Inline(inner) => bytes(at, &encode(object, inner), &mut out),
            Entry::Field(field) => match (object.get(field.name), &field.form) {
                (None, _) => {}
                (Some(Json::Array(items)), Form::List(form)) => {
                    items.iter().for_each(|item| encode_value(at, item, form, &mut out));
                }
                (Some(Json::Object(entries)), Form::Map(form)) => {
                    for (key, value) in entries {
                        let mut entry = Vec::new();
                        bytes(1, key.as_bytes(), &mut entry);
                        encode_value(2, value, form, &mut entry);
                        bytes(at, &entry, &mut out);
                    }
                }
                (Some(value), form) => encode_value(at, value, form, &mut out),
            },
        }
    }
    out
}

fn encode_value(at: u32, value: &Json, form: &Form, out: &mut Vec<u8>) {
    let text = value.as_str().unwrap_or_default();
    let mut inner = Vec::new();
    match form {
        Form::Text => return bytes(at, text.as_bytes(), out),
        Form::Int32 | Form::Int64 => return number(at, value.as_i64().unwrap() as u64, out),
        Form::Boolean => return number(at, u64::from(value.as_bool().unwrap()), out),
        Form::Bytes => return bytes(at, &STANDARD.decode(text).unwrap(), out),
        Form::Time | Form::MicroTime if !value.is_null() => {
            number(1, Timestamp::parse(text).unwrap().unix_seconds() as u64, &mut inner);
            let micros = text.split_once('.').map_or(0, |(_, rest)| rest[..6].parse().unwrap());
            number(2, micros * 1000, &mut inner);
        }
        Form::Time | Form::MicroTime => {}
        Form::Quantity => bytes(1, text.as_bytes(), &mut inner),
        Form::IntOrText => {
            number(1, u64::from(value.is_string()), &mut inner);
            number(2, value.as_i64().unwrap_or_default() as u64, &mut inner);
            bytes(3, text.as_bytes(), &mut inner);
        }
        Form::Json => bytes(1, value.to_string().as_bytes(), &mut inner),
        Form::Message(table) => inner = encode(value.as_object().unwrap(), table),
        Form::List(_) | Form::Map(_) => panic!("a list of lists"),
    }
    bytes(at, &inner, out);
}

/// Makes up values, with the entropy that it was given.
struct Random(std::vec::IntoIter<u8>);

impl Random {
    fn next(&mut self) -> u8 {
        self.0.next().unwrap_or(0)
    }

    fn object(&mut self, table: &Message, depth: usize) -> Map<String, Json> {
        let mut object = Map::new();
        for (_, entry) in table.entries() {
            match entry {
                Entry::Inline(inner) => object.extend(self.object(inner, depth)),
                Entry::Field(field) if self.next() % 4 == 1 => {
                    object.extend(self.field(field, depth).map(|value| (field.name.to_owned(), value)));
                }
                Entry::Field(_) => {}
            }
        }
        object
    }

    fn field(&mut self, field: &Field, depth: usize) -> Option<Json> {
        let some = 1 + usize::from(self.next() % 3);
        match &field.form {
            Form::List(form) => Some((0..some).map(|_| self.value(form, depth)).collect()),
            Form::Map(form) => {
                let entries = (0..some).map(|n| (format!("k{n}"), self.value(form, depth)));
                Some(Json::Object(entries.collect()))
            }
            Form::Time | Form::MicroTime if field.nullable && some == 1 => Some(Json::Null),
            form => {
                let value = self.value(form, depth);
                let zero = matches!(&value, Json::Bool(false)) || value == json!(0) || value == json!("");
                (field.keeps_zero || !zero).then_some(value)
            }
        }
    }

    fn value(&mut self, form: &Form, depth: usize) -> Json {
        let byte = self.next();
        let text = || ["", "a", "example.com/x", "é", "80"][usize::from(byte % 5)];
        match form {
            Form::Text => text().into(),
            Form::Int32 => [0, 1, -1, 8080, i32::MIN, i32::MAX][usize::from(byte % 6)].into(),
            Form::Int64 => [0, 1, -1, i64::MIN, i64::MAX][usize::from(byte % 5)].into(),
            Form::Boolean => byte.is_multiple_of(2).into(),
            Form::Bytes => STANDARD.encode(vec![byte; usize::from(byte % 7)]).into(),
            Form::Time => Timestamp::from_unix(i64::from(byte) << 23).to_string().into(),
            Form::MicroTime => format!("2026-01-02T03:04:05.{byte:06}Z").into(),
            Form::Quantity => ["0", "100m", "1Gi"][usize::from(byte % 3)].into(),
            Form::IntOrText if byte.is_multiple_of(2) => i32::from(byte).into(),
            Form::IntOrText => text().into(),
            Form::Json => json!({ "f:spec": { format!("f:{byte}"): {} } }),
            Form::Message(table) if depth < 20 => Json::Object(self.object(table, depth + 1)),
            Form::Message(_) | Form::List(_) | Form::Map(_) => json!({}),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn encoded_values_are_decoded(at in any::<prop::sample::Index>(), entropy in prop::collection::vec(any::<u8>(), 0..2000)) {
        let all: Vec<_> = messages().iter().collect();
        let ((group, kind), table) = all[at.index(all.len())];
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        let mut object = Random(entropy.into_iter()).object(table, 0);
        let body = envelope(&api_version, kind, &encode(&object, table));
        object.insert("apiVersion".into(), api_version.into());
        object.insert("kind".into(), (*kind).into());
        prop_assert_eq!(read(&body), Ok(Json::Object(object)));
    }

    #[test]
    fn any_bytes_are_answered(at in any::<prop::sample::Index>(), raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let all: Vec<_> = messages().keys().collect();
        let (group, kind) = all[at.index(all.len())];
        let api_version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
        let _ = read(&envelope(&api_version, kind, &raw));
        let _ = read(&raw);
        let _ = read(&[b"k8s\0", &raw[..]].concat());
    }

    #[test]
    fn damaged_bodies_are_answered(entropy in prop::collection::vec(any::<u8>(), 0..800), at in any::<prop::sample::Index>(), byte: u8, cut: bool) {
        let table = message("v1", "Pod").unwrap();
        let mut body = envelope("v1", "Pod", &encode(&Random(entropy.into_iter()).object(&table, 0), &table));
        let at = at.index(body.len());
        body[at] = byte;
        if cut {
            body.truncate(at);
        }
        let _ = read(&body);
    }
}

#[test]
fn zeros_stand_for_absence_where_nothing_else_does() {
    let deployment = message("apps/v1", "Deployment").unwrap();
    let written = json!({
        "metadata": { "name": "a", "generateName": "", "labels": { "x": "" } },
        "spec": { "replicas": 0, "minReadySeconds": 0, "paused": false, "template": { "metadata": {}, "spec": {
            "containers": [{ "name": "", "image": "" }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        } } },
        "status": {},
    });
    let raw = encode(written.as_object().unwrap(), &deployment);
    let expected = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": { "name": "a", "labels": { "x": "" } },
        "spec": { "replicas": 0, "template": { "metadata": {}, "spec": {
            "containers": [{ "name": "" }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        } } },
        "status": {},
    });
    assert_eq!(read(&envelope("apps/v1", "Deployment", &raw)), Ok(expected));
}

#[test]
fn a_message_in_pieces_is_one_and_unknown_fields_are_skipped() {
    // metadata {name}, metadata {namespace}, an unknown fixed number, data {k: v}, data {k: w}, data {e}.
    let mut raw = b"\x0a\x03\x0a\x01a\x0a\x03\x1a\x01n\xf5\x01\x01\x02\x03\x04".to_vec();
    raw.extend_from_slice(b"\x12\x06\x0a\x01k\x12\x01v\x12\x06\x0a\x01k\x12\x01w\x12\x03\x0a\x01e");
    let expected = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "a", "namespace": "n" },
        "data": { "k": "w", "e": "" },
    });
    assert_eq!(read(&envelope("v1", "ConfigMap", &raw)), Ok(expected));
}

#[test]
fn errors_name_the_field() {
    let malformed = |text: &str| Err(DecodeError::Malformed(text.to_owned()));
    let config_map = |raw: &[u8]| read(&envelope("v1", "ConfigMap", raw));
    assert_eq!(
        read(b"{}"),
        malformed("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    );
    assert_eq!(
        read(b"k8s\0"),
        malformed("the protobuf envelope does not name apiVersion and kind of the object in it")
    );
    assert_eq!(read(b"k8s\0\x0a\x05"), malformed("protobuf: a field is truncated or invalid"));
    assert_eq!(
        read(b"k8s\0\x22\x10application/json"),
        malformed("protobuf: the envelope holds another content type than protobuf")
    );
    assert_eq!(read(b"k8s\0\x1a\x04gzip"), malformed("protobuf: content encodings are not supported"));
    assert_eq!(
        read(&envelope("networking.istio.io/v1", "Gateway", b"")),
        malformed(
            "no kind \"Gateway\" is registered for version \"networking.istio.io/v1\" in protobuf: send it as JSON"
        )
    );
    assert_eq!(config_map(b"\x0a\x03\x0a\x01\xff"), malformed("protobuf: metadata.name: is not UTF-8"));
    assert_eq!(config_map(b"\x08\x01"), malformed("protobuf: metadata: has an invalid wire type"));
    assert_eq!(
        read(&envelope("v1", "Pod", b"\x12\x04\x12\x02\x0a\x05")),
        malformed("protobuf: spec.containers[0]: a field is truncated or invalid")
    );
}

#[test]
fn there_are_limits() {
    let limits = Limits { bytes: 200, depth: 3, nodes: 10 };
    let refused = |body: &[u8]| match decode(body, MEDIA, &limits) {
        Err(DecodeError::TooLarge(text)) => text,
        other => panic!("{other:?}"),
    };
    let mut raw = Vec::new();
    (0..20).for_each(|_| bytes(2, b"", &mut raw));
    assert_eq!(refused(&envelope("v1", "ConfigMap", &raw)), "the body has too many values");
    assert_eq!(refused(&[b'k'; 201]), "Request entity too large: limit is 200");
    // spec.template.spec.containers
    let deep = b"\x12\x0a\x1a\x08\x12\x06\x12\x04\x4a\x02\x0a\x00";
    assert_eq!(refused(&envelope("apps/v1", "Deployment", deep)), "the body is nested too deeply");
}
