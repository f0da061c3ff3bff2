//! Why an object was refused.

use config::rules::{Outcome, Path, Violation};
use config::schema::Definition;
use serde_json::Value as Json;

/// Causes of one refusal; later ones are left out.
const MAX_CAUSES: usize = 100;

/// Why an object was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// The body is not an object of the kind that the request is about (status 400, reason `BadRequest`).
    BadRequest(String),
    /// It is one, with these problems; never empty (status 422, reason `Invalid`).
    Invalid(Vec<Cause>),
}

impl Rejection {
    /// The `message` of the `Status`.
    pub fn message(&self, definition: &Definition, name: &str) -> String {
        let causes = match self {
            Rejection::BadRequest(message) => return message.clone(),
            Rejection::Invalid(causes) => causes,
        };
        let kind = match definition.group {
            "" => definition.kind.to_owned(),
            group => format!("{}.{group}", definition.kind),
        };
        let texts: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        match texts.as_slice() {
            [one] => format!("{kind} {name:?} is invalid: {one}"),
            many => format!("{kind} {name:?} is invalid: [{}]", many.join(", ")),
        }
    }
}

/// One problem, as in `Status.details.causes`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cause {
    /// The field: `spec.http[0].route`; `<nil>` for none in particular.
    pub field: String,
    /// The sort of the problem.
    pub reason: Reason,
    /// The message, which begins with the sort: `Invalid value: 0: must be greater than 0`.
    pub message: String,
}

/// The sorts of problems that Kubernetes knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A value that is wrong in some other way.
    Invalid,
    /// A value is missing.
    Required,
    /// A value that is none of those that are known.
    NotSupported,
    /// A value that may not be given here.
    Forbidden,
    /// A value that may be there only once.
    Duplicate,
    /// A text that is too long.
    TooLong,
    /// Too many items.
    TooMany,
    /// A value of the wrong type.
    TypeInvalid,
    /// Something that is referred to does not exist.
    NotFound,
}

impl Reason {
    /// As `Status.details.causes[].reason` names it.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Invalid => "FieldValueInvalid",
            Reason::Required => "FieldValueRequired",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::NotFound => "FieldValueNotFound",
        }
    }
}

/// Problems while they are found. Every method that shows a value shows at most its beginning, and nothing of it where the
/// object is secret.
#[derive(Debug, Default)]
pub(crate) struct Causes {
    pub(crate) found: Vec<Cause>,
    pub(crate) warnings: Vec<String>,
    /// Whether values may not be shown.
    pub(crate) secret: bool,
}

impl Causes {
    pub(crate) fn add(&mut self, field: &Path<'_>, reason: Reason, message: String) {
        if self.found.len() < MAX_CAUSES {
            self.found.push(Cause { field: field.to_string(), reason, message });
        }
    }

    /// Adds a violated CEL rule. Lists and objects are not shown.
    pub(crate) fn violation(&mut self, violation: &Violation<'_>) {
        let (value, message) = (violation.value, &violation.message);
        let text = match &violation.outcome {
            Outcome::False if value.is_array() || value.is_object() => message.clone(),
            Outcome::False => format!("{}: {message}", self.show(value)),
            Outcome::Failed(_) if self.secret => {
                format!("{:?}: an error occurred evaluating rule: {message}", type_name(value))
            }
            Outcome::Failed(error) => format!("{:?}: {error} evaluating rule: {message}", type_name(value)),
            Outcome::TooExpensive(rule) => {
                format!("the object is too large for the rule to be checked: {rule}")
            }
        };
        self.add(violation.path, Reason::Invalid, format!("Invalid value: {text}"));
    }

    /// Whether something is so wrong that rules in CEL would only confuse, or could not be evaluated.
    pub(crate) fn keep_from_rules(&self) -> bool {
        let blocks = |reason: Reason| {
            matches!(
                reason,
                Reason::NotSupported | Reason::Required | Reason::TooLong | Reason::TooMany | Reason::TypeInvalid
            )
        };
        self.found.iter().any(|cause| blocks(cause.reason))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.found.len() >= MAX_CAUSES
    }

    pub(crate) fn invalid(&mut self, field: &Path<'_>, value: &Json, detail: &str) {
        let message = format!("Invalid value: {}: {detail}", self.show(value));
        self.add(field, Reason::Invalid, message);
    }

    pub(crate) fn required(&mut self, field: &Path<'_>, detail: &str) {
        let message = match detail {
            "" => "Required value".to_owned(),
            detail => format!("Required value: {detail}"),
        };
        self.add(field, Reason::Required, message);
    }

    pub(crate) fn not_supported(&mut self, field: &Path<'_>, value: &Json, supported: &[&str]) {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message = format!("Unsupported value: {}: supported values: {}", self.show(value), supported.join(", "));
        self.add(field, Reason::NotSupported, message);
    }

    pub(crate) fn forbidden(&mut self, field: &Path<'_>, detail: &str) {
        self.add(field, Reason::Forbidden, format!("Forbidden: {detail}"));
    }

    pub(crate) fn duplicate(&mut self, field: &Path<'_>, value: &Json) {
        let message = format!("Duplicate value: {}", self.show(value));
        self.add(field, Reason::Duplicate, message);
    }

    pub(crate) fn too_long(&mut self, field: &Path<'_>, max: u64) {
        self.add(field, Reason::TooLong, format!("Too long: may not be more than {max} bytes"));
    }

    pub(crate) fn too_many(&mut self, field: &Path<'_>, count: usize, max: u64) {
        let items = if max == 1 { "item" } else { "items" };
        self.add(field, Reason::TooMany, format!("Too many: {count}: must have at most {max} {items}"));
    }

    pub(crate) fn wrong_type(&mut self, field: &Path<'_>, value: &Json, wanted: &str, shown: Option<&Json>) {
        let value = match shown {
            Some(value) => self.show(value),
            None => format!("{:?}", type_name(value)),
        };
        let message = format!("Invalid value: {value}: {field} in body must be of type {wanted}: {value}");
        self.add(field, Reason::TypeInvalid, message);
    }

    /// A value in a message.
    fn show(&self, value: &Json) -> String {
        const MAX: usize = 512;
        if self.secret && !value.is_null() {
            return "<redacted>".to_owned();
        }
        let mut text = value.to_string();
        if text.len() > MAX {
            text.truncate(text.floor_char_boundary(MAX));
            text.push('…');
        }
        text
    }
}

/// A value's type, as messages name it.
pub(crate) fn type_name(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}
