//! Writes JSON values as YAML in the form of `kubectl`: sorted keys, lists indented like their key.

use serde_json::{Map, Value as Json};

/// The value as one YAML document, with a trailing line break.
pub(crate) fn document(value: &Json) -> String {
    let mut out = String::new();
    match value {
        Json::Object(fields) if !fields.is_empty() => object(fields, 0, &mut out),
        Json::Array(items) if !items.is_empty() => list(items, 0, &mut out),
        scalar => {
            inline(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

fn object(fields: &Map<String, Json>, indent: usize, out: &mut String) {
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    for (index, (key, value)) in sorted.into_iter().enumerate() {
        // The first key of a list item follows its dash.
        if index > 0 || !out.ends_with("- ") {
            spaces(indent, out);
        }
        plain_or_quoted(key, out);
        out.push(':');
        match value {
            Json::Object(fields) if !fields.is_empty() => {
                out.push('\n');
                object(fields, indent + 2, out);
            }
            Json::Array(items) if !items.is_empty() => {
                out.push('\n');
                list(items, indent, out);
            }
            scalar => {
                out.push(' ');
                inline(scalar, indent, out);
                out.push('\n');
            }
        }
    }
}

fn list(items: &[Json], indent: usize, out: &mut String) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 || !out.ends_with("- ") {
            spaces(indent, out);
        }
        out.push_str("- ");
        match item {
            Json::Object(fields) if !fields.is_empty() => object(fields, indent + 2, out),
            Json::Array(items) if !items.is_empty() => list(items, indent + 2, out),
            scalar => {
                inline(scalar, indent, out);
                out.push('\n');
            }
        }
    }
}

/// Writes a value that follows a key or a dash. A literal block is indented by two more than `indent`.
fn inline(value: &Json, indent: usize, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Object(_) => out.push_str("{}"),
        Json::Array(_) => out.push_str("[]"),
        Json::String(text) if is_block(text) => block(text, indent + 2, out),
        Json::String(text) => plain_or_quoted(text, out),
        number => out.push_str(&number.to_string()),
    }
}

/// Whether to write a text as a literal block.
fn is_block(text: &str) -> bool {
    let lines = text.strip_suffix('\n').unwrap_or(text);
    let safe = |c: char| c == '\n' || c == '\t' || !(c.is_control() || is_odd(c));
    // A first line that begins with a space would need an indentation indicator.
    lines.contains('\n')
        && text.chars().all(safe)
        && !text.starts_with([' ', '\n', '\t'])
        && !lines.ends_with('\n')
        && lines.split('\n').all(|line| line.is_empty() || !line.trim().is_empty())
}

fn block(text: &str, indent: usize, out: &mut String) {
    out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            spaces(indent, out);
            out.push_str(line);
        }
    }
}

fn plain_or_quoted(text: &str, out: &mut String) {
    match is_plain(text) {
        true => out.push_str(text),
        false => quoted(text, out),
    }
}

/// Whether every YAML parser, including YAML 1.1, reads the unquoted text as this string.
fn is_plain(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    let reserved = matches!(
        word.as_str(),
        "" | "~" | "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n" | ".inf" | ".nan" | "<<" | "="
    );
    let first = text.chars().next().unwrap_or(' ');
    // Numbers, dates, octal numbers and sexagesimal numbers need quotes.
    let numeric = match first {
        '0'..='9' => may_be_number(text),
        '+' | '-' | '.' => looks_numeric(&text[1..]),
        _ => false,
    };
    let starts = first.is_alphanumeric() || matches!(first, '/' | '_' | '.' | '(' | '$' | '^' | '\\' | '+');
    !reserved
        && !numeric
        && (starts || (first == '<' && text != "<<"))
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.chars().any(|c| c.is_control() || is_odd(c))
}

fn looks_numeric(rest: &str) -> bool {
    rest.is_empty()
        || rest.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '.' | 'i' | 'I' | 'n' | 'N' | '-' | ' '))
}

/// Whether a text that starts with a digit could be read as a number, time or date. UIDs and addresses cannot.
fn may_be_number(text: &str) -> bool {
    let all = |fits: fn(char) -> bool| text.chars().all(fits);
    // An IP address has more than one dot.
    let one_point = text.matches('.').count() < 2;
    // `1e3`, `12:30:00`, `1_000`; hexadecimal, octal and binary numbers; dates with or without a time.
    (one_point && all(|c| c.is_ascii_digit() || matches!(c, '.' | '_' | ':' | '+' | '-' | 'e' | 'E')))
        || (text.starts_with('0') && all(|c| c.is_ascii_hexdigit() || matches!(c, '_' | 'x' | 'X' | 'o' | 'O')))
        || (text.as_bytes().get(4) == Some(&b'-') && text.bytes().take(4).all(|b| b.is_ascii_digit()))
}

/// Characters that YAML parsers treat differently.
fn is_odd(c: char) -> bool {
    matches!(c, '\u{feff}' | '\u{85}' | '\u{a0}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}')
}

/// Writes a double-quoted string with JSON escapes.
fn quoted(text: &str, out: &mut String) {
    for c in Json::from(text).to_string().chars() {
        match c.is_control() || is_odd(c) {
            true => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => out.push(c),
        }
    }
}

fn spaces(count: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', count));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::manifests;

    #[test]
    fn objects_have_the_form_of_kubectl() {
        let value = json!({
            "kind": "VirtualService",
            "apiVersion": "networking.istio.io/v1",
            "spec": {"hosts": ["a.example", "*"], "http": [{"route": [{"weight": 1}, {}]}], "empty": [], "none": null},
            "script": "a\nb\n",
            "odd": {"on": "yes", "version": "1.10", "date": "2026-01-01", "10m": "10m", "space": " x",
                "ip": "10.1.2.3", "uid": "59cc5757-7fb4-47e9-9899-a0679422f655", "hex": "0b1f", "half": "1e9"}
        });
        let expected = "\
apiVersion: networking.istio.io/v1
kind: VirtualService
odd:
  10m: 10m
  date: \"2026-01-01\"
  half: \"1e9\"
  hex: \"0b1f\"
  ip: 10.1.2.3
  \"on\": \"yes\"
  space: \" x\"
  uid: 59cc5757-7fb4-47e9-9899-a0679422f655
  version: \"1.10\"
script: |
  a
  b
spec:
  empty: []
  hosts:
  - a.example
  - \"*\"
  http:
  - route:
    - weight: 1
    - {}
  none: null
";
        assert_eq!(document(&value), expected);
        assert_eq!(document(&json!([[1, [2]], "x"])), "- - 1\n  - - 2\n- x\n");
        assert_eq!(document(&json!({})), "{}\n");
    }

    fn values() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(Json::Null),
            any::<bool>().prop_map(Json::from),
            any::<i64>().prop_map(Json::from),
            "[-a-z0-9 :#.+~'\"{}\\[\\]\n\t&*!|>%@`é]{0,12}".prop_map(Json::from),
            prop::sample::select(vec![
                "yes", "1e3", "0x1f", "1:30", "null", "~", ".5", "-", "---", "...", "1_000", "=", "? a"
            ])
            .prop_map(Json::from),
            "\\PC{0,8}".prop_map(Json::from),
        ];
        leaf.prop_recursive(4, 30, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
                prop::collection::btree_map("[-a-z0-9 :.~/]{1,6}", inner, 0..4)
                    .prop_map(|map| Json::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn written_values_are_read_back(value in values()) {
            let value = json!({"value": value});
            let text = document(&value);
            let read = manifests::parse_text(text.as_bytes()).unwrap();
            prop_assert_eq!(&read[0].0, &value, "{}", text);
        }
    }
}
