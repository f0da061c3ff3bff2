//! Path elements of server-side apply.

use std::fmt;

use serde_json::{Map, Value as Json};

/// A path element.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Element {
    /// A field of an object or a map entry.
    Field(String),
    /// A list item identified by keys: compact JSON with sorted names.
    Key(String),
    /// An item of a set: compact JSON.
    Value(String),
    /// A list item identified by position. Only foreign field sets contain it.
    Index(i64),
}

impl Element {
    /// The element of a field.
    pub(crate) fn field(name: &str) -> Element {
        Element::Field(name.to_owned())
    }

    /// The element of the item with these keys.
    pub(crate) fn key(keys: &[(&str, &Json)]) -> Element {
        let mut sorted: Vec<_> = keys.to_vec();
        sorted.sort_by_key(|(name, _)| *name);
        let mut text = String::from("{");
        for (position, (name, value)) in sorted.into_iter().enumerate() {
            if position > 0 {
                text.push(',');
            }
            text.push_str(&Json::from(name).to_string());
            text.push(':');
            text.push_str(&canonical(value));
        }
        text.push('}');
        Element::Key(text)
    }

    /// The element of a set item.
    pub(crate) fn value(value: &Json) -> Element {
        Element::Value(canonical(value))
    }

    /// The name in `FieldsV1`.
    pub(crate) fn encode(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Key(keys) => format!("k:{keys}"),
            Element::Value(value) => format!("v:{value}"),
            Element::Index(index) => format!("i:{index}"),
        }
    }

    /// Parses a name in `FieldsV1`.
    pub(crate) fn decode(text: &str) -> Option<Element> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Element::Field(rest.to_owned())),
            "k" => {
                let keys: Map<String, Json> = serde_json::from_str(rest).ok()?;
                let keys: Vec<(&str, &Json)> = keys.iter().map(|(name, value)| (name.as_str(), value)).collect();
                Some(Element::key(&keys))
            }
            "v" => Some(Element::value(&serde_json::from_str::<Json>(rest).ok()?)),
            "i" => Some(Element::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

/// Compact JSON. Whole numbers have no fraction, so that 80 and 80.0 are the same item.
fn canonical(value: &Json) -> String {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Json::Number(number) = value
        && !number.is_i64()
        && !number.is_u64()
        && let Some(float) = number.as_f64()
        && float.fract() == 0.0
        && float.abs() < EXACT
    {
        return format!("{float:.0}");
    }
    value.to_string()
}

impl fmt::Display for Element {
    /// `.name`, `[port=80,protocol="TCP"]`, `[="value"]`, `[0]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Value(value) => write!(f, "[={value}]"),
            Element::Index(index) => write!(f, "[{index}]"),
            Element::Key(keys) => {
                let keys: Map<String, Json> = serde_json::from_str(keys).unwrap_or_default();
                f.write_str("[")?;
                for (position, (name, value)) in keys.iter().enumerate() {
                    let gap = if position > 0 { "," } else { "" };
                    write!(f, "{gap}{name}={value}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// A path: `.spec.ports[port=80].name`.
pub(crate) fn display_path(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}
