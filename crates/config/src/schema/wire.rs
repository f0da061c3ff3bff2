//! Protobuf messages of the core kinds and of reviews, as data: which field has which number, and what is in it.
//!
//! Kubernetes' own clients may write what they send in protobuf; this is what it is read by. The numbers stand beside the
//! fields in the tables of types.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use super::core;

/// Messages of kinds, by group and kind.
pub type Messages = BTreeMap<(&'static str, &'static str), Arc<Message>>;

/// A message: an object in JSON.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Message(pub(super) BTreeMap<u32, Entry>);

/// What a number of a message stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A field.
    Field(Field),
    /// A message whose fields are, in JSON, those of the message that it is in.
    Inline(Message),
}

/// A field of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name in JSON.
    pub name: &'static str,
    /// What is in it.
    pub form: Form,
    /// Whether a zero (`""`, `0`, `false`) is another thing than absence. Clients write zeros for absent fields otherwise.
    pub keeps_zero: bool,
    /// Whether null is another thing than absence.
    pub nullable: bool,
}

/// What is in a field.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// A text in UTF-8.
    Text,
    /// A whole number of 32 bits, as a varint.
    Int32,
    /// A whole number of 64 bits, as a varint.
    Int64,
    /// True or false.
    Boolean,
    /// Bytes; base64 in JSON.
    Bytes,
    /// A message of seconds since 1970; RFC 3339 in JSON. An empty one is no time.
    Time,
    /// The same with nanoseconds, of which six digits are kept.
    MicroTime,
    /// A message with a text.
    Quantity,
    /// A message of a sort (0: number, 1: text), a number and a text.
    IntOrText,
    /// A message with the bytes of a JSON text.
    Json,
    /// An object.
    Message(Arc<Message>),
    /// Any number of these.
    List(Box<Form>),
    /// An object whose keys users choose: any number of messages of a key and a value.
    Map(Box<Form>),
}

impl Message {
    /// What this number stands for; none: it is not known, and to be skipped.
    pub fn get(&self, number: u32) -> Option<&Entry> {
        self.0.get(&number)
    }

    /// All numbers that are known.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.0.iter().map(|(number, entry)| (*number, entry))
    }
}

/// The message of a kind; none: it is not one of the core kinds, and is never written in protobuf.
pub fn message(api_version: &str, kind: &str) -> Option<Arc<Message>> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    // Every group has this kind, in each of its versions.
    let group = if kind == "DeleteOptions" { "" } else { group };
    let found = messages().get(&(group, kind))?;
    (version == "v1" || kind == "DeleteOptions").then(|| found.clone())
}

/// All messages of kinds, by group and kind; their version is `v1`.
pub fn messages() -> &'static Messages {
    static ALL: LazyLock<Messages> = LazyLock::new(|| core::messages().0);
    &ALL
}
