//! A small subset of `kubectl`'s JSONPath, for columns of tables and for templates.
//!
//! A [`JsonPath`] has the steps `.name` (`\.` is a dot inside a name), `['name']`, `[2]`, `[-1]`, `[*]`, `.*` and
//! `[?(@.path=="text")]`. A step that matches nothing yields nothing.

use serde_json::Value as Json;

/// A parsed path.
#[derive(Clone, PartialEq, Debug)]
pub struct JsonPath(Vec<Step>);

/// A syntax error in a path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("JSONPath `{text}`: {problem}")]
pub struct JsonPathError {
    /// The whole path, or the template that contains it.
    pub text: String,
    /// The problem.
    pub problem: &'static str,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Field(String),
    /// Every item of a list or every value of an object.
    Any,
    /// An item of a list; negative indexes count from the end.
    Index(i64),
    /// The items for which the path leads to this text.
    Where(JsonPath, String),
}

impl JsonPath {
    /// Parses one path: `{.a.b}`, `.a.b` or `a.b`.
    ///
    /// # Errors
    /// The path has a syntax error.
    pub fn parse(whole: &str) -> Result<JsonPath, JsonPathError> {
        let inner = match whole.strip_prefix('{') {
            Some(rest) => rest.strip_suffix('}').ok_or_else(|| error(whole, "the brace is not closed"))?,
            None => whole,
        };
        let mut rest = inner.trim_start_matches(['$', '@']);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('[') {
                let end = end_outside_quotes(after, ']').ok_or_else(|| error(whole, "a bracket is not closed"))?;
                steps.push(bracket(&after[..end], whole)?);
                rest = &after[end + 1..];
                continue;
            }
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = end_of_name(name);
            match &name[..end] {
                "*" => steps.push(Step::Any),
                // A lone `.` is the whole value.
                "" if steps.is_empty() && name.len() < rest.len() && (name.is_empty() || name.starts_with('[')) => {}
                "" => return Err(error(whole, "a name is missing")),
                field => steps.push(Step::Field(field.replace("\\.", "."))),
            }
            rest = &name[end..];
            if !rest.is_empty() && !rest.starts_with(['.', '[']) {
                return Err(error(whole, "this is not a path"));
            }
        }
        Ok(JsonPath(steps))
    }

    /// The values that the path selects.
    pub fn find<'v>(&self, value: &'v Json) -> Vec<&'v Json> {
        self.0
            .iter()
            .fold(vec![value], |values, step| values.into_iter().flat_map(|value| step.select(value)).collect())
    }
}

impl Step {
    fn select<'v>(&self, value: &'v Json) -> Vec<&'v Json> {
        match self {
            Step::Field(name) => value.get(name).into_iter().collect(),
            Step::Any => children(value),
            Step::Index(index) => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let at = match usize::try_from(*index) {
                    Ok(index) => Some(index),
                    Err(_) => usize::try_from(index.unsigned_abs()).ok().and_then(|back| items.len().checked_sub(back)),
                };
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::Where(path, wanted) => {
                let matches = |item: &&Json| path.find(item).into_iter().any(|found| json_text(found) == *wanted);
                children(value).into_iter().filter(matches).collect()
            }
        }
    }
}

/// A value as templates print it: a string as it is, null as nothing, everything else as compact JSON.
pub fn json_text(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        Json::Null => String::new(),
        value => value.to_string(),
    }
}

fn children(value: &Json) -> Vec<&Json> {
    match value {
        Json::Array(items) => items.iter().collect(),
        Json::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn bracket(inner: &str, whole: &str) -> Result<Step, JsonPathError> {
    let inner = inner.trim();
    if inner == "*" {
        return Ok(Step::Any);
    }
    if let Some(name) = quoted(inner) {
        return Ok(Step::Field(name.to_owned()));
    }
    if let Some(filter) = inner.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let wanted = filter.split_once("==");
        let wanted = wanted.and_then(|(path, text)| Some((path.trim(), quoted(text.trim())?)));
        let (path, text) = wanted.ok_or_else(|| error(whole, "a filter has the form [?(@.path==\"text\")]"))?;
        return Ok(Step::Where(JsonPath::parse(path)?, text.to_owned()));
    }
    let index =
        inner.parse().map_err(|_| error(whole, "expected an index, a quoted name, `*` or a filter in brackets"))?;
    Ok(Step::Index(index))
}

/// The text between quotes; none if it is not quoted.
pub fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// The position of the first `end` that is not inside quotes.
pub fn end_outside_quotes(text: &str, end: char) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, c) if c == end => return Some(at),
            _ => {}
        }
    }
    None
}

fn end_of_name(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '.' | '[' | ' ' | '{' | '}' => return at,
            _ => {}
        }
    }
    text.len()
}

fn error(text: &str, problem: &'static str) -> JsonPathError {
    JsonPathError { text: text.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_values() {
        let value = json!({
            "spec": { "hosts": ["a", "b"], "x.y": 1 },
            "status": { "conditions": [{ "type": "A", "status": "False" }, { "type": "Ready", "status": "True" }] },
        });
        for (path, found) in [
            (".spec.hosts", "[[\"a\",\"b\"]]"),
            (".spec.hosts[0]", "[\"a\"]"),
            (".spec.hosts[-1]", "[\"b\"]"),
            (".spec.hosts[*]", "[\"a\",\"b\"]"),
            (r".spec.x\.y", "[1]"),
            (".spec['x.y']", "[1]"),
            (".status.conditions[?(@.type==\"Ready\")].status", "[\"True\"]"),
            (".status.conditions[?(@.type==\"No\")].status", "[]"),
            (".spec.hosts[9]", "[]"),
            (".none.at.all", "[]"),
        ] {
            let parsed = JsonPath::parse(path).unwrap();
            assert_eq!(json!(parsed.find(&value)).to_string(), found, "{path}");
        }
    }

    #[test]
    fn syntax_errors_are_reported() {
        for text in ["[", ".a[0", ".a[x]", "..a", ".a[?(@.b>1)]", "range .items[*]", ".a b"] {
            assert!(JsonPath::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-a.$@*\\[\\]{}()?='\"\\\\ 0-9]{0,30}") {
            if let Ok(path) = JsonPath::parse(&text) {
                path.find(&json!({"a": [1, {"a": 2}]}));
            }
        }
    }
}
