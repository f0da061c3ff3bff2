//! Decoding and encoding of scalars, lists and maps.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::decode::{Decode, Decoder, format_duration, parse_duration};
use crate::problem::Segment;
use crate::schema::{Schema, Shape};
use crate::time::Timestamp;
use crate::yaml::{Node, Scalar, Value, parse_int};

impl Decode for Arc<str> {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Arc<str>> {
        if let Some(text) = node.text() {
            return Some(text.clone());
        }
        let message = format!("expected a string, found {}", node.describe());
        let hint = match &node.value {
            Value::Plain(text) => Some(format!("quote the value: \"{text}\"")),
            _ => None,
        };
        cx.error(node.at, "bad-value", message, hint);
        None
    }

    fn encode(&self) -> Json {
        Json::String(self.to_string())
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::text())
    }

    fn from_null() -> Option<Arc<str>> {
        Some("".into())
    }
}

impl Decode for bool {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<bool> {
        match node.scalar() {
            Some(Scalar::Bool(value)) => Some(value),
            _ => {
                cx.mismatch(node, "true or false");
                None
            }
        }
    }

    fn encode(&self) -> Json {
        Json::Bool(*self)
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(Shape::Boolean))
    }
}

/// Integer value of a node, written as a number or as a string.
fn integer(node: &Node) -> Option<i128> {
    match node.scalar()? {
        Scalar::Int(value) => Some(value),
        // 1e3 and 2.0 are integers. Above 2^53, a float does not represent integers exactly.
        Scalar::Float(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(value as i128),
        Scalar::Text(text) => parse_int(text),
        _ => None,
    }
}

macro_rules! integers {
    ($($type:ty, $name:literal, $format:literal, $min:expr, $max:expr;)*) => { $(
        impl Decode for $type {
            fn decode(node: &Node, cx: &mut Decoder) -> Option<$type> {
                let value = integer(node).and_then(|value| <$type>::try_from(value).ok());
                if value.is_none() {
                    cx.mismatch(node, $name);
                }
                value
            }

            fn encode(&self) -> Json {
                Json::from(*self)
            }

            fn schema() -> Arc<Schema> {
                let (format, min, max) = ($format, $min, $max);
                Arc::new(Schema::new(Shape::Integer { format, min, max }))
            }
        }
    )* };
}

integers! {
    i32, "an integer", "int32", None, None;
    u32, "an integer between 0 and 4294967295", "int64", Some(0), Some(i64::from(u32::MAX));
    u16, "an integer between 0 and 65535", "int32", Some(0), Some(i64::from(u16::MAX));
    i64, "an integer", "int64", None, None;
    u64, "a non-negative integer", "int64", Some(0), None;
}

impl Decode for f64 {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<f64> {
        let value = match node.scalar() {
            Some(Scalar::Int(value)) => Some(value as f64),
            Some(Scalar::Float(value)) => Some(value),
            Some(Scalar::Text(text)) => text.parse().ok(),
            _ => None,
        };
        let value = value.filter(|v: &f64| v.is_finite());
        if value.is_none() {
            cx.mismatch(node, "a number");
        }
        value
    }

    fn encode(&self) -> Json {
        Json::from(*self)
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(Shape::Number { min: None, max: None }))
    }
}

impl Decode for Duration {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Duration> {
        let value = match (&node.value, node.scalar()) {
            (_, Some(Scalar::Text(text))) => parse_duration(text),
            (Value::Plain(text), Some(Scalar::Int(0))) => parse_duration(text),
            _ => None,
        };
        if value.is_none() {
            cx.mismatch(node, "a duration such as 10s or 250ms");
        }
        value
    }

    fn encode(&self) -> Json {
        Json::String(format_duration(*self))
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::text_of(Some("duration")))
    }
}

impl Decode for Timestamp {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Timestamp> {
        let value = node.text().and_then(|text| Timestamp::parse(text));
        if value.is_none() {
            cx.mismatch(node, "a time such as 2026-08-02T10:00:00Z");
        }
        value
    }

    fn encode(&self) -> Json {
        Json::String(self.to_string())
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::text_of(Some("date-time")))
    }
}

/// Bytes, encoded as base64.
pub(crate) type Bytes = Arc<[u8]>;

impl Decode for Bytes {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Bytes> {
        let value = node.text().and_then(|text| from_base64(text));
        if value.is_none() {
            cx.mismatch(node, "bytes in base64");
        }
        value.map(Arc::from)
    }

    fn encode(&self) -> Json {
        Json::String(BASE64.encode(self))
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::text_of(Some("byte")))
    }
}

/// Standard base64. Input may lack padding and may have trailing bits, as in Go.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Decodes base64 in its standard or its URL-safe form, with or without padding.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').replace('-', "+").replace('_', "/");
    BASE64.decode(text).ok()
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Vec<T>> {
        let Value::List(items) = &node.value else {
            cx.mismatch(node, "a list");
            return None;
        };
        let decode = |(index, item)| cx.within(Segment::Index(index), |cx| T::decode(item, cx));
        Some(items.iter().enumerate().filter_map(decode).collect())
    }

    fn encode(&self) -> Json {
        Json::Array(self.iter().map(Decode::encode).collect())
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::list(T::schema()))
    }
}

impl<T: Decode> Decode for BTreeMap<Arc<str>, T> {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<BTreeMap<Arc<str>, T>> {
        let Value::Map(entries) = &node.value else {
            cx.mismatch(node, "an object");
            return None;
        };
        let mut out = BTreeMap::new();
        for entry in entries {
            let null = || entry.value.is_null().then(T::from_null).flatten();
            let decoded = |cx: &mut Decoder| null().or_else(|| T::decode(&entry.value, cx));
            if let Some(value) = cx.within(Segment::Key(entry.key.clone()), decoded) {
                out.insert(entry.key.clone(), value);
            }
        }
        Some(out)
    }

    fn encode(&self) -> Json {
        Json::Object(self.iter().map(|(key, value)| (key.to_string(), value.encode())).collect())
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::map(T::schema()))
    }
}

impl<T: Decode> Decode for Option<T> {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Option<T>> {
        T::decode(node, cx).map(Some)
    }

    fn encode(&self) -> Json {
        self.as_ref().map_or(Json::Null, Decode::encode)
    }

    fn schema() -> Arc<Schema> {
        T::schema()
    }
}

/// Boxed message, for the few large ones.
impl<T: Decode> Decode for Box<T> {
    fn decode(node: &Node, cx: &mut Decoder) -> Option<Box<T>> {
        T::decode(node, cx).map(Box::new)
    }

    fn encode(&self) -> Json {
        (**self).encode()
    }

    fn schema() -> Arc<Schema> {
        T::schema()
    }
}

/// Arbitrary JSON, as in `google.protobuf.Struct`.
impl Decode for Json {
    fn decode(node: &Node, _: &mut Decoder) -> Option<Json> {
        Some(node.to_json())
    }

    fn encode(&self) -> Json {
        self.clone()
    }

    fn schema() -> Arc<Schema> {
        Arc::new(Schema::new(Shape::Any))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (&[0xff, 0xfe], "//4=")]
        {
            assert_eq!(BASE64.encode(bytes), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes));
        }
        assert_eq!(from_base64("__4").as_deref(), Some(&[0xff, 0xfe][..]));
        assert_eq!(from_base64("a"), None);
        assert_eq!(from_base64("a b="), None);
    }
}
