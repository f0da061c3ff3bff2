//! Field selectors.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::{SelectorError, check_length};
use crate::Stored;

/// A field selector: all requirements must match. The default selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSelector {
    requirements: Vec<Requirement>,
}

/// One requirement: the field at a dotted path has, or does not have, a value.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Requirement {
    path: Arc<str>,
    value: Arc<str>,
    equal: bool,
}

impl FieldSelector {
    /// Parses a selector in Kubernetes syntax: comma-separated requirements of the form `path=value` (or `==`) or
    /// `path!=value`. In values `\` escapes `\`, `,` and `=`. An empty text selects everything.
    ///
    /// # Errors
    /// A description of the invalid requirement. The caller checks which paths a type supports.
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        check_length(text)?;
        let mut requirements = Vec::new();
        for term in terms(text) {
            if !term.is_empty() {
                requirements.push(requirement(text, term)?);
            }
        }
        Ok(FieldSelector { requirements })
    }

    /// Requires that a field has a value.
    pub fn equal(path: &str, value: &str) -> FieldSelector {
        FieldSelector { requirements: vec![Requirement { path: path.into(), value: value.into(), equal: true }] }
    }

    /// Adds the requirements of another selector.
    #[must_use]
    pub fn and(mut self, other: FieldSelector) -> FieldSelector {
        self.requirements.extend(other.requirements);
        self
    }

    /// Whether an object matches. A missing field has the value "".
    pub fn matches(&self, object: &Stored) -> bool {
        let mut parsed = None;
        self.requirements.iter().all(|Requirement { path, value: wanted, equal }| {
            let holds = match &**path {
                "metadata.name" => object.key.name == *wanted,
                "metadata.namespace" => object.key.namespace == *wanted,
                path => {
                    let value = parsed.get_or_insert_with(|| object.value());
                    match path.split('.').try_fold(&*value, |value, name| value.get(name)) {
                        Some(Value::String(text)) => **text == **wanted,
                        Some(Value::Null) | None => wanted.is_empty(),
                        Some(other) => {
                            let text = other.to_string();
                            *text == **wanted
                        }
                    }
                }
            };
            holds == *equal
        })
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The paths of all requirements.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|requirement| &*requirement.path)
    }

    /// The required value of a field, if any. A requirement on `metadata.name` turns a list into a lookup.
    pub fn exact(&self, path: &str) -> Option<&str> {
        let found = self.requirements.iter().find(|requirement| requirement.equal && &*requirement.path == path);
        found.map(|requirement| &*requirement.value)
    }
}

impl fmt::Display for FieldSelector {
    /// In the syntax of [`FieldSelector::parse`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Requirement { path, value, equal }) in self.requirements.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let operator = if *equal { "=" } else { "!=" };
            write!(f, "{comma}{path}{operator}")?;
            for c in value.chars() {
                let escape = if matches!(c, '\\' | ',' | '=') { "\\" } else { "" };
                write!(f, "{escape}{c}")?;
            }
        }
        Ok(())
    }
}

/// Splits at unescaped commas.
fn terms(text: &str) -> Vec<&str> {
    let (mut terms, mut began, mut escaped) = (Vec::new(), 0, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b',' => {
                terms.push(&text[began..at]);
                began = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[began..]);
    terms
}

/// Parses one requirement. The first operator counts.
fn requirement(text: &str, term: &str) -> Result<Requirement, SelectorError> {
    let error = |what: String| SelectorError::new(format!("field selector {text:?}: {what}"));
    let at = term.find("!=").into_iter().chain(term.find('=')).min();
    let Some(at) = at else {
        return Err(error(format!("{term:?} has no operator (=, ==, !=)")));
    };
    let (path, rest) = term.split_at(at);
    let (equal, value) = match rest.strip_prefix("!=") {
        Some(value) => (false, value),
        None => (true, rest.strip_prefix("==").unwrap_or(&rest[1..])),
    };
    if path.is_empty() || path.contains('\\') {
        return Err(error(format!("{term:?} does not begin with the path of a field")));
    }
    Ok(Requirement { path: path.into(), value: unescaped(value, error)?.into(), equal })
}

/// Removes the escapes of a value.
fn unescaped(value: &str, error: impl Fn(String) -> SelectorError) -> Result<String, SelectorError> {
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => {
                    let text = format!("value {value:?} has \"\\{c}\"; a backslash may stand before \\ , = only");
                    return Err(error(text));
                }
                None => return Err(error(format!("value {value:?} ends with a backslash"))),
            },
            '=' => return Err(error(format!("value {value:?} has \"=\" without a backslash before it"))),
            c => plain.push(c),
        }
    }
    Ok(plain)
}
