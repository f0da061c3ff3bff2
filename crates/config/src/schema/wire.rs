//! Protobuf messages of the core kinds and of reviews: field numbers and types.
//!
//! Kubernetes clients may send request bodies in protobuf. The tables of types declare the numbers of the fields.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::core;

/// Messages of kinds, by group and kind.
pub type Messages = BTreeMap<(&'static str, &'static str), Arc<Message>>;

/// A message; an object in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message(pub(super) BTreeMap<u32, Entry>);

/// The meaning of a field number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A field.
    Field(Field),
    /// An embedded message, whose fields are fields of the outer object in JSON.
    Inline(Message),
}

/// A field of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// The type.
    pub form: Form,
    /// Whether a zero (`""`, `0`, `false`) differs from an absent field. If not, clients write zeros for absent fields.
    pub keeps_zero: bool,
    /// Whether null differs from an absent field.
    pub nullable: bool,
}

/// The type of a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// A UTF-8 string.
    Text,
    /// A 32-bit integer, as a varint.
    Int32,
    /// A 64-bit integer, as a varint.
    Int64,
    /// A boolean.
    Boolean,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A message with seconds since 1970; RFC 3339 in JSON. An empty message is no time.
    Time,
    /// A time with nanoseconds, rounded down to microseconds.
    MicroTime,
    /// A message with a string.
    Quantity,
    /// A message with a discriminator (0: integer, 1: string), an integer and a string.
    IntOrText,
    /// A message with the bytes of a JSON document.
    Json,
    /// An object.
    Message(Arc<Message>),
    /// A repeated field.
    List(Box<Form>),
    /// A map: repeated messages with a key and a value.
    Map(Box<Form>),
}

impl Message {
    /// The entry with this number; none if the number is unknown and must be skipped.
    pub fn get(&self, number: u32) -> Option<&Entry> {
        self.0.get(&number)
    }

    /// All entries.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.0.iter().map(|(number, entry)| (*number, entry))
    }
}

/// The message of a kind; none for kinds that have no protobuf form.
pub fn message(api_version: &str, kind: &str) -> Option<Arc<Message>> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    // Every group version has this kind.
    let group = if kind == "DeleteOptions" { "" } else { group };
    let found = messages().get(&(group, kind))?;
    (version == "v1" || kind == "DeleteOptions").then(|| found.clone())
}

/// All messages of kinds, by group and kind; their version is `v1`.
pub fn messages() -> &'static Messages {
    static ALL: LazyLock<Messages> = LazyLock::new(|| core::messages().0);
    &ALL
}
