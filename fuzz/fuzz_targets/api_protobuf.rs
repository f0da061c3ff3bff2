//! Decodes request bodies in Kubernetes' protobuf. Nothing may panic or hang, and decoded objects respect the limits.
//!
//! The first byte chooses a kind, in whose envelope the rest is wrapped; for values beyond the kinds, the rest is the
//! whole body.

#![no_main]

use admission::{Limits, decode};
use libfuzzer_sys::fuzz_target;
use config::schema::wire::messages;
use serde_json::Value as Json;

const MEDIA: Option<&str> = Some("application/vnd.kubernetes.protobuf");

fn field(number: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

fn nodes(value: &Json) -> usize {
    match value {
        Json::Array(items) => 1 + items.iter().map(nodes).sum::<usize>(),
        Json::Object(fields) => 1 + fields.values().map(nodes).sum::<usize>(),
        _ => 1,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    let mut body = b"k8s\0".to_vec();
    match messages().keys().nth(usize::from(*choice)) {
        None => body.extend_from_slice(rest),
        Some((group, kind)) => {
            let version = if group.is_empty() { "v1".to_owned() } else { format!("{group}/v1") };
            let mut meta = Vec::new();
            field(1, version.as_bytes(), &mut meta);
            field(2, kind.as_bytes(), &mut meta);
            field(1, &meta, &mut body);
            field(2, rest, &mut body);
        }
    }
    let limits = Limits { nodes: 200, ..Limits::default() };
    match decode(&body, MEDIA, &limits) {
        // The additions are the object, its kind and version; the factor covers maps and lists around counted nodes.
        Ok(decoded) => assert!(nodes(&decoded.object) <= 2 * limits.nodes + 3),
        Err(error) => assert!(error.to_string().len() < 4096, "the error is too long"),
    }
});
