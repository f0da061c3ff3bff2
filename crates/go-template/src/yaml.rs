//! Writes JSON values as YAML in the form of `kubectl`: sorted keys, lists indented like their key.

use serde_json::{Map, Value as Json};

/// The value as one YAML document, with a trailing line break.
pub fn document(value: &Json) -> String {
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
