//! `--set a.b[0].c=value,d={1,2}` with the syntax of Helm.

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value as Json};

/// Maximum index of a list.
const MAX_INDEX: usize = 65_536;

/// Applies comma-separated assignments to values. Numbers, booleans and null are typed.
pub(crate) fn assign(values: &mut Json, text: &str) -> Result<()> {
    all(values, text, &typed)
}

/// Like [`assign`], but every value is a string.
pub(crate) fn assign_text(values: &mut Json, text: &str) -> Result<()> {
    all(values, text, &|text| Json::String(text))
}

fn all(values: &mut Json, text: &str, read: &dyn Fn(String) -> Json) -> Result<()> {
    for assignment in split(text, ',', true) {
        let mut sides = split(assignment, '=', false).into_iter();
        let (Some(path), Some(value)) = (sides.next(), sides.next()) else {
            bail!("`{assignment}` is not of the form PATH=VALUE");
        };
        // A value may contain equals signs.
        let value = &assignment[assignment.len() - value.len() - sides.map(|side| side.len() + 1).sum::<usize>()..];
        let value = match value.strip_prefix('{').and_then(|list| list.strip_suffix('}')) {
            Some("") => Json::Array(Vec::new()),
            Some(list) => split(list, ',', true).into_iter().map(|one| read(plain(one))).collect(),
            None => read(plain(value)),
        };
        let steps = steps(path)?;
        put(values, &steps, value)?;
    }
    Ok(())
}

/// Splits at a separator that is not escaped and, if `braces`, not between braces.
fn split(text: &str, sign: char, braces: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut from, mut depth, mut escaped) = (0, 0_usize, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '{' if braces => depth += 1,
            '}' if braces => depth = depth.saturating_sub(1),
            c if c == sign && depth == 0 => {
                parts.push(&text[from..at]);
                from = at + sign.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// Removes escaping backslashes.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next()),
            c => out.push(c),
        }
    }
    out
}

fn typed(text: String) -> Json {
    match text.as_str() {
        "true" => true.into(),
        "false" => false.into(),
        "null" => Json::Null,
        // Text with a leading zero is an identifier, not a number.
        number if number == "0" || !number.starts_with('0') => match number.parse::<i64>() {
            Ok(number) => number.into(),
            Err(_) => text.into(),
        },
        _ => text.into(),
    }
}

/// A step of a path.
#[derive(PartialEq, Debug)]
enum Step {
    Field(String),
    Element(usize),
}

fn steps(path: &str) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for part in split(path, '.', false) {
        let mut pieces = split(part, '[', false).into_iter();
        let field = plain(pieces.next().unwrap_or_default());
        ensure!(!field.is_empty(), "`{path}`: a name is missing");
        steps.push(Step::Field(field));
        for piece in pieces {
            let index = piece.strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
            match index.filter(|index| *index < MAX_INDEX) {
                Some(index) => steps.push(Step::Element(index)),
                None => bail!("`{path}`: `[{piece}` is not an index"),
            }
        }
    }
    Ok(steps)
}

fn put(into: &mut Json, steps: &[Step], value: Json) -> Result<()> {
    let Some((step, rest)) = steps.split_first() else {
        *into = value;
        return Ok(());
    };
    match step {
        Step::Field(field) => {
            if !into.is_object() {
                *into = Json::Object(Map::new());
            }
            match into.as_object_mut() {
                Some(fields) => put(fields.entry(field.clone()).or_insert(Json::Null), rest, value),
                None => Ok(()),
            }
        }
        Step::Element(index) => {
            if !into.is_array() {
                *into = Json::Array(Vec::new());
            }
            match into.as_array_mut() {
                Some(items) => {
                    if items.len() <= *index {
                        items.resize(index + 1, Json::Null);
                    }
                    put(&mut items[*index], rest, value)
                }
                None => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn set(text: &str) -> Result<Json> {
        let mut values = json!({});
        assign(&mut values, text)?;
        Ok(values)
    }

    #[test]
    fn assignments_have_helm_syntax() {
        for (text, expected) in [
            ("a=1,b=x", json!({"a": 1, "b": "x"})),
            ("a.b.c=true", json!({"a": {"b": {"c": true}}})),
            ("a={x,2},b=1", json!({"a": ["x", 2], "b": 1})),
            ("a[1].b=x", json!({"a": [null, {"b": "x"}]})),
            (r"a\.b/c=x\,y", json!({"a.b/c": "x,y"})),
            ("a=x=y", json!({"a": "x=y"})),
            ("a=,b=null,c=007,d=1.5", json!({"a": "", "b": null, "c": "007", "d": "1.5"})),
        ] {
            assert_eq!(set(text).unwrap(), expected, "{text}");
        }
        let mut values = json!({});
        assign_text(&mut values, "a=1").unwrap();
        assert_eq!(values, json!({"a": "1"}));
    }

    #[test]
    fn invalid_assignments_are_rejected() {
        for text in ["a", ".a=1", "a[x]=1", "a[99999999]=1", "=1"] {
            assert!(set(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[a-c.,=\\[\\]{}\\\\0-9é]{0,20}") {
            let _ = set(&text);
        }
    }
}
