//! Validation by the control plane.

use config::schema::Definition;
use config::{Diagnostic, ParseOptions, Segment, Severity, read_object};
use serde_json::Value as Json;

use crate::cause::{Cause, Causes, Reason};

/// Parses an object like the control plane: errors become causes, warnings and fields without effect become warnings.
pub(crate) fn check(definition: &Definition, object: &Json, causes: &mut Causes) {
    if definition.mesh.is_none() {
        return;
    }
    let namespace = object.get("metadata").and_then(|meta| meta.get("namespace")).and_then(Json::as_str);
    let mut options = ParseOptions { admitted: true, ..ParseOptions::default() };
    if let Some(namespace) = namespace {
        options.default_namespace = namespace.into();
    }
    for diagnostic in read_object(object, &options).diagnostics {
        match diagnostic.severity {
            Severity::Error if causes.is_full() => break,
            Severity::Error => causes.found.push(cause(&diagnostic, object, causes.secret)),
            Severity::Warning => causes.warnings.push(warning(&diagnostic)),
            Severity::Info => {}
        }
    }
}

fn warning(diagnostic: &Diagnostic) -> String {
    let text = with_hint(diagnostic);
    if diagnostic.path.is_empty() { text } else { format!("{}: {text}", diagnostic.path) }
}

fn cause(diagnostic: &Diagnostic, object: &Json, secret: bool) -> Cause {
    let text = with_hint(diagnostic);
    let reason = match diagnostic.code {
        "missing-field" => Reason::Required,
        "duplicate" | "duplicate-key" => Reason::Duplicate,
        _ => Reason::Invalid,
    };
    // Short values are shown, as in other causes.
    let value = value_at(object, diagnostic).filter(|value| !value.is_array() && !value.is_object());
    let message = match (reason, value) {
        (Reason::Required, _) => format!("Required value: {text}"),
        (Reason::Duplicate, Some(value)) if !secret => format!("Duplicate value: {value}: {text}"),
        (Reason::Duplicate, _) => format!("Duplicate value: {text}"),
        (_, Some(value)) if !secret => format!("Invalid value: {value}: {text}"),
        _ => format!("Invalid value: {text}"),
    };
    let field = if diagnostic.path.is_empty() { "<nil>".to_owned() } else { diagnostic.path.to_string() };
    Cause { field, reason, message }
}

fn with_hint(diagnostic: &Diagnostic) -> String {
    match &diagnostic.hint {
        Some(hint) => format!("{} ({hint})", diagnostic.message),
        None => diagnostic.message.clone(),
    }
}

fn value_at<'o>(object: &'o Json, diagnostic: &Diagnostic) -> Option<&'o Json> {
    diagnostic.path.segments().iter().try_fold(object, |value, segment| match segment {
        Segment::Field(name) | Segment::Key(name) => value.get(&**name),
        Segment::Index(index) => value.get(*index),
    })
}
