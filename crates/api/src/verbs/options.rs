//! Request options, validated as in Kubernetes.

use admission::FieldValidation;
use http::header::USER_AGENT;
use serde_json::Value;
use store::{At, Continue, FieldSelector, LabelSelector, Query};

use super::Call;
use crate::error::{About, ApiError, Cause};
use crate::path::Verb;

/// Collects invalid options.
pub(super) struct Check {
    kind: &'static str,
    causes: Vec<Cause>,
}

impl Check {
    pub(super) fn new(kind: &'static str) -> Check {
        let causes = Vec::new();
        Check { kind, causes }
    }

    /// Adds an invalid field.
    pub(super) fn refuse(&mut self, field: &str, reason: &str, message: String) {
        self.causes.push(Cause { reason: reason.into(), message, field: field.into() });
    }

    pub(super) fn forbid(&mut self, field: &str, message: &str) {
        self.refuse(field, "FieldValueForbidden", format!("Forbidden: {message}"));
    }

    pub(super) fn unsupported(&mut self, field: &str, value: &str, possible: &str) {
        let value: String = value.chars().take(100).collect();
        let message = format!("Unsupported value: {value:?}: supported values: {possible}");
        self.refuse(field, "FieldValueNotSupported", message);
    }

    pub(super) fn done(self) -> Result<(), ApiError> {
        if self.causes.is_empty() {
            return Ok(());
        }
        let about = About { group: "meta.k8s.io", kind: self.kind, name: "" };
        Err(ApiError::invalid(about, self.causes))
    }
}

/// Options of all writes.
#[derive(Clone, Debug)]
pub(super) struct WriteOptions {
    /// Do everything except the write.
    pub dry_run: bool,
    /// The field manager.
    pub manager: String,
    /// Handling of unknown fields.
    pub validation: FieldValidation,
    /// Whether an apply takes over fields of other managers.
    pub force: bool,
}

impl Call<'_> {
    /// Reads the options of a write.
    pub(super) fn write_options(&self, apply: bool) -> Result<WriteOptions, ApiError> {
        let kind = match self.verb {
            Verb::Create => "CreateOptions",
            Verb::Update => "UpdateOptions",
            _ => "PatchOptions",
        };
        let mut check = Check::new(kind);
        let dry_run = dry_run(self.params.all("dryRun"), &mut check);
        let validation = match self.params.get("fieldValidation") {
            None => FieldValidation::Warn,
            Some(text) => FieldValidation::parse(text).unwrap_or_else(|| {
                check.unsupported("fieldValidation", text, "\"\", \"Ignore\", \"Strict\", \"Warn\"");
                FieldValidation::Warn
            }),
        };
        let wanted = self.params.get("fieldManager");
        if apply && wanted.is_none() {
            let text = "Required value: is required for apply patch".to_owned();
            check.refuse("fieldManager", "FieldValueRequired", text);
        }
        if !apply && self.params.get("force").is_some() && self.verb == Verb::Patch {
            check.forbid("force", "may not be specified for non-apply patch");
        }
        let agent = self.request.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
        let manager = k8s_patch::manager_name(wanted, agent).unwrap_or_else(|error| {
            check.refuse("fieldManager", "FieldValueInvalid", error.to_string());
            String::new()
        });
        let force = self.params.flag("force")?;
        check.done()?;
        Ok(WriteOptions { dry_run, manager, validation, force })
    }

    /// The query of a list or watch, without resource version.
    pub(super) fn query(&self) -> Result<Query, ApiError> {
        let mut query = Query::of(self.resource());
        query.namespace = self.target.namespace.as_deref().map(Into::into);
        if let Some(text) = self.params.get("labelSelector") {
            query.labels = LabelSelector::parse(text).map_err(|error| ApiError::bad_request(error.to_string()))?;
        }
        if let Some(text) = self.params.get("fieldSelector") {
            query.fields = self.field_selector(text)?;
        }
        Ok(query)
    }

    fn field_selector(&self, text: &str) -> Result<FieldSelector, ApiError> {
        let selector = FieldSelector::parse(text).map_err(|error| ApiError::bad_request(error.to_string()))?;
        for path in selector.paths() {
            let known = path == "metadata.name" || path == "metadata.namespace" && self.kind.namespaced;
            if !known && !self.kind.selectable.contains(&path) {
                let path: String = path.chars().take(100).collect();
                return Err(ApiError::bad_request(match self.kind.builtin && self.kind.selectable.is_empty() {
                    true => format!(
                        "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    ),
                    false => format!("field label not supported: {path}"),
                }));
            }
        }
        Ok(selector)
    }

    /// The requested resource version; none if it is unset.
    pub(super) fn version(&self) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.params.get("resourceVersion") else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let text: String = text.chars().take(100).collect();
            ApiError::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: it is not a whole number"
            ))
        })
    }

    /// Reads resource version, limit and continue token of a list.
    pub(super) fn list_query(&self) -> Result<Query, ApiError> {
        let mut query = self.query()?;
        let version = self.version()?;
        let exact = self.check_list(version)?;
        let limit = self.params.number("limit")?.unwrap_or(0);
        query.limit = usize::try_from(limit).unwrap_or(usize::MAX);
        if let Some(token) = self.params.get("continue") {
            if version.is_some_and(|version| version > 0) {
                let text = "specifying resource version is not allowed when using continue";
                return Err(ApiError::bad_request(text));
            }
            let invalid = |_| {
                ApiError::bad_request("invalid continue token: continue key is not valid: it is not from this server")
            };
            let after = Continue::decode(token).map_err(invalid)?;
            query.at = At::Exactly(after.revision);
            query.after = Some(after);
            return Ok(query);
        }
        query.at = match (version, exact) {
            (None, _) => At::Latest,
            (Some(0), _) => At::NotOlderThan(0),
            (Some(version), true) => At::Exactly(version),
            // Without resourceVersionMatch, a paged list is at exactly this version.
            (Some(version), false) if query.limit > 0 && self.params.get("resourceVersionMatch").is_none() => {
                At::Exactly(version)
            }
            (Some(version), false) => At::NotOlderThan(version),
        };
        Ok(query)
    }

    /// Whether the version must match exactly.
    fn check_list(&self, version: Option<u64>) -> Result<bool, ApiError> {
        const MATCH: &str = "resourceVersionMatch";
        let mut check = Check::new("ListOptions");
        let wanted = self.params.get(MATCH);
        if wanted.is_some() && version.is_none() {
            check.forbid(MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if wanted.is_some() && self.params.get("continue").is_some() {
            check.forbid(MATCH, "resourceVersionMatch is forbidden when continue is provided");
        }
        match wanted {
            None | Some("NotOlderThan") => {}
            Some("Exact") if version == Some(0) => {
                check.forbid(MATCH, "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"");
            }
            Some("Exact") => {}
            Some(other) => check.unsupported(MATCH, other, "\"Exact\", \"NotOlderThan\", \"\""),
        }
        if self.params.get("sendInitialEvents").is_some() {
            check.forbid("sendInitialEvents", "sendInitialEvents is forbidden for list");
        }
        check.done()?;
        Ok(wanted == Some("Exact"))
    }

    /// Whether a watch starts with the current objects; none leaves it to the version.
    pub(super) fn initial_events(&self) -> Result<Option<bool>, ApiError> {
        const MATCH: &str = "resourceVersionMatch";
        let mut check = Check::new("ListOptions");
        let initial = match self.params.get("sendInitialEvents") {
            Some(_) => Some(self.params.flag("sendInitialEvents")?),
            None => None,
        };
        match (initial, self.params.get(MATCH)) {
            (None, None) | (Some(_), Some("NotOlderThan")) => {}
            (None, Some(_)) => {
                check.forbid(MATCH, "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
            }
            (Some(_), _) => {
                check.forbid(MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
            }
        }
        check.done()?;
        Ok(initial)
    }
}

/// Whether the request is a dry run. Reports every value except `All`.
pub(super) fn dry_run<'a>(values: impl Iterator<Item = &'a str>, check: &mut Check) -> bool {
    let values: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
    if values.iter().any(|value| *value != "All") {
        let sent = Value::from(values.iter().map(|v| v.chars().take(100).collect::<String>()).collect::<Vec<_>>());
        let message = format!("Unsupported value: {sent}: supported values: \"All\"");
        check.refuse("dryRun", "FieldValueNotSupported", message);
    }
    !values.is_empty()
}
