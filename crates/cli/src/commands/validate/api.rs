//! What the API would refuse: schemas, rules, names and labels, with the lines they are on.

use admission::{Admission, FieldValidation, Operation, Reason, Rejection, Review, Subresource};
use config::schema::{Definition, definitions};
use config::{Diagnostic, FieldPath, ObjectKey, Severity};

use crate::blame;
use crate::manifests::Manifest;
use crate::words;

/// What is said of a field that a kind does not have.
const NO_FIELD: &str = "there is no such field";

/// Judges objects as a server does that has none of them yet.
pub(super) struct Judge {
    admission: Admission,
    /// The namespace of objects that name none.
    pub(super) namespace: String,
    /// How bad a field is that a kind does not have.
    pub(super) unknown: Severity,
}

impl Judge {
    pub(super) fn new(namespace: &str, unknown: Severity) -> Judge {
        Judge {
            admission: Admission::new(),
            namespace: namespace.to_owned(),
            unknown,
        }
    }

    /// What a server would refuse of an object; none for kinds of others, of which nothing is known here.
    pub(super) fn judge(&self, manifest: &Manifest) -> Vec<Diagnostic> {
        let (group, version) = manifest
            .api_version()
            .split_once('/')
            .unwrap_or(("", manifest.api_version()));
        let found = config::schema::find_kind(group, manifest.kind());
        let Some(definition) = found else {
            return unknown_kind(group, manifest).into_iter().collect();
        };
        if definition.served(version).is_none() {
            let all: Vec<&str> = definition.versions.iter().map(|served| served.version).collect();
            let message = format!(
                "there is no version {version:?} of the kind {}; there is {}",
                definition.kind,
                all.join(", ")
            );
            return vec![self.diagnostic(manifest, definition, "apiVersion", "unknown-version", message)];
        }
        self.review(manifest, definition, version)
    }

    /// Twice, for unknown fields hide everything else where they are refused.
    fn review(&self, manifest: &Manifest, definition: &Definition, version: &str) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        for field_validation in [FieldValidation::Strict, FieldValidation::Ignore] {
            let review = Review {
                definition,
                version,
                operation: Operation::Create,
                subresource: Subresource::None,
                field_validation,
                namespace: Some(self.namespace_of(manifest)),
                name: None,
            };
            let mut object = manifest.value.clone();
            name_generated(&mut object);
            match self.admission.admit(&review, object.into(), None) {
                Err(Rejection::BadRequest(message)) => {
                    let unknown = blame::in_quotes(&message);
                    if unknown.is_empty() {
                        return vec![self.diagnostic(manifest, definition, "", "bad-request", message)];
                    }
                    found.extend(unknown.iter().map(|(field, _)| Diagnostic {
                        severity: self.unknown,
                        ..self.diagnostic(manifest, definition, field, "unknown-field", NO_FIELD.to_owned())
                    }));
                }
                // Said in the second turn, too.
                Err(_) if field_validation == FieldValidation::Strict => {}
                Err(Rejection::Invalid(causes)) => {
                    let causes = causes
                        .into_iter()
                        .filter(|cause| !is_echo(&cause.field, &cause.message));
                    found.extend(causes.map(|cause| {
                        self.diagnostic(manifest, definition, &cause.field, code(cause.reason), cause.message)
                    }));
                }
                Ok(_) => {}
            }
        }
        found
    }

    fn namespace_of<'m>(&'m self, manifest: &'m Manifest) -> &'m str {
        manifest.namespace().unwrap_or(&self.namespace)
    }

    fn diagnostic(
        &self,
        manifest: &Manifest,
        definition: &Definition,
        field: &str,
        code: &'static str,
        message: String,
    ) -> Diagnostic {
        let namespace = if definition.namespaced {
            self.namespace_of(manifest)
        } else {
            ""
        };
        let object = definition
            .mesh
            .map(|kind| ObjectKey::new(kind, namespace, manifest.name()));
        let path = match field {
            "<nil>" => FieldPath::root(),
            field => FieldPath::parse(field),
        };
        Diagnostic {
            object,
            path,
            ..at(manifest, field, code, message)
        }
    }
}

/// An error at a field of an object.
fn at(manifest: &Manifest, field: &str, code: &'static str, message: String) -> Diagnostic {
    let (line, column) = manifest.locate(field);
    Diagnostic {
        file: Some(manifest.source.name.as_str().into()),
        line,
        column,
        object: None,
        path: FieldPath::root(),
        severity: Severity::Error,
        code,
        message,
        hint: None,
    }
}

/// A kind that a group does not have, if the group is all known here; other groups may have any.
fn unknown_kind(group: &str, manifest: &Manifest) -> Option<Diagnostic> {
    let of_group = || definitions().iter().filter(|definition| definition.group == group);
    if of_group().next().is_none() || of_group().any(|definition| definition.builtin) {
        return None;
    }
    let message = format!("the group {group} has no kind {:?}", manifest.kind());
    let near = words::nearest(manifest.kind(), of_group().map(|definition| definition.kind));
    Some(Diagnostic {
        hint: near.map(|kind| format!("did you mean {kind}?")),
        ..at(manifest, "kind", "unknown-kind", message)
    })
}

/// A server gives a name to an object that asks for one.
fn name_generated(object: &mut serde_json::Value) {
    let meta = &object["metadata"];
    if let (true, Some(prefix)) = (meta["name"].is_null(), meta["generateName"].as_str()) {
        object["metadata"]["name"] = format!("{prefix}x").into();
    }
}

/// That some rules were not looked at is no problem of its own.
fn is_echo(field: &str, message: &str) -> bool {
    field == "<nil>" && message.contains("some validation rules were not checked")
}

fn code(reason: Reason) -> &'static str {
    match reason {
        Reason::Invalid => "invalid",
        Reason::Required => "missing-field",
        Reason::NotSupported => "not-supported",
        Reason::Forbidden => "forbidden",
        Reason::Duplicate => "duplicate",
        Reason::TooLong => "too-long",
        Reason::TooMany => "too-many",
        Reason::TypeInvalid => "wrong-type",
        Reason::NotFound => "not-found",
    }
}
