//! Locates errors of the server in files: field, line and column.

use config::Diagnostic;

use crate::failure::{self, FAILURE, StatusError};
use crate::io::Io;
use crate::manifests::Manifest;
use crate::snippet;

/// Prints the error about the object of a file: each field that the server names with its line, other errors with the
/// line of the object. Returns the exit code.
pub(crate) fn report(error: &anyhow::Error, manifest: &Manifest, io: &mut Io) -> u8 {
    let Some(status_error) = error.downcast_ref::<StatusError>() else {
        return failure::report(error, io);
    };
    let fields = fields_of(status_error);
    if fields.is_empty() {
        io.eprint(format!("{}: {}", manifest.place(), failure::describe(error)));
        if is_missing_namespace(status_error) {
            io.eprint("hint: create it with `rutter create namespace NAME`, or add a Namespace to the files");
        }
        return FAILURE;
    }
    for (path, message) in fields {
        let found = diagnostic(manifest, &path, &message);
        io.eprint(snippet::render(&found, &manifest.source.bytes, io.terminal.color_err));
    }
    if let Some(hint) = status_error.hint() {
        io.eprint(format!("hint: {hint}"));
    }
    FAILURE
}

fn diagnostic(manifest: &Manifest, path: &str, message: &str) -> Diagnostic {
    let colon = if path.is_empty() { "" } else { ": " };
    manifest.error(path, "", format!("{}: {path}{colon}{message}", manifest.label()))
}

/// The fields that the error names, with a message for each; empty if it names none.
fn fields_of(status_error: &StatusError) -> Vec<(String, String)> {
    let tidy = |field: &str| match field {
        "<nil>" => String::new(),
        field => field.trim_start_matches('.').to_owned(),
    };
    let causes = status_error.causes().iter();
    let causes: Vec<_> = causes.map(|cause| (tidy(&cause.field), cause.message.clone())).collect();
    if causes.iter().any(|(field, _)| !field.is_empty()) {
        return causes;
    }
    // Unknown and duplicate fields are named only in the message.
    let mut found = unknown_and_duplicate_fields(&status_error.status.message);
    for line in status_error.status.message.lines().map(str::trim) {
        // A single field follows the introduction on the same line.
        let line = line.split_once("): ").map_or(line, |(_, rest)| rest);
        if let Some((field, what)) = line.split_once(": ")
            && field.starts_with('.')
        {
            found.push((tidy(field), what.to_owned()));
        }
    }
    found
}

/// The fields in `unknown field "spec.a", duplicate field "spec.b"`, with the problem of each.
pub(crate) fn unknown_and_duplicate_fields(message: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for problem in ["unknown field", "duplicate field"] {
        let before = format!("{problem} \"");
        let parts = message.split(&before).skip(1);
        let fields = parts.filter_map(|rest| rest.split_once('"').map(|(field, _)| field));
        found.extend(fields.map(|field| (field.to_owned(), problem.to_owned())));
    }
    found
}

fn is_missing_namespace(status_error: &StatusError) -> bool {
    status_error.status.code == 404 && status_error.status.message.starts_with("namespaces \"")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::manifests;

    fn status_error(message: &str, causes: &serde_json::Value) -> StatusError {
        let status = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": message, "details": {"causes": causes}});
        StatusError::read(422, status.to_string().as_bytes())
    }

    #[test]
    fn fields_are_found_in_causes_and_in_messages() {
        let causes = json!([{"field": ".spec.a", "message": "conflict"}, {"field": "<nil>", "message": "more"}]);
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        assert_eq!(fields_of(&status_error("x", &causes)), own(&[("spec.a", "conflict"), ("", "more")]));
        let strict =
            "strict decoding error: unknown field \"spec.x\", unknown field \"spec.y[0]\", duplicate field \"kind\"";
        let expected = [("spec.x", "unknown field"), ("spec.y[0]", "unknown field"), ("kind", "duplicate field")];
        assert_eq!(fields_of(&status_error(strict, &json!([]))), own(&expected));
        let typed = "failed to create typed patch object (a/b): errors:\n  .spec.zzz: field not declared in schema";
        let one = "failed to create typed patch object (a/b; v1, Kind=A): .spec.zzz: field not declared in schema";
        for message in [typed, one] {
            assert_eq!(
                fields_of(&status_error(message, &json!([]))),
                own(&[("spec.zzz", "field not declared in schema")])
            );
        }
        assert_eq!(fields_of(&status_error("namespaces \"a\" not found", &json!([]))), []);
    }

    #[test]
    fn the_line_of_the_field_is_shown() {
        let text =
            b"kind: List\napiVersion: v1\nitems:\n- apiVersion: v1\n  kind: A\n  metadata: {name: a}\n  spec: {x: 1}\n";
        let read = manifests::parse(text, "f.yaml").unwrap();
        let found = diagnostic(&read.manifests[0], "spec.x", "unknown field");
        assert_eq!((found.line, found.column), (7, 10));
        assert_eq!(found.message, "A a: spec.x: unknown field");
    }

    proptest! {
        #[test]
        fn no_response_panics(
            body in "\\{\"kind\":\"Status\",\"message\":\"[ -!#-\\[\\]-~]{0,40}\"\\}|\\PC{0,60}",
            field in "[-.a-z\\[\\]0-9\"]{0,20}",
        ) {
            let status_error = StatusError::read(400, body.as_bytes());
            let _ = (fields_of(&status_error), status_error.to_string());
            let manifest = manifests::readable(b"{kind: A, apiVersion: v1, spec: [1]}", "f").remove(0);
            let _ = diagnostic(&manifest, &field, "x");
        }
    }
}
