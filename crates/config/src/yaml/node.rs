//! The tree.

use std::sync::Arc;

use crate::problem::{FieldPath, Segment};
use crate::yaml::Scalar;

/// A position in a file; line and column are 1-based.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// A value and its position.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Position,
}

/// The value of a node.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// A plain scalar: a string, a number, a boolean or null.
    Plain(Arc<str>),
    /// A quoted scalar or a folded block: always a string.
    Quoted(Arc<str>),
    /// A literal block (`|`): a string whose lines are lines of the file.
    Literal(Arc<str>),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key of a map with its value; keys are unique in a map.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<str>,
    pub(crate) at: Position,
    pub(crate) value: Node,
}

impl Node {
    /// An empty map.
    pub(crate) fn empty(at: Position) -> Node {
        Node { value: Value::Map(Vec::new()), at }
    }

    /// The value of a key, if this is a map with the key.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|e| &*e.key == key).map(|e| &e.value)
    }

    /// The entries, if this is a map; none otherwise.
    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items, if this is a list; none otherwise.
    pub(crate) fn items(&self) -> &[Node] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The resolved scalar; `None` for lists and maps.
    pub(crate) fn scalar(&self) -> Option<Scalar<'_>> {
        match &self.value {
            Value::Plain(text) => Some(Scalar::resolve(text)),
            Value::Quoted(text) | Value::Literal(text) => Some(Scalar::Text(text)),
            _ => None,
        }
    }

    /// The string, if it is one.
    pub(crate) fn text(&self) -> Option<&Arc<str>> {
        match &self.value {
            Value::Quoted(text) | Value::Literal(text) => Some(text),
            Value::Plain(text) if matches!(Scalar::resolve(text), Scalar::Text(_)) => Some(text),
            _ => None,
        }
    }

    /// The text of a scalar, whatever it means.
    pub(crate) fn raw_text(&self) -> Option<&Arc<str>> {
        match &self.value {
            Value::Plain(text) | Value::Quoted(text) | Value::Literal(text) => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The value of a field, whose name can be written as in JSON or as in the proto file.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        let mut entries = self.entries().iter();
        entries.find(|e| crate::decode::is_json_name(&e.key, name)).map(|e| &e.value)
    }

    /// Whether it is null.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.scalar(), Some(Scalar::Null))
    }

    /// The position of the deepest existing node on the path. The position of a field is that of its key.
    pub(crate) fn locate(&self, path: &FieldPath) -> Position {
        let mut node = self;
        let mut at = self.at;
        for segment in path.segments() {
            match segment {
                Segment::Index(index) => match node.items().get(*index) {
                    Some(item) => (node, at) = (item, item.at),
                    None => break,
                },
                Segment::Field(name) | Segment::Key(name) => {
                    let exact = |e: &&Entry| e.key == *name;
                    let loose = |e: &&Entry| crate::decode::is_json_name(&e.key, name);
                    let entries = node.entries();
                    match entries.iter().find(exact).or_else(|| entries.iter().find(loose)) {
                        Some(entry) => (node, at) = (&entry.value, entry.at),
                        None => break,
                    }
                }
            }
        }
        at
    }

    /// A description for messages.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "an object".to_owned(),
            Value::Quoted(text) | Value::Literal(text) => format!("the text {}", quote(text)),
            Value::Plain(text) => match Scalar::resolve(text) {
                Scalar::Null => "nothing".to_owned(),
                Scalar::Bool(value) => format!("the boolean {value}"),
                Scalar::Int(_) | Scalar::Float(_) => format!("the number {}", cut(text)),
                Scalar::Text(_) => format!("the text {}", quote(text)),
            },
        }
    }

    /// The node as JSON. Numbers that JSON cannot hold become strings.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match &self.value {
            Value::Quoted(text) | Value::Literal(text) => Json::String(text.to_string()),
            Value::Plain(text) => match Scalar::resolve(text) {
                Scalar::Null => Json::Null,
                Scalar::Bool(value) => Json::Bool(value),
                Scalar::Int(value) => match (u64::try_from(value), i64::try_from(value)) {
                    (Ok(value), _) => value.into(),
                    (_, Ok(value)) => value.into(),
                    _ => Json::String(text.to_string()),
                },
                Scalar::Float(value) => match serde_json::Number::from_f64(value) {
                    Some(number) => Json::Number(number),
                    None => Json::String(text.to_string()),
                },
                Scalar::Text(text) => Json::String(text.to_owned()),
            },
            Value::List(items) => Json::Array(items.iter().map(Node::to_json).collect()),
            Value::Map(entries) => {
                Json::Object(entries.iter().map(|e| (e.key.to_string(), e.value.to_json())).collect())
            }
        }
    }
}

/// The text in quotes, truncated for messages.
pub(crate) fn quote(text: &str) -> String {
    format!("{:?}", cut(text))
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
