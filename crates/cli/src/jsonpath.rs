//! A small subset of `kubectl`'s JSONPath for `-o jsonpath=…` and `wait --for=jsonpath=…`.
//!
//! A [`Template`] is text with expressions in braces: a path (`{.spec.hosts[0]}`) or a quoted string (`{"\n"}`). A [`Path`]
//! has the steps `.name` (`\.` is a dot inside a name), `['name']`, `[2]`, `[-1]`, `[*]`, `.*` and
//! `[?(@.path=="text")]`. A step that matches nothing yields nothing. `range`, slices, unions and recursive descent are
//! not supported: use `kubectl` or `-o json` with `jq` for them.

use serde_json::Value as Json;

/// A parsed template.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Template(Vec<Piece>);

/// A parsed path.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Path(Vec<Step>);

/// A syntax error in a template or path.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("JSONPath `{text}`: {problem}")]
pub(crate) struct PathError {
    text: String,
    problem: &'static str,
}

#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Text(String),
    Query(Path),
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Field(String),
    /// Every item of a list or every value of an object.
    Any,
    /// An item of a list; negative indexes count from the end.
    Index(i64),
    /// The items for which the path leads to this text.
    Where(Path, String),
}

impl Template {
    /// Parses a template. Text without braces that starts like a path is one path.
    pub(crate) fn parse(text: &str) -> Result<Template, PathError> {
        if !text.contains('{') && text.starts_with(['.', '$', '[']) {
            return Ok(Template(vec![Piece::Query(Path::parse(text)?)]));
        }
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            let end = end_outside_quotes(after, '}').ok_or_else(|| error(text, "a brace is not closed"))?;
            let inner = after[..end].trim();
            pieces.push(match quoted(inner) {
                Some(literal) => Piece::Text(unescaped(literal)),
                None => Piece::Query(Path::parse(inner)?),
            });
            rest = &after[end + 1..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Ok(Template(pieces))
    }

    /// Renders the template for a value. Several results of one path are separated by spaces.
    pub(crate) fn render(&self, value: &Json) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Query(path) => path.find(value).into_iter().map(text).collect::<Vec<_>>().join(" "),
        };
        self.0.iter().map(piece).collect()
    }
}

impl Path {
    /// Parses one path: `{.a.b}`, `.a.b` or `a.b`.
    pub(crate) fn parse(whole: &str) -> Result<Path, PathError> {
        let inner = match whole.strip_prefix('{') {
            Some(rest) => rest
                .strip_suffix('}')
                .ok_or_else(|| error(whole, "the brace is not closed"))?,
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
        Ok(Path(steps))
    }

    /// The values that the path selects.
    pub(crate) fn find<'v>(&self, value: &'v Json) -> Vec<&'v Json> {
        self.0.iter().fold(vec![value], |values, step| {
            values.into_iter().flat_map(|value| step.select(value)).collect()
        })
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
                    Err(_) => usize::try_from(index.unsigned_abs())
                        .ok()
                        .and_then(|back| items.len().checked_sub(back)),
                };
                at.and_then(|at| items.get(at)).into_iter().collect()
            }
            Step::Where(path, wanted) => {
                let matches = |item: &&Json| path.find(item).into_iter().any(|found| text(found) == *wanted);
                children(value).into_iter().filter(matches).collect()
            }
        }
    }
}

/// A value as templates print it: a string as it is, null as nothing, everything else as compact JSON.
pub(crate) fn text(value: &Json) -> String {
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

fn bracket(inner: &str, whole: &str) -> Result<Step, PathError> {
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
        return Ok(Step::Where(Path::parse(path)?, text.to_owned()));
    }
    let index = inner
        .parse()
        .map_err(|_| error(whole, "expected an index, a quoted name, `*` or a filter in brackets"))?;
    Ok(Step::Index(index))
}

/// The text between quotes; none if it is not quoted.
fn quoted(text: &str) -> Option<&str> {
    ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
}

/// The position of the first `end` that is not inside quotes.
fn end_outside_quotes(text: &str, end: char) -> Option<usize> {
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

fn unescaped(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.extend(chars.next().map(|c| match c {
                'n' => '\n',
                't' => '\t',
                c => c,
            })),
            c => out.push(c),
        }
    }
    out
}

fn error(text: &str, problem: &'static str) -> PathError {
    PathError {
        text: text.to_owned(),
        problem,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn render(template: &str) -> String {
        let value = json!({"kind": "A", "spec": {"hosts": ["a", "b"], "n": 7, "a.b": true, "none": null},
            "status": {"conditions": [{"type": "X", "status": "no"}, {"type": "Y", "status": "yes"}]}});
        Template::parse(template).unwrap().render(&value)
    }

    #[test]
    fn templates_render() {
        for (template, expected) in [
            (".kind", "A"),
            ("{.kind}", "A"),
            ("{$.spec.hosts}", "[\"a\",\"b\"]"),
            ("{.spec.hosts[*]}", "a b"),
            ("{.spec.hosts[-1]}{\"\\n\"}", "b\n"),
            ("{.spec.hosts[9]}{.spec.none}{.nothing.at.all}", ""),
            ("{.spec.a\\.b}/{.spec['a.b']}", "true/true"),
            ("n={.spec.n}{'}'}", "n=7}"),
            ("{.status.conditions[?(@.type==\"Y\")].status}", "yes"),
            ("{.status.conditions[*].type}", "X Y"),
        ] {
            assert_eq!(render(template), expected, "{template}");
        }
    }

    #[test]
    fn syntax_errors_are_reported() {
        for text in [
            "{.a",
            "{.a[0}",
            "{.a[x]}",
            "{..a}",
            "{.a[?(@.b>1)]}",
            "{range .items[*]}",
            "{.a b}",
        ] {
            assert!(Template::parse(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[-a.$@*\\[\\]{}()?='\"\\\\ 0-9]{0,30}") {
            if let Ok(template) = Template::parse(&text) {
                template.render(&json!({"a": [1, {"a": 2}]}));
            }
        }
    }
}
