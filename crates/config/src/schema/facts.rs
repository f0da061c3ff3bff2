//! Facts in declarations of types: constraints, defaults, keys and rules of fields.

use std::borrow::Cow;
use std::sync::Arc;

use crate::decode::json_name;
use crate::schema::{Bounds, Fields, ListKind, Schema, Shape};

/// Applies facts to a schema. Returns whether the field is required.
///
/// The facts: `required`, `nullable`, `atomic`, `set`, `keep_unknown`, `spelling "other_name"`; `min 1` and `max 16` (for the length of a
/// string, the number of entries, or the number itself); `pattern "^a"`; `values_of ["A", "B"]`; `default 1` (one token
/// or JSON in brackets); `key name, key port` for the keys of a list map, and `patch_key name`; `rule "CEL" "message"`;
/// `items(…)` for the items of a list and `values(…)` for the values of a map.
///
/// Checks of the control plane, which CRDs do not contain (see [`crate::schema::Check`]): `needed`; `wanted "code" "message"`;
/// `inform`, `warn` and `refuse "code" "message"` for fields that have no effect, or should or must not be set; `is FORM` and
/// `keys(FORM)` (see `form`); `from 0` and `to 100`; `among ["A", "B"]`; `unique "key"`; `exclusive(a, b)` and `any(a, b)`
/// for the fields of a message, by their names in JSON.
macro_rules! facts {
    ($schema:ident; $($facts:tt)*) => {{
        #[allow(unused_mut)]
        let mut required = false;
        facts!(@split $schema required []; $($facts)*);
        required
    }};
    // Collects one fact, up to the comma behind it.
    (@split $s:ident $r:ident [];) => {};
    (@split $s:ident $r:ident [$($fact:tt)+];) => { facts!(@one $s $r; $($fact)+) };
    (@split $s:ident $r:ident [$($fact:tt)+]; , $($rest:tt)*) => {
        facts!(@one $s $r; $($fact)+);
        facts!(@split $s $r []; $($rest)*);
    };
    (@split $s:ident $r:ident [$($fact:tt)*]; $next:tt $($rest:tt)*) => {
        facts!(@split $s $r [$($fact)* $next]; $($rest)*)
    };
    (@one $s:ident $r:ident; required) => { $r |= true };
    (@one $s:ident $r:ident; nullable) => { $s.nullable = true };
    (@one $s:ident $r:ident; atomic) => { crate::schema::facts::atomic($s) };
    (@one $s:ident $r:ident; set) => { crate::schema::facts::set($s) };
    (@one $s:ident $r:ident; spelling $value:literal) => { $s.spelling = Some($value) };
    (@one $s:ident $r:ident; keep_unknown) => { crate::schema::facts::keep_unknown($s) };
    (@one $s:ident $r:ident; min $value:literal) => { crate::schema::facts::min($s, $value as f64) };
    (@one $s:ident $r:ident; max $value:literal) => { crate::schema::facts::max($s, $value as f64) };
    (@one $s:ident $r:ident; pattern $value:expr) => { crate::schema::facts::pattern($s, $value) };
    (@one $s:ident $r:ident; values_of $values:expr) => { crate::schema::facts::values_of($s, &$values) };
    (@one $s:ident $r:ident; default $value:tt) => { $s.default = Some(serde_json::json!($value)) };
    (@one $s:ident $r:ident; key $value:ident) => { crate::schema::facts::key($s, stringify!($value)) };
    (@one $s:ident $r:ident; key $value:literal) => { crate::schema::facts::key($s, $value) };
    (@one $s:ident $r:ident; patch_key $value:ident) => { crate::schema::facts::patch_key($s, stringify!($value)) };
    (@one $s:ident $r:ident; rule $rule:tt $message:tt) => {
        $s.rules.push(crate::schema::Rule { rule: $rule, message: $message })
    };
    (@one $s:ident $r:ident; items $inner:tt) => {
        crate::schema::facts::inner($s, |_schema| facts!(@inner _schema; $inner))
    };
    (@one $s:ident $r:ident; values $inner:tt) => {
        crate::schema::facts::inner($s, |_schema| facts!(@inner _schema; $inner))
    };
    (@inner $s:ident; ($($inner:tt)*)) => { facts!($s; $($inner)*) };
    (@one $s:ident $r:ident; $($check:tt)+) => { $s.checks.push(facts!(@check $($check)+)) };
    (@check needed) => { crate::schema::Check::Needed };
    (@check wanted $code:literal $message:literal) => { crate::schema::Check::Wanted($code, $message) };
    (@check warn $code:literal $message:tt) => {
        crate::schema::Check::Unwanted(crate::Severity::Warning, $code, $message)
    };
    (@check refuse $code:literal $message:tt) => {
        crate::schema::Check::Unwanted(crate::Severity::Error, $code, $message)
    };
    (@check inform $code:literal $message:tt) => {
        crate::schema::Check::Unwanted(crate::Severity::Info, $code, $message)
    };
    (@check is $form:ident) => { crate::schema::Check::Is(crate::form::$form) };
    (@check keys($form:ident)) => { crate::schema::Check::Keys(crate::form::$form) };
    (@check from $value:literal) => { crate::schema::Check::From($value as f64) };
    (@check to $value:literal) => { crate::schema::Check::To($value as f64) };
    (@check among $values:expr) => { crate::schema::Check::Among(&$values) };
    (@check unique $key:literal) => { crate::schema::Check::Unique($key) };
    (@check exclusive($($name:ident),*)) => { crate::schema::Check::Exclusive(&[$(stringify!($name)),*]) };
    (@check any($($name:ident),*)) => { crate::schema::Check::Any(&[$(stringify!($name)),*]) };
}

/// Adds a field to a message's schema.
pub(crate) fn field(
    name: &'static str,
    of_type: Arc<Schema>,
    doc: &[&str],
    facts: fn(&mut Schema) -> bool,
    fields: &mut Fields,
) {
    let mut schema = (*of_type).clone();
    if !doc.is_empty() {
        schema.description = description(doc);
    }
    let name = json(name);
    if facts(&mut schema) {
        fields.required.push(name);
    }
    fields.spellings.extend(schema.spelling.map(|spelling| (spelling, name)));
    fields.fields.push((name, Arc::new(schema)));
}

/// The schema of a message.
pub(crate) fn object(doc: &[&str], fields: Fields, facts: fn(&mut Schema) -> bool) -> Arc<Schema> {
    let mut schema = Schema::new(Shape::Object(fields)).describe(description(doc));
    facts(&mut schema);
    Arc::new(schema)
}

/// The schema of an enumeration.
pub(crate) fn names(doc: &[&str], names: &[&'static str]) -> Arc<Schema> {
    let mut schema = Schema::text().describe(description(doc));
    values_of(&mut schema, names);
    Arc::new(schema)
}

/// Marks a list or map as atomic.
pub(crate) fn atomic(schema: &mut Schema) {
    match &mut schema.shape {
        Shape::List(_, kind, _) => *kind = ListKind::Atomic,
        _ => schema.atomic = true,
    }
}

/// Marks a list as a set.
pub(crate) fn set(schema: &mut Schema) {
    if let Shape::List(_, kind, _) = &mut schema.shape {
        *kind = ListKind::Set;
    }
}

/// Preserves unknown fields.
pub(crate) fn keep_unknown(schema: &mut Schema) {
    match &mut schema.shape {
        Shape::Object(fields) => fields.open = true,
        // A protobuf `Struct`.
        _ => {
            schema.shape = Shape::Object(Fields { open: true, ..Fields::default() });
        }
    }
}

/// The minimum value, length or number of entries.
pub(crate) fn min(schema: &mut Schema, value: f64) {
    match &mut schema.shape {
        Shape::Integer { min, .. } => *min = Some(value as i64),
        Shape::Number { min, .. } => *min = Some(value),
        shape => {
            if let Some(bounds) = bounds(shape) {
                bounds.min = Some(value as u64);
            }
        }
    }
}

/// The maximum value, length or number of entries.
pub(crate) fn max(schema: &mut Schema, value: f64) {
    match &mut schema.shape {
        Shape::Integer { max, .. } => *max = Some(value as i64),
        Shape::Number { max, .. } => *max = Some(value),
        shape => {
            if let Some(bounds) = bounds(shape) {
                bounds.max = Some(value as u64);
            }
        }
    }
}

fn bounds(shape: &mut Shape) -> Option<&mut Bounds> {
    match shape {
        Shape::Text { bounds, .. } | Shape::Map(_, bounds) | Shape::List(_, _, bounds) => Some(bounds),
        _ => None,
    }
}

/// A regular expression for a string.
pub(crate) fn pattern(schema: &mut Schema, value: &'static str) {
    if let Shape::Text { pattern, .. } = &mut schema.shape {
        *pattern = Some(value);
    }
}

/// The allowed values of a string.
pub(crate) fn values_of(schema: &mut Schema, names: &[&'static str]) {
    if let Shape::Text { values, .. } = &mut schema.shape {
        *values = names.to_vec();
    }
}

/// Adds a key of a list map.
pub(crate) fn key(schema: &mut Schema, name: &'static str) {
    if let Shape::List(_, kind, _) = &mut schema.shape {
        match kind {
            ListKind::Map { keys, .. } => keys.push(json(name)),
            _ => {
                *kind = ListKind::Map { keys: vec![json(name)], patch_key: None };
            }
        }
    }
}

/// The key for strategic merge patches of a list map. Must follow its `key`s.
pub(crate) fn patch_key(schema: &mut Schema, name: &'static str) {
    if let Shape::List(_, ListKind::Map { patch_key, .. }, _) = &mut schema.shape {
        *patch_key = Some(json(name));
    }
}

/// Changes the schema of the items of a list or of the values of a map.
pub(crate) fn inner(schema: &mut Schema, facts: fn(&mut Schema) -> bool) {
    if let Shape::List(inner, ..) | Shape::Map(inner, _) = &mut schema.shape {
        facts(Arc::make_mut(inner));
    }
}

/// The name in JSON. It is leaked: schemas are made once and live as long as the process.
fn json(name: &'static str) -> &'static str {
    match json_name(name) {
        Cow::Borrowed(name) => name,
        Cow::Owned(name) => Box::leak(name.into_boxed_str()),
    }
}

/// The description from a doc comment: links to Rust items become plain text, and fields get their names in JSON.
fn description(lines: &[&str]) -> Arc<str> {
    let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
    let mut out = String::with_capacity(text.len());
    for (position, part) in text.trim().split('`').enumerate() {
        if position == 0 {
            out.push_str(part);
        } else if position % 2 == 1 {
            out.push('`');
            out.push_str(&camel(part));
        } else {
            out.push('`');
            out.push_str(part);
        }
    }
    without_links(&out).into()
}

/// Converts `snake_case` to `snakeCase`; anything else is unchanged.
fn camel(word: &str) -> Cow<'_, str> {
    let is_snake = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    match word.bytes().all(is_snake) {
        true => json_name(word),
        false => word.into(),
    }
}

/// Removes `` ([`Rust::item`]) ``, which is for readers of the code only, and brackets around code.
fn without_links(text: &str) -> String {
    let mut out = text.to_owned();
    while let Some(start) = out.find(" ([`") {
        match out[start..].find("`])") {
            Some(end) => out.replace_range(start..start + end + 3, ""),
            None => break,
        }
    }
    out.replace("[`", "`").replace("`]", "`")
}
