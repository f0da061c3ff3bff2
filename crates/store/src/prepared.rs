//! Validated and serialized transactions.
//!
//! One thread assigns revisions. Serialization, the expensive part, happens on the callers' threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Map, Value};

use crate::{Error, Key, Operation, Revision, Stored, Transaction};

/// A validated transaction with serialized objects.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) operations: Vec<Operation<Text>>,
}

impl Prepared {
    /// Validates a transaction and serializes its objects.
    ///
    /// # Errors
    /// [`Error::Invalid`], see [`Transaction::check`].
    pub(crate) fn new(transaction: Transaction) -> Result<Prepared, Error> {
        transaction.check()?;
        let prepared = |operation| match operation {
            Operation::Put { key, value, expect } => Operation::Put { key, value: Text::new(value), expect },
            Operation::Delete { key, expect } => Operation::Delete { key, expect },
            Operation::Check { key, expect } => Operation::Check { key, expect },
        };
        Ok(Prepared { operations: transaction.operations.into_iter().map(prepared).collect() })
    }
}

/// Compact JSON of an object with a gap for its revision.
#[derive(Debug)]
pub(crate) struct Text {
    json: Vec<u8>,
    /// The position of the gap; `None` if the value is not an object.
    gap: Option<usize>,
    labels: Arc<BTreeMap<Arc<str>, Arc<str>>>,
}

impl Text {
    /// Serializes a value. A `metadata` that is not an object becomes an empty one.
    pub(crate) fn new(mut value: Value) -> Text {
        if let Some(object) = value.as_object_mut() {
            let meta = object.entry("metadata").or_insert(Value::Null);
            if !meta.is_object() {
                *meta = Value::Object(Map::new());
            }
            if let Some(meta) = meta.as_object_mut() {
                meta.insert("resourceVersion".into(), "".into());
            }
        }
        let labels = labels(&value);
        let mut json = Vec::with_capacity(1024);
        let mut gap = None;
        match &value {
            Value::Object(object) => members(&mut json, object, |json, name, value| match value {
                Value::Object(meta) if name == "metadata" => members(json, meta, |json, name, value| {
                    write(json, value);
                    if name == "resourceVersion" {
                        // Between the quotes.
                        gap = Some(json.len() - 1);
                    }
                }),
                value => write(json, value),
            }),
            value => write(&mut json, value),
        }
        Text { json, gap, labels }
    }

    /// Inserts the revision.
    pub(crate) fn seal(self, key: Key, revision: Revision) -> Stored {
        let json = match self.gap {
            None => Bytes::from(self.json),
            Some(gap) => {
                let number = revision.to_string();
                let mut json = BytesMut::with_capacity(self.json.len() + number.len());
                json.put_slice(&self.json[..gap]);
                json.put_slice(number.as_bytes());
                json.put_slice(&self.json[gap..]);
                json.freeze()
            }
        };
        Stored { key, revision, labels: self.labels, json }
    }
}

/// Extracts the labels of an object. A value that is not a string counts as empty.
pub(crate) fn labels(value: &Value) -> Arc<BTreeMap<Arc<str>, Arc<str>>> {
    let labels = value.get("metadata").and_then(|meta| meta.get("labels"));
    let labels = labels.and_then(Value::as_object).into_iter().flatten();
    let texts = labels.map(|(name, value)| (Arc::from(name.as_str()), Arc::from(value.as_str().unwrap_or_default())));
    Arc::new(texts.collect())
}

/// Writes the members of an object; `member` writes the values.
fn members(json: &mut Vec<u8>, object: &Map<String, Value>, mut member: impl FnMut(&mut Vec<u8>, &str, &Value)) {
    json.push(b'{');
    for (n, (name, value)) in object.iter().enumerate() {
        if n > 0 {
            json.push(b',');
        }
        // Writing to memory cannot fail, and every name is serializable.
        let _ = serde_json::to_writer(&mut *json, name);
        json.push(b':');
        member(json, name, value);
    }
    json.push(b'}');
}

fn write(json: &mut Vec<u8>, value: &Value) {
    // Writing to memory cannot fail, and every value is serializable.
    let _ = serde_json::to_writer(json, value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::GroupResource;

    fn key() -> Key {
        Key::new(GroupResource::new("", "configmaps"), "default", "a")
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let name = prop_oneof![
                Just("metadata".to_owned()),
                Just("labels".to_owned()),
                Just("resourceVersion".to_owned()),
                any::<String>()
            ];
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(name, inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_sealed_text_equals_the_object_with_its_revision(mut value in any_value(), revision in any::<u64>()) {
            let stored = Text::new(value.clone()).seal(key(), revision);
            if let Some(object) = value.as_object_mut() {
                let meta = object.entry("metadata").or_insert(Value::Null);
                if !meta.is_object() {
                    *meta = json!({});
                }
                meta["resourceVersion"] = revision.to_string().into();
            }
            let expected = value.to_string();
            prop_assert_eq!(&stored.json[..], expected.as_bytes());
            if value.is_object() {
                let read = Stored::from_json(key(), revision, stored.json.clone()).expect("an object");
                prop_assert_eq!(read.labels, stored.labels);
            }
        }
    }
}
