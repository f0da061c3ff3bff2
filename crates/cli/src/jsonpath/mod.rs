//! JSONPath in `kubectl`'s dialect: templates of text and `{…}` expressions over one JSON value.
//!
//! Understood are `$`, `@`, `.name` (a dot in a name is written `\.`), `['name','other']`, `*`, `[2]`, `[-1]`, `[0,2]`,
//! `[1:3]`, `[::2]`, `..name`, `[?(@.a == "b")]` with `==`, `!=`, `<`, `<=`, `>`, `>=` or a mere path that must exist,
//! `{range …}…{end}` and texts in quotes. Fields that are not there yield nothing; an index that is not there is an error.
//!
//! Two things differ from `kubectl`, on purpose: `$` inside `range` is the whole value (there it is the item), and values of
//! different types are unequal instead of an error.

mod eval;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::Value as Json;

/// The longest template that is read, in bytes.
const MAX_TEMPLATE: usize = 64 << 10;
/// How deep `range`s and filters may nest.
const MAX_DEPTH: usize = 16;
/// How many values an evaluation may look at.
const MAX_VISITED: usize = 10_000_000;

/// A template, parsed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Template(Vec<Piece>);

/// One path, as `--sort-by` and custom columns use it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Path(Vec<Step>);

/// What is wrong with a template or its evaluation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PathError(String);

impl Template {
    /// Parses a template. A text without braces that begins like a path is taken for one.
    pub(crate) fn parse(text: &str) -> Result<Template, PathError> {
        if !text.contains('{') && text.starts_with(['.', '$', '[']) {
            return Ok(Template(vec![Piece::Query(Path::parse(text)?.0)]));
        }
        parse::template(text).map(Template)
    }

    /// The text that it makes of a value.
    pub(crate) fn render(&self, value: &Json) -> Result<String, PathError> {
        eval::render(&self.0, value)
    }
}

impl Path {
    /// Parses one path: `{.a.b}`, `.a.b` or `a.b`.
    pub(crate) fn parse(text: &str) -> Result<Path, PathError> {
        let inner = match text.strip_prefix('{') {
            Some(rest) => rest
                .strip_suffix('}')
                .ok_or_else(|| PathError::new("the brace is not closed"))?,
            None => text,
        };
        let dotted = match inner.starts_with(['.', '$', '@', '[']) {
            true => inner.to_owned(),
            false => format!(".{inner}"),
        };
        match <[Piece; 1]>::try_from(parse::template(&format!("{{{dotted}}}"))?) {
            Ok([Piece::Query(steps)]) => Ok(Path(steps)),
            _ => Err(PathError::new(format!("`{text}` is not one path"))),
        }
    }

    /// The values that it leads to.
    pub(crate) fn find<'v>(&self, value: &'v Json) -> Result<Vec<&'v Json>, PathError> {
        eval::find(&self.0, value)
    }

    /// The values that it leads to, as text, separated by commas; nothing if there are none.
    pub(crate) fn text(&self, value: &Json) -> Result<Option<String>, PathError> {
        let found = self.find(value)?;
        let texts: Vec<String> = found.iter().map(|value| eval::text(value)).collect();
        Ok((!texts.is_empty()).then(|| texts.join(",")))
    }
}

/// A value as templates print it: a string as it is, everything else as compact JSON.
pub(crate) fn text(value: &Json) -> String {
    eval::text(value)
}

impl PathError {
    fn new(message: impl Into<String>) -> PathError {
        PathError(message.into())
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PathError {}

/// A part of a template.
#[derive(Clone, PartialEq, Debug)]
enum Piece {
    Text(String),
    Query(Vec<Step>),
    /// For each value that the path leads to: the pieces.
    Range(Vec<Step>, Vec<Piece>),
}

/// A step of a path.
#[derive(Clone, PartialEq, Debug)]
enum Step {
    /// `$`: back to the whole value.
    Root,
    Field(String),
    Fields(Vec<String>),
    Wild,
    /// The value and everything in it.
    Descend,
    Indexes(Vec<i64>),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: i64,
    },
    Filter(Box<Filter>),
}

/// `?(left op right)`.
#[derive(Clone, PartialEq, Debug)]
struct Filter {
    left: Operand,
    test: Option<(Operator, Operand)>,
}

#[derive(Clone, PartialEq, Debug)]
enum Operand {
    Path(Vec<Step>),
    Literal(Json),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}
