//! Descriptors, and messages as JSON.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::{Message, Name};
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MapKey, MessageDescriptor, ReflectMessage, SerializeOptions,
    Value,
};

use crate::{Any, any};

/// The descriptors of all messages of this crate, decoded on first use, which takes some milliseconds.
pub fn descriptor_pool() -> &'static DescriptorPool {
    static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
        DescriptorPool::decode(include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin")).as_slice())
            .expect("the embedded descriptors are valid")
    });
    &POOL
}

/// The reason why a message cannot be converted to or from JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// The message type is unknown.
    #[error("no message {0} is known")]
    UnknownType(String),
    /// The bytes are not this message.
    #[error(transparent)]
    Decode(#[from] prost::DecodeError),
    /// The message has a value that JSON cannot express, such as a duration out of range.
    #[error(transparent)]
    Serialize(#[from] serde_json::Error),
}

/// Converts an encoded message to canonical JSON (lowerCamelCase names, without default values).
///
/// A packed message of unknown type becomes a `xds.type.v3.TypedStruct` with its bytes in base64.
///
/// # Errors
/// The outer type is unknown, or the bytes are not of that type.
pub fn json(type_url: &str, body: &[u8]) -> Result<serde_json::Value, JsonError> {
    let mut message = decode(type_url, body)?;
    if let Some(plain) = replace_unknown(&message) {
        message = plain;
    }
    Ok(message.serialize_with_options(serde_json::value::Serializer, &SerializeOptions::new())?)
}

/// Converts canonical JSON to a message.
///
/// # Errors
/// The type `M` is unknown, or the value is not valid for it.
pub fn from_json<M: Message + Name + Default>(value: &serde_json::Value) -> Result<M, JsonError> {
    let message = DynamicMessage::deserialize(descriptor(&M::full_name())?, value)?;
    Ok(M::decode(message.encode_to_vec().as_slice())?)
}

/// Converts an encoded message to JSON as in configuration: like [`json`], but 64-bit integers are numbers.
///
/// # Errors
/// The type is unknown, or the bytes are not of that type.
pub fn plain_json(type_url: &str, body: &[u8]) -> Result<serde_json::Value, JsonError> {
    let options = SerializeOptions::new().stringify_64_bit_integers(false);
    Ok(decode(type_url, body)?.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// Converts JSON to a packed message of this full name. Unknown fields are ignored.
///
/// # Errors
/// The name is unknown, or the value is not valid.
pub fn pack_json(name: &str, value: &serde_json::Value) -> Result<Any, JsonError> {
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(descriptor(name)?, value, &options)?;
    Ok(Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec().into() })
}

fn decode(type_url: &str, body: &[u8]) -> Result<DynamicMessage, JsonError> {
    let name = type_url.rsplit_once('/').map_or(type_url, |(_, name)| name);
    Ok(DynamicMessage::decode(descriptor(name)?, body)?)
}

fn descriptor(name: &str) -> Result<MessageDescriptor, JsonError> {
    descriptor_pool().get_message_by_name(name).ok_or_else(|| JsonError::UnknownType(name.to_owned()))
}

/// Replaces packed messages of unknown type; `None` if there are none.
fn replace_unknown(message: &DynamicMessage) -> Option<DynamicMessage> {
    if message.descriptor().full_name() == "google.protobuf.Any" {
        let packed: Any = message.transcode_to().ok()?;
        let replaced = match decode(&packed.type_url, &packed.value) {
            Ok(inner) => Any { value: replace_unknown(&inner)?.encode_to_vec().into(), ..packed },
            Err(_) => opaque(&packed),
        };
        let mut result = DynamicMessage::new(message.descriptor());
        result.transcode_from(&replaced).ok()?;
        return Some(result);
    }
    let mut result: Option<DynamicMessage> = None;
    for (field, value) in message.fields() {
        if let Some(value) = replace_in_value(value) {
            result.get_or_insert_with(|| message.clone()).set_field(&field, value);
        }
    }
    result
}

fn replace_in_value(value: &Value) -> Option<Value> {
    match value {
        Value::Message(message) => replace_unknown(message).map(Value::Message),
        Value::List(values) => {
            let replaced: Vec<Option<Value>> = values.iter().map(replace_in_value).collect();
            replaced.iter().any(Option::is_some).then(|| {
                let old = values.iter().cloned();
                Value::List(replaced.into_iter().zip(old).map(|(new, old)| new.unwrap_or(old)).collect())
            })
        }
        Value::Map(entries) => {
            let replaced: Vec<(&MapKey, Value)> =
                entries.iter().filter_map(|(key, value)| Some((key, replace_in_value(value)?))).collect();
            (!replaced.is_empty()).then(|| {
                let mut entries = entries.clone();
                entries.extend(replaced.into_iter().map(|(key, value)| (key.clone(), value)));
                Value::Map(entries)
            })
        }
        _ => None,
    }
}

fn opaque(packed: &Any) -> Any {
    let value = crate::Value { kind: Some(crate::value::Kind::StringValue(STANDARD.encode(&packed.value))) };
    any(&crate::xds::r#type::v3::TypedStruct {
        type_url: packed.type_url.clone(),
        value: Some(crate::Struct { fields: [("base64".to_owned(), value)].into() }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    use crate::envoy::config::cluster::v3::Cluster;
    use crate::envoy::config::core::v3::TypedExtensionConfig;
    use serde_json::json;

    fn show<M: Message + Name>(message: &M) -> serde_json::Value {
        json(&M::type_url(), &message.encode_to_vec()).unwrap()
    }

    #[test]
    fn messages_have_canonical_json() {
        let cluster = Cluster {
            name: "a".to_owned(),
            connect_timeout: Some(crate::duration(std::time::Duration::from_millis(1500))),
            ..Cluster::default()
        };
        assert_eq!(show(&cluster), json!({"name": "a", "connectTimeout": "1.500s"}));
    }

    #[test]
    fn packed_messages_of_unknown_type_are_shown() {
        let packed = |type_url: &str, value: &'static [u8]| TypedExtensionConfig {
            name: "x".to_owned(),
            typed_config: Some(Any { type_url: type_url.to_owned(), value: Bytes::from_static(value) }),
        };
        let known = any(&packed("type.googleapis.com/google.protobuf.Struct", b""));
        let unknown = any(&packed("type.googleapis.com/no.such.Message", b"\x01\x02\x03\x04"));
        let outer = |inner| TypedExtensionConfig { name: "outer".to_owned(), typed_config: Some(inner) };
        assert_eq!(
            show(&outer(known))["typedConfig"]["typedConfig"],
            json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": {}})
        );
        assert_eq!(
            show(&outer(unknown))["typedConfig"]["typedConfig"],
            json!({
                "@type": "type.googleapis.com/xds.type.v3.TypedStruct",
                "typeUrl": "type.googleapis.com/no.such.Message",
                "value": {"base64": "AQIDBA=="}
            })
        );
    }

    #[test]
    fn plain_json_round_trips() {
        let name = "istio.networking.v1alpha3.DestinationRule";
        let spec = json!({
            "host": "reviews",
            "trafficPolicy": {"loadBalancer": {"consistentHash": {"httpCookie": {"name": "a", "ttl": "1.500s"}, "minimumRingSize": 1024}}},
        });
        let mut with_more = spec.clone();
        with_more["noSuchField"] = json!(1);
        let packed = pack_json(name, &with_more).unwrap();
        assert_eq!(plain_json(&packed.type_url, &packed.value).unwrap(), spec);
        assert!(matches!(pack_json(name, &json!({"host": 1})), Err(JsonError::Serialize(_))));
        assert!(matches!(pack_json("no.such.Message", &spec), Err(JsonError::UnknownType(_))));
    }

    #[test]
    fn unknown_types_and_invalid_bytes_are_errors() {
        assert!(matches!(json("x/no.such.Message", b""), Err(JsonError::UnknownType(_))));
        let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        assert!(matches!(json(cluster, b"\xff"), Err(JsonError::Decode(_))));
    }
}
