//! Positions of fields in a text, for problems that a server reports.

use std::iter::Peekable;
use std::str::Chars;

use crate::parse::{Limits, text_of};
use crate::problem::FieldPath;
use crate::yaml;

/// Limit of path segments; the rest is ignored.
const MAX_STEPS: usize = 128;

/// The line and the column (1-based) of the deepest existing field on a path.
///
/// `line` identifies the document, as in [`crate::YamlDocument::line`]. Returns none if there is no such document, or
/// if it cannot be read.
pub fn locate(bytes: &[u8], line: u32, path: &FieldPath, limits: &Limits) -> Option<(u32, u32)> {
    let text = text_of(bytes, limits).ok()?;
    let documents = yaml::split(text).into_iter().enumerate();
    for (number, document) in documents.take_while(|(_, document)| document.first_line <= line) {
        let first = document.first_line;
        let Ok((root, _)) = limits.check(number, document).and_then(|document| yaml::parse_document(document, limits))
        else {
            continue;
        };
        if root.at.line.max(first) == line {
            let at = root.locate(path);
            return Some((at.line, at.column));
        }
    }
    None
}

impl FieldPath {
    /// Parses a path as messages contain it: `spec.http[0].route`, `.spec.hosts`, `data[tls.crt]`, `labels["a/b"]`.
    /// Every text is accepted; an invalid path leads nowhere.
    pub fn parse(text: &str) -> FieldPath {
        let mut path = FieldPath::root();
        let mut chars = text.chars().peekable();
        while chars.peek().is_some() && path.segments().len() < MAX_STEPS {
            path = match chars.next_if_eq(&'[') {
                Some(_) => bracket(&path, &mut chars),
                None => {
                    chars.next_if_eq(&'.');
                    let name = until(&mut chars, |c| c == '.' || c == '[');
                    if name.is_empty() { path } else { path.field(name) }
                }
            };
        }
        path
    }
}

/// The content of brackets: an index, or a key with or without quotes.
fn bracket(path: &FieldPath, chars: &mut Peekable<Chars<'_>>) -> FieldPath {
    if chars.next_if_eq(&'"').is_some() {
        let key = until(chars, |c| c == '"');
        until(chars, |c| c == ']');
        chars.next();
        return path.key(key);
    }
    let inner = until(chars, |c| c == ']');
    chars.next();
    match inner.parse() {
        Ok(index) => path.index(index),
        Err(_) => path.key(inner),
    }
}

fn until(chars: &mut Peekable<Chars<'_>>, end: impl Fn(char) -> bool) -> String {
    std::iter::from_fn(|| chars.next_if(|c| !end(*c))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_read_as_they_are_written() {
        for text in ["spec.http[0].route", "data[\"tls.crt\"]", "[2]", "spec"] {
            assert_eq!(FieldPath::parse(text).to_string(), text);
        }
        assert_eq!(FieldPath::parse(".spec.a").to_string(), "spec.a");
        assert_eq!(FieldPath::parse("data[tls.crt].b").to_string(), "data[\"tls.crt\"].b");
        assert_eq!(FieldPath::parse("").segments().len(), 0);
    }

    #[test]
    fn the_deepest_part_that_is_there_is_found() {
        let text = b"# one\na: 1\n---\n\nspec:\n  hosts: [x]\n  http:\n  - match: {}\n    route: 1\n";
        let at = |line, path: &str| locate(text, line, &FieldPath::parse(path), &Limits::default());
        assert_eq!(at(5, "spec.http[0].route"), Some((9, 5)));
        assert_eq!(at(5, ".spec.http[0].none.at.all"), Some((8, 5)));
        assert_eq!(at(5, "spec.http[7]"), Some((7, 3)));
        assert_eq!(at(2, "a"), Some((2, 1)));
        assert_eq!(at(3, "a"), None);
        assert_eq!(locate(b"a: [", 1, &FieldPath::root(), &Limits::default()), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in "[-a-c:\\[\\]{} \n.\"0-9]{0,60}", path in "[a-c.\\[\\]\"0-9]{0,20}", line in 0u32..9) {
            let path = FieldPath::parse(&path);
            let _ = locate(text.as_bytes(), line, &path, &Limits::default());
        }
    }
}
