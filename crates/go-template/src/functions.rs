//! Functions of Go templates and Helm.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::text::{is_true, quoted, shown};
use crate::{Problem, dates, formats, more, sprig};

/// Maximum width of an indentation.
const MAX_INDENT: usize = 256;

pub(crate) type FunctionResult = Result<Value, Problem>;
pub(crate) type Function = fn(&[Value]) -> FunctionResult;

/// Name, number of arguments (0: any number) and implementation of each function.
const FUNCTIONS: &[(&str, usize, Function)] = &[
    ("not", 1, |a| Ok((!is_true(&a[0])).into())),
    ("empty", 1, |a| Ok((!is_true(&a[0])).into())),
    ("eq", 0, eq),
    ("ne", 2, |a| Ok((!same(&a[0], &a[1])?).into())),
    ("lt", 2, |a| Ok(order(a)?.is_lt().into())),
    ("le", 2, |a| Ok(order(a)?.is_le().into())),
    ("gt", 2, |a| Ok(order(a)?.is_gt().into())),
    ("ge", 2, |a| Ok(order(a)?.is_ge().into())),
    ("default", 0, |a| match a {
        [default, given @ ..] => Ok(given.last().filter(|value| is_true(value)).unwrap_or(default).clone()),
        [] => Err(wrong_number(1, a)),
    }),
    ("coalesce", 0, |a| Ok(a.iter().find(|value| is_true(value)).cloned().unwrap_or_default())),
    ("ternary", 3, |a| Ok(if is_true(&a[2]) { &a[0] } else { &a[1] }.clone())),
    ("required", 2, |a| required(&a[0], &a[1])),
    ("fail", 1, |a| Err(shown(&a[0]).into())),
    ("len", 1, |a| len(&a[0])),
    ("index", 0, index),
    ("print", 0, print),
    ("toString", 0, print),
    ("printf", 0, formats::printf),
    ("int", 1, |a| Ok(whole(&a[0]).into())),
    ("int64", 1, |a| Ok(whole(&a[0]).into())),
    ("add", 0, |a| Ok(a.iter().map(whole).fold(0_i64, i64::wrapping_add).into())),
    ("sub", 2, |a| Ok(whole(&a[0]).wrapping_sub(whole(&a[1])).into())),
    ("toJson", 1, |a| Ok(a[0].to_string().into())),
    ("kindIs", 2, |a| Ok((shown(&a[0]) == kind_of(&a[1])).into())),
    // Texts.
    ("quote", 0, |a| Ok(join(a, &|value| quoted(&shown(value))))),
    ("squote", 0, |a| Ok(join(a, &|value| format!("'{}'", shown(value))))),
    ("lower", 1, |a| Ok(shown(&a[0]).to_lowercase().into())),
    ("upper", 1, |a| Ok(shown(&a[0]).to_uppercase().into())),
    ("trim", 1, |a| Ok(shown(&a[0]).trim().into())),
    ("trimSuffix", 2, |a| {
        let text = shown(&a[1]);
        Ok(text.strip_suffix(&shown(&a[0])).unwrap_or(&text).into())
    }),
    ("trimPrefix", 2, |a| {
        let text = shown(&a[1]);
        Ok(text.strip_prefix(&shown(&a[0])).unwrap_or(&text).into())
    }),
    ("trunc", 2, |a| Ok(truncated(&shown(&a[1]), whole(&a[0])).into())),
    ("replace", 3, |a| Ok(shown(&a[2]).replace(&shown(&a[0]), &shown(&a[1])).into())),
    ("contains", 2, |a| Ok(shown(&a[1]).contains(&shown(&a[0])).into())),
    ("hasPrefix", 2, |a| Ok(shown(&a[1]).starts_with(&shown(&a[0])).into())),
    ("hasSuffix", 2, |a| Ok(shown(&a[1]).ends_with(&shown(&a[0])).into())),
    ("indent", 2, |a| indented(&a[0], &a[1], "")),
    ("nindent", 2, |a| indented(&a[0], &a[1], "\n")),
    ("splitList", 2, |a| Ok(shown(&a[1]).split(&shown(&a[0])).collect())),
    ("join", 2, |a| match &a[1] {
        list @ Value::Array(_) => Ok(texts(list)?.join(&shown(&a[0])).into()),
        Value::Null => Ok("".into()),
        one => Ok(shown(one).into()),
    }),
    // Lists and maps.
    ("list", 0, |a| Ok(a.to_vec().into())),
    ("dict", 0, dict),
    ("hasKey", 2, |a| Ok(fields(&a[0])?.contains_key(&shown(&a[1])).into())),
    ("get", 2, |a| Ok(fields(&a[0])?.get(&shown(&a[1])).cloned().unwrap_or_else(|| "".into()))),
    ("keys", 1, |a| Ok(sorted(fields(&a[0])?.keys().cloned().collect()))),
    ("append", 2, |a| Ok([items(&a[0])?, &a[1..]].concat().into())),
    ("concat", 0, concat),
    ("has", 2, |a| Ok(items(&a[1])?.contains(&a[0]).into())),
    ("sortAlpha", 1, |a| Ok(sorted(texts(&a[0])?))),
    ("merge", 0, |a| merged(a, false)),
    ("mergeOverwrite", 0, |a| merged(a, true)),
    ("omit", 0, |a| chosen(a, false)),
    ("pick", 0, |a| chosen(a, true)),
];

/// All functions by name.
static BY_NAME: LazyLock<HashMap<&'static str, &'static (&'static str, usize, Function)>> = LazyLock::new(|| {
    let all = [dates::FUNCTIONS, more::FUNCTIONS, sprig::FUNCTIONS, FUNCTIONS];
    all.into_iter().flatten().map(|function| (function.0, function)).collect()
});

/// Calls a function; none if the name is unknown.
pub(crate) fn call(name: &str, arguments: &[Value]) -> Option<FunctionResult> {
    let (_, count, run) = found(name)?;
    Some(match *count {
        count if count > 0 && count != arguments.len() => Err(wrong_number(count, arguments)),
        _ => run(arguments),
    })
}

/// Whether a function exists.
pub(crate) fn is_known(name: &str) -> bool {
    found(name).is_some()
}

fn found(name: &str) -> Option<&'static (&'static str, usize, Function)> {
    let exact = |name: &str| BY_NAME.get(name).copied();
    // Sprig has a second form of many functions that reports errors; here the first one does, too.
    let first_form = || {
        let rest = name.strip_prefix("must")?;
        exact(&format!("{}{}", rest.get(..1)?.to_ascii_lowercase(), &rest[1..]))
    };
    exact(name).or_else(first_form)
}

pub(crate) fn wrong_number(wanted: usize, arguments: &[Value]) -> Problem {
    format!("expected {wanted} arguments, got {}", arguments.len()).into()
}

pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "invalid",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "slice",
        Value::Object(_) => "map",
    }
}

fn same(a: &Value, b: &Value) -> Result<bool, Problem> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(a.as_f64() == b.as_f64()),
        (Value::Null, _) | (_, Value::Null) => Ok(a == b),
        _ if kind_of(a) != kind_of(b) => {
            Err(format!("a {} cannot be compared with a {}", kind_of(a), kind_of(b)).into())
        }
        _ => Ok(a == b),
    }
}

/// Whether the first argument equals one of the others.
fn eq(arguments: &[Value]) -> FunctionResult {
    let [first, others @ ..] = arguments else {
        return Err(wrong_number(2, arguments));
    };
    if others.is_empty() {
        return Err(wrong_number(2, arguments));
    }
    for other in others {
        if same(first, other)? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn order(arguments: &[Value]) -> Result<Ordering, Problem> {
    let (a, b) = (&arguments[0], &arguments[1]);
    let order = match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    order.ok_or_else(|| format!("a {} and a {} have no order", kind_of(a), kind_of(b)).into())
}

fn required(message: &Value, value: &Value) -> FunctionResult {
    match value {
        Value::Null => Err(shown(message).into()),
        Value::String(text) if text.is_empty() => Err(shown(message).into()),
        value => Ok(value.clone()),
    }
}

fn len(value: &Value) -> FunctionResult {
    match value {
        Value::String(text) => Ok(text.len().into()),
        Value::Array(items) => Ok(items.len().into()),
        Value::Object(fields) => Ok(fields.len().into()),
        other => Err(format!("a {} has no length", kind_of(other)).into()),
    }
}

fn index(arguments: &[Value]) -> FunctionResult {
    let [value, keys @ ..] = arguments else {
        return Err(wrong_number(2, arguments));
    };
    keys.iter().try_fold(value.clone(), |value, key| match &value {
        Value::Object(fields) => Ok(fields.get(&shown(key)).cloned().unwrap_or(Value::Null)),
        Value::Array(items) => {
            let at = usize::try_from(whole(key)).ok().and_then(|at| items.get(at));
            at.cloned().ok_or_else(|| format!("no element {}", shown(key)).into())
        }
        other => Err(format!("a {} has no elements", kind_of(other)).into()),
    })
}

/// The arguments, with a space between two that are not strings, as in Go.
fn print(arguments: &[Value]) -> FunctionResult {
    let mut text = String::new();
    for (at, argument) in arguments.iter().enumerate() {
        if at > 0 && !argument.is_string() && !arguments[at - 1].is_string() {
            text.push(' ');
        }
        text.push_str(&shown(argument));
    }
    Ok(text.into())
}

/// The integer value of a number or numeric string; else 0.
pub(crate) fn whole(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number.as_i64().unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64),
        Value::String(text) => text.parse().unwrap_or_default(),
        Value::Bool(truth) => i64::from(*truth),
        _ => 0,
    }
}

fn join(arguments: &[Value], show: &dyn Fn(&Value) -> String) -> Value {
    let shown: Vec<String> = arguments.iter().filter(|value| !value.is_null()).map(show).collect();
    shown.join(" ").into()
}

fn truncated(text: &str, length: i64) -> String {
    let count = text.chars().count();
    let wanted = usize::try_from(length.unsigned_abs()).unwrap_or(usize::MAX);
    match length < 0 {
        true => text.chars().skip(count.saturating_sub(wanted)).collect(),
        false => text.chars().take(wanted).collect(),
    }
}

fn indented(width: &Value, value: &Value, before: &str) -> FunctionResult {
    let width = usize::try_from(whole(width)).ok().filter(|width| *width <= MAX_INDENT);
    let spaces = " ".repeat(width.ok_or_else(|| format!("the width must be from 0 to {MAX_INDENT}"))?);
    Ok(format!("{before}{spaces}{}", shown(value).replace('\n', &format!("\n{spaces}"))).into())
}

pub(crate) fn texts(list: &Value) -> Result<Vec<String>, Problem> {
    Ok(items(list)?.iter().map(shown).collect())
}

pub(crate) fn sorted(mut texts: Vec<String>) -> Value {
    texts.sort();
    texts.into()
}

fn concat(lists: &[Value]) -> FunctionResult {
    let lists: Vec<&[Value]> = lists.iter().map(items).collect::<Result<_, _>>()?;
    Ok(lists.concat().into())
}

pub(crate) fn items(value: &Value) -> Result<&[Value], Problem> {
    value.as_array().map(Vec::as_slice).ok_or_else(|| format!("expected a list, got a {}", kind_of(value)).into())
}

pub(crate) fn fields(value: &Value) -> Result<&Map<String, Value>, Problem> {
    value.as_object().ok_or_else(|| format!("expected a map, got a {}", kind_of(value)).into())
}

fn dict(arguments: &[Value]) -> FunctionResult {
    let pairs = arguments.chunks(2).map(|pair| match pair {
        [key, value] => Ok((shown(key), value.clone())),
        _ => Err("a key has no value".into()),
    });
    Ok(Value::Object(pairs.collect::<Result<_, Problem>>()?))
}

fn merged(arguments: &[Value], overwrite: bool) -> FunctionResult {
    let mut all = Value::Object(Map::new());
    for map in arguments {
        fields(map)?;
        merge(&mut all, map, overwrite);
    }
    Ok(all)
}

fn merge(into: &mut Value, from: &Value, overwrite: bool) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                match into.get_mut(key) {
                    Some(there) => merge(there, value, overwrite),
                    None => drop(into.insert(key.clone(), value.clone())),
                }
            }
        }
        // Empty values do not overwrite and are overwritten.
        (into, from) if (overwrite && is_true(from)) || !is_true(into) => *into = from.clone(),
        _ => {}
    }
}

fn chosen(arguments: &[Value], named: bool) -> FunctionResult {
    let [map, names @ ..] = arguments else {
        return Err(wrong_number(2, arguments));
    };
    let is_named = |key: &String| names.iter().any(|name| shown(name) == *key);
    let kept = fields(map)?.iter().filter(|(key, _)| is_named(key) == named);
    Ok(Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect()))
}
