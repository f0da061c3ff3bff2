//! Further functions of Helm's function library: texts, numbers, lists, maps, encodings and regular expressions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use regex::Regex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::Problem;
use crate::functions::{Function, FunctionResult, fields, items, kind_of, texts, whole, wrong_number};
use crate::text::{is_true, shown};
use crate::yaml;

/// Maximum number of elements or characters that a function makes from a number.
const MAX_MADE: usize = 100_000;

/// Name, number of arguments (0: any number) and implementation of each function.
pub(crate) const FUNCTIONS: &[(&str, usize, Function)] = &[
    // Texts.
    ("trimAll", 2, |a| trimmed(a)),
    ("trimall", 2, |a| trimmed(a)),
    ("title", 1, |a| Ok(words(&shown(&a[0]), |first| first.to_uppercase().collect()).into())),
    ("untitle", 1, |a| Ok(words(&shown(&a[0]), |first| first.to_lowercase().collect()).into())),
    ("repeat", 2, |a| repeat(&a[0], &shown(&a[1]))),
    ("substr", 3, |a| Ok(substr(whole(&a[0]), whole(&a[1]), &shown(&a[2])).into())),
    ("nospace", 1, |a| Ok(shown(&a[0]).split_whitespace().collect::<String>().into())),
    ("abbrev", 2, |a| Ok(abbrev(whole(&a[0]), shown(&a[1])).into())),
    ("cat", 0, |a| Ok(a.iter().filter(|value| !value.is_null()).map(shown).collect::<Vec<_>>().join(" ").into())),
    ("split", 2, |a| Ok(split(shown(&a[1]).split(&shown(&a[0]))))),
    ("splitn", 3, |a| {
        let count = usize::try_from(whole(&a[1])).unwrap_or(0);
        Ok(split(shown(&a[2]).splitn(count.max(1), &shown(&a[0]))))
    }),
    ("snakecase", 1, |a| Ok(parted(&shown(&a[0]), '_').into())),
    ("kebabcase", 1, |a| Ok(parted(&shown(&a[0]), '-').into())),
    ("camelcase", 1, |a| Ok(camel(&shown(&a[0])).into())),
    ("plural", 3, |a| Ok(if whole(&a[2]) == 1 { &a[0] } else { &a[1] }.clone())),
    ("println", 0, |a| Ok(format!("{}\n", a.iter().map(shown).collect::<Vec<_>>().join(" ")).into())),
    ("html", 1, |a| Ok(escaped(&shown(&a[0])).into())),
    ("toStrings", 1, |a| Ok(texts(&a[0])?.into())),
    // Numbers.
    ("atoi", 1, |a| Ok(whole(&a[0]).into())),
    ("float64", 1, |a| Ok(float(&a[0]).into())),
    ("add1", 1, |a| Ok(whole(&a[0]).wrapping_add(1).into())),
    ("mul", 0, |a| Ok(a.iter().map(whole).fold(1_i64, i64::wrapping_mul).into())),
    ("div", 2, |a| Ok(whole(&a[0]).checked_div(whole(&a[1])).ok_or("division by zero")?.into())),
    ("mod", 2, |a| Ok(whole(&a[0]).checked_rem(whole(&a[1])).ok_or("division by zero")?.into())),
    ("max", 0, |a| Ok(a.iter().map(whole).max().unwrap_or_default().into())),
    ("min", 0, |a| Ok(a.iter().map(whole).min().unwrap_or_default().into())),
    ("floor", 1, |a| Ok(float(&a[0]).floor().into())),
    ("ceil", 1, |a| Ok(float(&a[0]).ceil().into())),
    ("round", 2, |a| {
        let scale = 10_f64.powi(i32::try_from(whole(&a[1]).clamp(0, 15)).unwrap_or_default());
        Ok(((float(&a[0]) * scale).round() / scale).into())
    }),
    ("until", 1, |a| counted(0, whole(&a[0]), if whole(&a[0]) < 0 { -1 } else { 1 })),
    ("untilStep", 3, |a| counted(whole(&a[0]), whole(&a[1]), whole(&a[2]))),
    // Kinds.
    ("kindOf", 1, |a| Ok(kind_of(&a[0]).into())),
    ("typeOf", 1, |a| Ok(kind_of(&a[0]).into())),
    ("typeIs", 2, |a| Ok((shown(&a[0]) == kind_of(&a[1])).into())),
    ("all", 0, |a| Ok(a.iter().all(is_true).into())),
    ("any", 0, |a| Ok(a.iter().any(is_true).into())),
    ("deepEqual", 2, |a| Ok((a[0] == a[1]).into())),
    ("deepCopy", 1, |a| Ok(a[0].clone())),
    // Lists.
    ("tuple", 0, |a| Ok(a.to_vec().into())),
    ("first", 1, |a| Ok(items(&a[0])?.first().cloned().unwrap_or_default())),
    ("last", 1, |a| Ok(items(&a[0])?.last().cloned().unwrap_or_default())),
    ("rest", 1, |a| Ok(items(&a[0])?.get(1..).unwrap_or_default().into())),
    ("initial", 1, |a| Ok(items(&a[0])?.split_last().map_or(&[][..], |(_, initial)| initial).into())),
    ("reverse", 1, |a| Ok(items(&a[0])?.iter().rev().cloned().collect::<Vec<_>>().into())),
    ("prepend", 2, |a| Ok([&a[1..], items(&a[0])?].concat().into())),
    ("push", 2, |a| Ok([items(&a[0])?, &a[1..]].concat().into())),
    ("uniq", 1, |a| {
        let mut unique: Vec<Value> = Vec::new();
        for item in items(&a[0])? {
            if !unique.contains(item) {
                unique.push(item.clone());
            }
        }
        Ok(unique.into())
    }),
    ("without", 0, |a| match a {
        [list, left_out @ ..] => {
            Ok(items(list)?.iter().filter(|item| !left_out.contains(item)).cloned().collect::<Vec<_>>().into())
        }
        [] => Err(wrong_number(1, a)),
    }),
    ("compact", 1, |a| Ok(items(&a[0])?.iter().filter(|item| is_true(item)).cloned().collect::<Vec<_>>().into())),
    ("slice", 0, slice),
    // Maps.
    ("values", 1, |a| Ok(fields(&a[0])?.values().cloned().collect::<Vec<_>>().into())),
    ("set", 3, |a| {
        let mut map = fields(&a[0])?.clone();
        map.insert(shown(&a[1]), a[2].clone());
        Ok(Value::Object(map))
    }),
    ("unset", 2, |a| {
        let mut map = fields(&a[0])?.clone();
        map.remove(&shown(&a[1]));
        Ok(Value::Object(map))
    }),
    ("dig", 0, dig),
    ("pluck", 0, |a| match a {
        [key, maps @ ..] => {
            let found = maps.iter().filter_map(|map| map.get(shown(key)));
            Ok(found.cloned().collect::<Vec<_>>().into())
        }
        [] => Err(wrong_number(1, a)),
    }),
    // Encodings.
    ("toPrettyJson", 1, |a| Ok(serde_json::to_string_pretty(&a[0]).unwrap_or_default().into())),
    ("toRawJson", 1, |a| Ok(a[0].to_string().into())),
    ("fromJson", 1, |a| Ok(serde_json::from_str(&shown(&a[0])).unwrap_or_default())),
    ("mustFromJson", 1, |a| serde_json::from_str(&shown(&a[0])).map_err(|error| error.to_string().into())),
    ("toYaml", 1, |a| Ok(yaml::document(&a[0]).trim_end_matches('\n').into())),
    ("b64enc", 1, |a| Ok(STANDARD.encode(shown(&a[0])).into())),
    ("b64dec", 1, |a| {
        let bytes = STANDARD.decode(shown(&a[0])).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into())
    }),
    ("sha256sum", 1, |a| Ok(hex(&Sha256::digest(shown(&a[0]).as_bytes())).into())),
    ("urlquery", 1, |a| Ok(url(&shown(&a[0])).into())),
    // Regular expressions.
    ("regexMatch", 2, |a| Ok(regex(&a[0])?.is_match(&shown(&a[1])).into())),
    ("mustRegexMatch", 2, |a| Ok(regex(&a[0])?.is_match(&shown(&a[1])).into())),
    ("regexFind", 2, |a| {
        let text = shown(&a[1]);
        Ok(regex(&a[0])?.find(&text).map_or("", |found| found.as_str()).into())
    }),
    ("regexFindAll", 3, |a| {
        let text = shown(&a[1]);
        let most = usize::try_from(whole(&a[2])).unwrap_or(usize::MAX);
        Ok(regex(&a[0])?.find_iter(&text).take(most).map(|found| found.as_str()).collect())
    }),
    ("regexReplaceAll", 3, |a| {
        let text = shown(&a[1]);
        Ok(regex(&a[0])?.replace_all(&text, shown(&a[2]).as_str()).into())
    }),
    ("regexReplaceAllLiteral", 3, |a| {
        let (text, with) = (shown(&a[1]), shown(&a[2]));
        Ok(regex(&a[0])?.replace_all(&text, regex::NoExpand(&with)).into())
    }),
    ("regexSplit", 3, |a| {
        let text = shown(&a[1]);
        Ok(match usize::try_from(whole(&a[2])) {
            Ok(most) => regex(&a[0])?.splitn(&text, most).collect(),
            Err(_) => regex(&a[0])?.split(&text).collect(),
        })
    }),
    ("regexQuoteMeta", 1, |a| Ok(regex::escape(&shown(&a[0])).into())),
];

/// Removes the characters of the first argument from the ends of the second one.
fn trimmed(arguments: &[Value]) -> FunctionResult {
    let (set, text) = (shown(&arguments[0]), shown(&arguments[1]));
    Ok(text.trim_matches(|c| set.contains(c)).into())
}

/// Changes the first letter of each word.
fn words(text: &str, change: impl Fn(char) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut begins = true;
    for c in text.chars() {
        match begins && !c.is_whitespace() {
            true => out.push_str(&change(c)),
            false => out.push(c),
        }
        begins = c.is_whitespace();
    }
    out
}

fn repeat(count: &Value, text: &str) -> FunctionResult {
    let count = usize::try_from(whole(count)).unwrap_or_default();
    match count.checked_mul(text.len()).filter(|size| *size <= MAX_MADE) {
        Some(_) => Ok(text.repeat(count).into()),
        None => Err(format!("the text would have more than {MAX_MADE} bytes").into()),
    }
}

fn substr(start: i64, end: i64, text: &str) -> String {
    let length = text.chars().count();
    let start = usize::try_from(start).unwrap_or_default();
    let end = usize::try_from(end).unwrap_or(length).min(length);
    text.chars().take(end).skip(start).collect()
}

fn abbrev(width: i64, text: String) -> String {
    let width = usize::try_from(width).unwrap_or_default();
    if width < 4 || text.chars().count() <= width {
        return text;
    }
    let kept: String = text.chars().take(width - 3).collect();
    format!("{kept}...")
}

/// The parts as a map `_0`, `_1`, ….
fn split<'t>(parts: impl Iterator<Item = &'t str>) -> Value {
    let parts = parts.enumerate().map(|(at, part)| (format!("_{at}"), part.into()));
    Value::Object(parts.collect())
}

/// `camelCase` as `camel_case`.
fn parted(text: &str, separator: char) -> String {
    let mut out = String::with_capacity(text.len() + 4);
    let mut before = separator;
    for c in text.chars() {
        if matches!(c, '_' | '-' | ' ' | '.') {
            if before != separator {
                out.push(separator);
            }
            before = separator;
            continue;
        }
        if c.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            out.push(separator);
        }
        out.extend(c.to_lowercase());
        before = c;
    }
    out
}

/// `camel_case` as `CamelCase`.
fn camel(text: &str) -> String {
    let parts = text.split(['_', '-', ' ', '.']).filter(|part| !part.is_empty());
    parts.map(|part| words(part, |first| first.to_uppercase().collect())).collect()
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&#34;").replace('\'', "&#39;")
}

pub(crate) fn float(value: &Value) -> f64 {
    match value {
        Value::String(text) => text.parse().unwrap_or_default(),
        value => value.as_f64().unwrap_or_default(),
    }
}

pub(crate) fn counted(start: i64, stop: i64, step: i64) -> FunctionResult {
    let mut numbers: Vec<Value> = Vec::new();
    let mut at = start;
    while step != 0 && ((step > 0 && at < stop) || (step < 0 && at > stop)) {
        if numbers.len() >= MAX_MADE {
            return Err(format!("the list would have more than {MAX_MADE} elements").into());
        }
        numbers.push(at.into());
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(numbers.into())
}

fn slice(arguments: &[Value]) -> FunctionResult {
    let [list, bounds @ ..] = arguments else {
        return Err(wrong_number(2, arguments));
    };
    let list = items(list)?;
    let bound = |at: usize, default: usize| match bounds.get(at) {
        Some(value) => usize::try_from(whole(value)).unwrap_or(usize::MAX),
        None => default,
    };
    let found = list.get(bound(0, 0)..bound(1, list.len()));
    found.map(Value::from).ok_or_else(|| "the bounds are outside of the list".into())
}

/// `dig "a" "b" DEFAULT MAP`.
fn dig(arguments: &[Value]) -> FunctionResult {
    let [keys @ .., default, map] = arguments else {
        return Err(wrong_number(3, arguments));
    };
    let mut value = map;
    for key in keys {
        match value.get(shown(key)) {
            Some(inner) => value = inner,
            None => return Ok(default.clone()),
        }
    }
    Ok(value.clone())
}

fn regex(pattern: &Value) -> Result<Regex, Problem> {
    let built = regex::RegexBuilder::new(&shown(pattern)).size_limit(1 << 20).build();
    built.map_err(|error| error.to_string().into())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push('+'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
