//! Objects from JSON values, and YAML as JSON values.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::decode::Problem;
use crate::diagnostic::Diagnostic;
use crate::object::{AnyObject, ObjectKey};
use crate::parse::{Limits, ParseOptions, object, problem_at, syntax_problem, text_of, trees};
use crate::problem::Severity;
use crate::yaml::{Entry, Node, Position, SyntaxError, Value};

/// The result of reading an object.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Read {
    /// The object, if it is valid and the mesh reads its kind.
    pub object: Option<AnyObject>,
    /// Diagnostics without positions, including `ignored-kind` for kinds that the mesh does not read.
    pub diagnostics: Vec<Diagnostic>,
}

/// Reads and validates one object, as [`crate::parse_documents`] does with a document. A ConfigMap is only a ConfigMap here, and
/// never the mesh configuration.
pub fn read_object(json: &Json, options: &ParseOptions) -> Read {
    let Some(root) = node(json, options.limits.depth) else {
        let message = format!("more than {} levels deep", options.limits.depth);
        let problem = problem_at(NOWHERE, Severity::Error, "limit", message);
        return Read { object: None, diagnostics: vec![diagnostic(None, None, problem)] };
    };
    let outcome = object::read(&root, &[], None, options);
    let key = outcome.key;
    let say = |problem| diagnostic(None, key.clone(), problem);
    let diagnostics: Vec<Diagnostic> = outcome.problems.into_iter().map(say).collect();
    let valid = !diagnostics.iter().any(Diagnostic::is_error);
    Read { object: outcome.object.filter(|_| valid), diagnostics }
}

/// The documents of a text.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct YamlJson {
    /// The valid, non-empty documents, in order.
    pub documents: Vec<YamlDocument>,
    /// Errors in the other documents.
    pub errors: Vec<Diagnostic>,
}

/// One document.
#[derive(Clone, PartialEq, Debug)]
pub struct YamlDocument {
    /// The value.
    pub value: Json,
    /// Its first line, 1-based.
    pub line: u32,
    /// Duplicate keys with path and position. The first one is used.
    pub duplicates: Vec<Diagnostic>,
}

/// Reads YAML or JSON documents as JSON values. `file` is for diagnostics and may be empty.
pub fn parse_yaml_json(bytes: &[u8], file: &str, limits: &Limits) -> YamlJson {
    let file: Option<Arc<str>> = (!file.is_empty()).then(|| file.into());
    let say = |error: SyntaxError| {
        let path = error.path.clone();
        diagnostic(file.clone(), None, Problem { path, ..syntax_problem(error) })
    };
    let mut out = YamlJson::default();
    let text = match text_of(bytes, limits) {
        Ok(text) => text,
        Err(error) => {
            out.errors.push(say(error));
            return out;
        }
    };
    for tree in trees(text, limits) {
        match tree {
            Ok((_, root, _)) if root.is_null() => {}
            Ok((line, root, duplicates)) => out.documents.push(YamlDocument {
                value: root.to_json(),
                line: root.at.line.max(line),
                duplicates: duplicates.into_iter().map(say).collect(),
            }),
            Err(error) => out.errors.push(say(error)),
        }
    }
    out
}

/// Makes a diagnostic from a problem.
pub(super) fn diagnostic(file: Option<Arc<str>>, object: Option<ObjectKey>, problem: Problem) -> Diagnostic {
    Diagnostic {
        file,
        line: problem.at.line,
        column: problem.at.column,
        object,
        path: problem.path,
        severity: problem.severity,
        code: problem.code,
        message: problem.message,
        hint: problem.hint,
    }
}

/// The position of values that are not from a file.
const NOWHERE: Position = Position { line: 0, column: 0 };

/// The tree of a value; none if it is too deep.
pub(super) fn node(json: &Json, depth: usize) -> Option<Node> {
    let value = match json {
        Json::Null => Value::Plain("null".into()),
        Json::Bool(value) => Value::Plain(if *value { "true".into() } else { "false".into() }),
        Json::Number(number) => Value::Plain(number.to_string().into()),
        Json::String(text) => Value::Quoted(text.as_str().into()),
        Json::Array(items) => {
            let depth = depth.checked_sub(1)?;
            Value::List(items.iter().map(|item| node(item, depth)).collect::<Option<_>>()?)
        }
        Json::Object(entries) => {
            let depth = depth.checked_sub(1)?;
            let entry = |(key, value): (&String, &Json)| {
                Some(Entry { key: key.as_str().into(), at: NOWHERE, value: node(value, depth)? })
            };
            Value::Map(entries.iter().map(entry).collect::<Option<_>>()?)
        }
    };
    Some(Node { value, at: NOWHERE })
}
