//! Validation by the API's admission: schemas, rules, names and labels, with lines.

use admission::{FieldValidation, Operation, Reason, Rejection, Review, Subresource};
use config::schema::{Definition, definitions};
use config::{Diagnostic, FieldPath, ObjectKey, Severity};

use crate::error_location;
use crate::manifests::Manifest;

/// The message for a field that a kind does not have.
const NO_FIELD: &str = "unknown field";

/// Validates objects like a server that creates them.
pub(super) struct ApiValidator {
    /// The namespace of objects without one.
    pub(super) namespace: String,
    /// The severity of unknown fields.
    pub(super) unknown: Severity,
}

impl ApiValidator {
    pub(super) fn new(namespace: &str, unknown: Severity) -> ApiValidator {
        ApiValidator { namespace: namespace.to_owned(), unknown }
    }

    /// The errors with which a server would reject the object. Kinds that this build does not know are not validated.
    pub(super) fn validate(&self, manifest: &Manifest) -> Vec<Diagnostic> {
        let (group, version) = manifest.api_version().split_once('/').unwrap_or(("", manifest.api_version()));
        let found = config::schema::find_kind(group, manifest.kind());
        let Some(definition) = found else {
            return unknown_kind(group, manifest).into_iter().collect();
        };
        if definition.served(version).is_none() {
            let all: Vec<&str> = definition.versions.iter().map(|served| served.version).collect();
            let message =
                format!("kind {} has no version {version:?}; its versions: {}", definition.kind, all.join(", "));
            return vec![self.diagnostic(manifest, definition, "apiVersion", "unknown-version", message)];
        }
        self.review(manifest, definition, version)
    }

    /// Validates twice because strict validation of unknown fields hides all other errors.
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
            set_generated_name(&mut object);
            match admission::admit(&review, object.into(), None) {
                Err(Rejection::BadRequest(message)) => {
                    let unknown = error_location::unknown_and_duplicate_fields(&message);
                    if unknown.is_empty() {
                        return vec![self.diagnostic(manifest, definition, "", "bad-request", message)];
                    }
                    found.extend(unknown.iter().map(|(field, _)| Diagnostic {
                        severity: self.unknown,
                        ..self.diagnostic(manifest, definition, field, "unknown-field", NO_FIELD.to_owned())
                    }));
                }
                // The second validation reports these, too.
                Err(_) if field_validation == FieldValidation::Strict => {}
                Err(Rejection::Invalid(causes)) => {
                    let causes =
                        causes.into_iter().filter(|cause| !is_skipped_rules_note(&cause.field, &cause.message));
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
        let namespace = if definition.namespaced { self.namespace_of(manifest) } else { "" };
        let object = definition.mesh.map(|kind| ObjectKey::new(kind, namespace, manifest.name()));
        let path = match field {
            "<nil>" => FieldPath::root(),
            field => FieldPath::parse(field),
        };
        Diagnostic { object, path, ..manifest.error(field, code, message) }
    }
}

/// The error for an unknown kind of a group whose kinds are all known to this build.
fn unknown_kind(group: &str, manifest: &Manifest) -> Option<Diagnostic> {
    let of_group = || definitions().iter().filter(|definition| definition.group == group);
    if of_group().next().is_none() || of_group().any(|definition| definition.builtin) {
        return None;
    }
    let message = format!("the group {group} has no kind {:?}", manifest.kind());
    let near = config::nearest(manifest.kind(), of_group().map(|definition| definition.kind));
    Some(Diagnostic {
        hint: near.map(|kind| format!("did you mean {kind}?")),
        ..manifest.error("kind", "unknown-kind", message)
    })
}

/// Sets a name if the object has only `generateName`, as a server does.
fn set_generated_name(object: &mut serde_json::Value) {
    let meta = &object["metadata"];
    if let (true, Some(prefix)) = (meta["name"].is_null(), meta["generateName"].as_str()) {
        object["metadata"]["name"] = format!("{prefix}x").into();
    }
}

/// Whether a cause only notes that rules were skipped.
fn is_skipped_rules_note(field: &str, message: &str) -> bool {
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
