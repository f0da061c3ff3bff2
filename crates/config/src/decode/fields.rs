//! Fields of a message during decoding, and field names.

use std::borrow::Cow;
use std::sync::Arc;

use crate::decode::{Decode, Decoder, Unknown};
use crate::problem::{Segment, Severity};
use crate::yaml::{Node, Value};

/// Entries of a map; tracks which of them have been decoded.
pub(crate) struct Fields<'n> {
    node: &'n Node,
    taken: Vec<bool>,
    known: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Fields of an object. A null is an object without fields. Any other value is reported.
    pub(crate) fn of(node: &'n Node, cx: &mut Decoder) -> Option<Fields<'n>> {
        if !matches!(node.value, Value::Map(_)) && !node.is_null() {
            cx.mismatch(node, "an object");
            return None;
        }
        Some(Fields { node, taken: vec![false; node.entries().len()], known: Vec::new() })
    }

    /// Decodes a field. Its name can be written as in JSON or as in the proto file.
    pub(crate) fn decode<T: Decode>(&mut self, name: &'static str, cx: &mut Decoder) -> Option<T> {
        let (name, node) = self.find(name, cx)?;
        cx.within(Segment::Field(name.into()), |cx| T::decode(node, cx))
    }

    /// Looks up a field and marks it as known. Returns `None` if it is absent or null.
    pub(crate) fn find(&mut self, name: &'static str, cx: &mut Decoder) -> Option<(Cow<'static, str>, &'n Node)> {
        self.known.push(name);
        let mut found: Option<&Node> = None;
        for (position, entry) in self.node.entries().iter().enumerate() {
            if &*entry.key != name && !is_json_name(&entry.key, name) {
                continue;
            }
            self.taken[position] = true;
            if found.is_some() {
                let message =
                    format!("the field {} is set twice, under its JSON name and its proto name", json_name(name));
                cx.error(entry.at, "duplicate-key", message, None);
            }
            found = Some(&entry.value);
        }
        found.filter(|n| !n.is_null()).map(|node| (json_name(name), node))
    }

    /// Reports unknown fields, unless the decoder ignores them.
    pub(crate) fn finish(self, cx: &mut Decoder) {
        let severity = match cx.unknown {
            Unknown::Ignore => return,
            Unknown::Warn => Severity::Warning,
            Unknown::Refuse => Severity::Error,
        };
        for (entry, taken) in self.node.entries().iter().zip(&self.taken) {
            if *taken {
                continue;
            }
            let names = self.known.iter().map(|n| json_name(n));
            let hint = nearest(&entry.key, names).map(|name| format!("did you mean {name}?"));
            cx.within(Segment::Field(shortened(&entry.key)), |cx| {
                cx.report(entry.at, severity, "unknown-field", "unknown field".to_owned(), hint);
            });
        }
    }
}

/// JSON name of a proto field: lower camel case. Names in camel case are unchanged.
pub(crate) fn json_name(name: &str) -> Cow<'_, str> {
    if !name.contains('_') {
        return Cow::Borrowed(name);
    }
    let mut out = String::with_capacity(name.len());
    let mut raise = false;
    for c in name.chars() {
        match c {
            '_' => raise = true,
            c if raise => {
                out.push(c.to_ascii_uppercase());
                raise = false;
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Whether `key` is the JSON name of the proto field `name`, or the reverse.
pub(crate) fn is_json_name(key: &str, name: &str) -> bool {
    is_camel_of(key, name) || is_camel_of(name, key)
}

fn is_camel_of(camel: &str, snake: &str) -> bool {
    let mut camel = camel.bytes();
    let mut raise = false;
    for b in snake.bytes() {
        if b == b'_' {
            raise = true;
            continue;
        }
        let expected = if raise { b.to_ascii_uppercase() } else { b };
        raise = false;
        if camel.next() != Some(expected) {
            return false;
        }
    }
    camel.next().is_none()
}

/// Returns the name that is closest to the text, if the text can be a misspelling of it.
pub fn nearest<N: AsRef<str>>(text: &str, names: impl IntoIterator<Item = N>) -> Option<N> {
    if text.len() > 64 {
        return None;
    }
    let allowed = 1 + text.chars().count() / 4;
    let scored = names.into_iter().map(|name| (distance(text, name.as_ref()), name));
    scored.filter(|(d, _)| *d <= allowed).min_by_key(|(d, _)| *d).map(|(_, name)| name)
}

/// Edit distance between two texts: the number of characters to insert, remove or replace, ignoring case.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replace = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Truncates a key from untrusted input to a length that is suitable for a path.
fn shortened(key: &Arc<str>) -> Arc<str> {
    match key.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", &key[..end]).into(),
        None => key.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_json() {
        for (proto, json) in [
            ("hosts", "hosts"),
            ("export_to", "exportTo"),
            ("http1_max_pending_requests", "http1MaxPendingRequests"),
            ("consecutive_5xx_errors", "consecutive5xxErrors"),
            ("k8s_sa_jwt_path", "k8sSaJwtPath"),
            ("meshMTLS", "meshMTLS"),
        ] {
            assert_eq!(json_name(proto), json);
            assert!(is_json_name(json, proto));
            assert!(is_json_name(proto, json));
        }
        assert!(!is_json_name("exportto", "export_to"));
        assert!(!is_json_name("export_", "export_to"));
    }

    #[test]
    fn suggests_the_nearest_name() {
        let names = ["weight", "destination", "headers"];
        assert_eq!(nearest("wieght", names), Some("weight"));
        assert_eq!(nearest("Weight", names), Some("weight"));
        assert_eq!(nearest("header", names), Some("headers"));
        assert_eq!(nearest("timeout", names), None);
    }
}
