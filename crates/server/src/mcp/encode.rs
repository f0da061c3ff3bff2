//! Encodes objects as messages.

use bytes::{BufMut as _, Bytes, BytesMut};
use config::{AnyObject, Kind};
use protos::istio::mcp::v1alpha1::{Metadata, Resource};
use protos::{Any, Message as _, any, pack_json};
use serde_json::{Value, json};

/// The tag of the field `resources` in a discovery response: number 2, length-delimited.
const RESOURCES: u8 = 2 << 3 | 2;
/// The message type for arbitrary JSON.
const STRUCT: &str = "google.protobuf.Struct";

pub(super) fn resource(object: &AnyObject) -> Any {
    if let AnyObject::MeshConfig(mesh) = object {
        return packed("istio.mesh.v1alpha1.MeshConfig", &mesh.spec.to_json());
    }
    let meta = object.meta();
    let written: Option<Value> = object.raw().and_then(|raw| serde_json::from_str(raw).ok());
    let spec = match written {
        Some(mut written) => written.get_mut("spec").map(Value::take).unwrap_or_else(|| json!({})),
        None => object.spec_json(),
    };
    let texts = |map: &config::StringMap| map.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let body = match message(object.kind()) {
        Some(name) => packed(&name, &spec),
        None => packed(STRUCT, &spec),
    };
    let version = match &*meta.resource_version {
        "" => format!("{:016x}", xxhash_rust::xxh3::xxh3_64(object.raw().map_or(&*body.value, |raw| raw.as_bytes()))),
        version => version.to_owned(),
    };
    any(&Resource {
        metadata: Some(Metadata {
            name: format!("{}/{}", meta.namespace, meta.name),
            create_time: meta
                .creation_timestamp
                .map(|time| protos::Timestamp { seconds: time.unix_seconds(), nanos: 0 }),
            version,
            labels: texts(&meta.labels),
            annotations: texts(&meta.annotations),
        }),
        body: Some(body),
    })
}

/// Encodes a resource as a field of a discovery response.
pub(super) fn field(resource: &Any) -> Bytes {
    let mut bytes = BytesMut::with_capacity(resource.encoded_len() + 6);
    bytes.put_u8(RESOURCES);
    let encoded = resource.encode_length_delimited_to_vec();
    bytes.extend_from_slice(&encoded);
    bytes.freeze()
}

/// The name of Istio's message of a kind.
fn message(kind: Kind) -> Option<String> {
    let package = match (kind.group(), kind.name()) {
        ("networking.istio.io", "ProxyConfig") => "istio.networking.v1beta1",
        ("networking.istio.io", _) => "istio.networking.v1alpha3",
        ("security.istio.io", _) => "istio.security.v1beta1",
        ("telemetry.istio.io", _) => "istio.telemetry.v1alpha1",
        ("extensions.istio.io", _) => "istio.extensions.v1alpha1",
        _ => return None,
    };
    Some(format!("{package}.{}", kind.name()))
}

/// Encodes a JSON value as this message, or as a Struct if it does not fit (a newer field has another type).
fn packed(name: &str, value: &Value) -> Any {
    pack_json(name, value)
        .or_else(|error| {
            tracing::warn!(message = name, %error, "an object is not the form of its message; it is sent as a Struct");
            pack_json(STRUCT, value)
        })
        .unwrap_or_default()
}
