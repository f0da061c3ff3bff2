//! Functions of Go templates and Helm.

use serde_json::{Map, Value};

use crate::Problem;
use crate::text::{is_true, quoted, shown};

/// Maximum width of an indentation.
const MAX_INDENT: usize = 256;

type FunctionResult = Result<Value, Problem>;

/// Calls a function; none if the name is unknown.
pub(crate) fn call(name: &str, arguments: &[Value]) -> Option<FunctionResult> {
    Some(match name {
        "not" => one(arguments, |value| Ok((!is_true(value)).into())),
        "empty" => one(arguments, |value| Ok((!is_true(value)).into())),
        "eq" => eq(arguments),
        "ne" => two(arguments, |a, b| Ok((!same(a, b)?).into())),
        "lt" | "le" | "gt" | "ge" => two(arguments, |a, b| ordered(name, a, b)),
        "default" => two(arguments, |default, value| {
            Ok(if is_true(value) { value } else { default }.clone())
        }),
        "coalesce" => Ok(arguments
            .iter()
            .find(|value| is_true(value))
            .cloned()
            .unwrap_or(Value::Null)),
        "ternary" => three(arguments, |yes, no, condition| {
            Ok(if is_true(condition) { yes } else { no }.clone())
        }),
        "required" => two(arguments, required),
        "fail" => one(arguments, |message| Err(shown(message).into())),
        "len" => one(arguments, len),
        "index" => index(arguments),
        "print" | "toString" => Ok(arguments.iter().map(shown).collect::<String>().into()),
        "printf" => printf(arguments),
        "int" | "int64" => one(arguments, |value| Ok(whole(value).into())),
        "add" => Ok(arguments.iter().map(whole).fold(0_i64, i64::wrapping_add).into()),
        "sub" => two(arguments, |a, b| Ok(whole(a).wrapping_sub(whole(b)).into())),
        "toJson" => one(arguments, |value| Ok(value.to_string().into())),
        "kindIs" => two(arguments, |kind, value| Ok((shown(kind) == kind_of(value)).into())),
        _ => return texts(name, arguments).or_else(|| collections(name, arguments)),
    })
}

fn texts(name: &str, arguments: &[Value]) -> Option<FunctionResult> {
    let text = |value: &Value, change: &dyn Fn(&str) -> String| Ok(Value::String(change(&shown(value))));
    Some(match name {
        "quote" => Ok(join(arguments, &|value| quoted(&shown(value)))),
        "squote" => Ok(join(arguments, &|value| format!("'{}'", shown(value)))),
        "lower" => one(arguments, |value| text(value, &str::to_lowercase)),
        "upper" => one(arguments, |value| text(value, &str::to_uppercase)),
        "trim" => one(arguments, |value| text(value, &|text| text.trim().to_owned())),
        "trimSuffix" => two(arguments, |suffix, value| {
            text(value, &|text| {
                text.strip_suffix(&shown(suffix)).unwrap_or(text).to_owned()
            })
        }),
        "trimPrefix" => two(arguments, |prefix, value| {
            text(value, &|text| {
                text.strip_prefix(&shown(prefix)).unwrap_or(text).to_owned()
            })
        }),
        "trunc" => two(arguments, |length, value| {
            text(value, &|text| truncated(text, whole(length)))
        }),
        "replace" => three(arguments, |old, new, value| {
            text(value, &|text| text.replace(&shown(old), &shown(new)))
        }),
        "contains" => two(arguments, |part, whole| Ok(shown(whole).contains(&shown(part)).into())),
        "hasPrefix" => two(arguments, |part, whole| {
            Ok(shown(whole).starts_with(&shown(part)).into())
        }),
        "hasSuffix" => two(arguments, |part, whole| Ok(shown(whole).ends_with(&shown(part)).into())),
        "indent" => two(arguments, |width, value| indented(width, value, "")),
        "nindent" => two(arguments, |width, value| indented(width, value, "\n")),
        "splitList" => two(arguments, |sign, value| {
            let (sign, value) = (shown(sign), shown(value));
            Ok(value.split(sign.as_str()).map(Value::from).collect::<Vec<_>>().into())
        }),
        "join" => two(arguments, |sign, value| {
            let items: Vec<String> = items(value)?.iter().map(shown).collect();
            Ok(items.join(&shown(sign)).into())
        }),
        _ => return None,
    })
}

fn collections(name: &str, arguments: &[Value]) -> Option<FunctionResult> {
    Some(match name {
        "list" => Ok(arguments.to_vec().into()),
        "dict" => dict(arguments),
        "hasKey" => two(arguments, |map, key| Ok(fields(map)?.contains_key(&shown(key)).into())),
        "get" => two(arguments, |map, key| {
            let found = fields(map)?.get(&shown(key)).cloned();
            Ok(found.unwrap_or_else(|| "".into()))
        }),
        "keys" => one(arguments, |map| {
            let mut keys: Vec<&String> = fields(map)?.keys().collect();
            keys.sort();
            Ok(keys.into_iter().cloned().map(Value::from).collect::<Vec<_>>().into())
        }),
        "append" => two(arguments, |list, item| {
            let mut list = items(list)?.clone();
            list.push(item.clone());
            Ok(list.into())
        }),
        "concat" => arguments
            .iter()
            .try_fold(Vec::new(), |mut all, list| {
                all.extend(items(list)?.iter().cloned());
                Ok(all)
            })
            .map(Value::from),
        "has" => two(arguments, |item, list| Ok(items(list)?.contains(item).into())),
        "sortAlpha" => one(arguments, |list| {
            let mut items: Vec<String> = items(list)?.iter().map(shown).collect();
            items.sort();
            Ok(items.into())
        }),
        "merge" => merged(arguments, false),
        "mergeOverwrite" => merged(arguments, true),
        "omit" => chosen(arguments, false),
        "pick" => chosen(arguments, true),
        _ => return None,
    })
}

fn one(arguments: &[Value], run: impl FnOnce(&Value) -> FunctionResult) -> FunctionResult {
    match arguments {
        [a] => run(a),
        _ => Err(wrong_number(1, arguments)),
    }
}

fn two(arguments: &[Value], run: impl FnOnce(&Value, &Value) -> FunctionResult) -> FunctionResult {
    match arguments {
        [a, b] => run(a, b),
        _ => Err(wrong_number(2, arguments)),
    }
}

fn three(arguments: &[Value], run: impl FnOnce(&Value, &Value, &Value) -> FunctionResult) -> FunctionResult {
    match arguments {
        [a, b, c] => run(a, b, c),
        _ => Err(wrong_number(3, arguments)),
    }
}

fn wrong_number(wanted: usize, arguments: &[Value]) -> Problem {
    format!("expected {wanted} arguments, got {}", arguments.len()).into()
}

fn kind_of(value: &Value) -> &'static str {
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

fn ordered(name: &str, a: &Value, b: &Value) -> FunctionResult {
    let order = match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => None,
    };
    let order = order.ok_or_else(|| format!("a {} and a {} have no order", kind_of(a), kind_of(b)))?;
    let result = match name {
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    };
    Ok(result.into())
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

fn printf(arguments: &[Value]) -> FunctionResult {
    let [Value::String(form), rest @ ..] = arguments else {
        return Err("the first argument is not a string".into());
    };
    let mut rest = rest.iter();
    let mut out = String::new();
    let mut chars = form.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut next = || rest.next().ok_or(Problem::from("not enough values for the format"));
        match chars.next() {
            Some('%') => out.push('%'),
            Some('s' | 'v' | 'd' | 't') => out.push_str(&shown(next()?)),
            Some('q') => out.push_str(&quoted(&shown(next()?))),
            other => return Err(format!("`%{}` is not supported", other.unwrap_or(' ')).into()),
        }
    }
    match rest.next() {
        None => Ok(out.into()),
        Some(_) => Err("too many values for the format".into()),
    }
}

/// The integer value of a number or numeric string; else 0.
fn whole(value: &Value) -> i64 {
    match value {
        Value::Number(number) => number
            .as_i64()
            .unwrap_or_else(|| number.as_f64().unwrap_or_default() as i64),
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

fn items(value: &Value) -> Result<&Vec<Value>, Problem> {
    value
        .as_array()
        .ok_or_else(|| format!("expected a list, got a {}", kind_of(value)).into())
}

fn fields(value: &Value) -> Result<&Map<String, Value>, Problem> {
    value
        .as_object()
        .ok_or_else(|| format!("expected a map, got a {}", kind_of(value)).into())
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
    Ok(Value::Object(
        kept.map(|(key, value)| (key.clone(), value.clone())).collect(),
    ))
}
