//! The whole way of an object from a request to the store.

use config::rules::{Path, Rules};
use config::schema::{Definition, Normalization, normalize};
use serde_json::Value as Json;

use crate::cause::{Causes, Reason, Rejection};
use crate::decode::Decoded;
use crate::identify::identify;
use crate::walk::Walk;
use crate::{core, meta, semantic};

/// Warnings of one request.
const MAX_WARNINGS: usize = 100;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// There is none of this name.
    Create,
    /// It replaces the stored one.
    Update,
}

/// Which part of an object is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Subresource {
    /// The object, but for its status where that is a subresource.
    #[default]
    None,
    /// Its status only.
    Status,
}

/// The treatment of unknown and duplicate fields (`?fieldValidation=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FieldValidation {
    /// They are dropped.
    Ignore,
    /// They are dropped, with a warning each. The default.
    #[default]
    Warn,
    /// The request is refused.
    Strict,
}

impl FieldValidation {
    /// Parses the value of the parameter; an empty one gives the default, an unknown one `None`.
    pub fn parse(text: &str) -> Option<FieldValidation> {
        match text {
            "" | "Warn" => Some(FieldValidation::Warn),
            "Ignore" => Some(FieldValidation::Ignore),
            "Strict" => Some(FieldValidation::Strict),
            _ => None,
        }
    }
}

/// The parameters of a request besides the object.
#[derive(Clone, Copy, Debug)]
pub struct Review<'a> {
    /// The kind.
    pub definition: &'a Definition,
    /// The version in the path: `v1`.
    pub version: &'a str,
    /// The operation.
    pub operation: Operation,
    /// Which part is written.
    pub subresource: Subresource,
    /// The treatment of unknown fields.
    pub field_validation: FieldValidation,
    /// The namespace in the path.
    pub namespace: Option<&'a str>,
    /// The name in the path.
    pub name: Option<&'a str>,
}

/// An object that may be stored.
#[derive(Clone, PartialEq, Debug)]
pub struct Admitted {
    /// The object, in the preferred version.
    pub object: Json,
    /// Warnings for the client.
    pub warnings: Vec<String>,
}

/// Turns what a client sent into an object that may be stored. `old` is the stored object, with the `apiVersion` of the
/// request.
///
/// Creating drops the status of kinds that have it as a subresource; updating the object keeps the stored status, and
/// updating the status keeps the stored rest. Of an update only what changes is judged by schema and rules: an object
/// that was fine once can always lose a finalizer.
///
/// # Errors
/// All that is wrong with it.
pub fn admit(review: &Review<'_>, decoded: Decoded, old: Option<&Json>) -> Result<Admitted, Rejection> {
    let definition = review.definition;
    let mut object = identify(review, decoded.object)?;
    let mut causes = Causes { secret: definition.group.is_empty() && definition.kind == "Secret", ..Causes::default() };
    tidy(review, &mut object, &decoded.duplicates, true, &mut causes)?;
    keep_other_part(review, &mut object, old);
    core::fill(definition, &mut object, old);
    judge(review, &object, old, &mut causes);
    if !causes.found.is_empty() {
        return Err(Rejection::Invalid(causes.found));
    }
    object["apiVersion"] = definition.api_version().into();
    causes.warnings.extend(idle(review));
    causes.warnings.truncate(MAX_WARNINGS);
    Ok(Admitted { object, warnings: causes.warnings })
}

/// Checks the configuration of a server-side apply before it is laid over the stored object: which object it is, and
/// unknown and duplicate fields, which are dropped or refused. Nothing is filled in. Returns it with the warnings.
///
/// # Errors
/// It is another object than the request is about, or has unknown fields and these are refused.
pub fn check_apply(review: &Review<'_>, decoded: Decoded) -> Result<(Json, Vec<String>), Rejection> {
    let mut object = identify(review, decoded.object)?;
    let mut causes = Causes::default();
    tidy(review, &mut object, &decoded.duplicates, false, &mut causes)?;
    Ok((object, causes.warnings))
}

/// The warning for an object of a kind that is stored, but that nothing in a store without Kubernetes acts on.
fn idle(review: &Review<'_>) -> Option<String> {
    let missing = match (review.definition.group, review.definition.kind) {
        ("apps", "Deployment") => {
            "no pods are created from it; start the workload yourself, and describe it by a WorkloadEntry"
        }
        ("", "ServiceAccount") => "no tokens are issued for it",
        _ => return None,
    };
    let written = review.subresource == Subresource::None;
    written.then(|| format!("nothing acts on a {} here: {missing}", review.definition.kind))
}

fn judge(review: &Review<'_>, object: &Json, old: Option<&Json>, causes: &mut Causes) {
    let definition = review.definition;
    let rules = Rules::of(&definition.schema);
    let status_only = review.subresource == Subresource::Status;
    let mut walk = Walk { causes };
    for (name, schema) in definition.schema.fields().into_iter().flat_map(|fields| &fields.fields) {
        let value = object.get(name);
        // An object that is stored already is not validated again.
        let unchanged = old.is_some_and(|old| old.get(name) == value) && *name != "metadata";
        let path = Path::Root.field(name);
        match value {
            Some(value) if !unchanged => walk.check(value, schema, &path),
            None if !unchanged && !status_only && is_required(definition, name) => walk.causes.required(&path, ""),
            _ => {}
        }
    }
    let shaped = causes.found.is_empty();
    meta::check(definition, object, old, causes);
    let unchanged = old.is_some_and(|old| same_content(old, object));
    if unchanged {
        return;
    }
    // Kinds of Kubernetes have checks of their own, which need the right shape.
    let is_blocked = if definition.builtin { !shaped } else { causes.keep_from_rules() };
    if is_blocked {
        if !rules.is_empty() {
            let text = "some validation rules were not checked because the object was invalid; correct the existing \
                        errors to complete validation";
            causes.add(&Path::Root, Reason::Invalid, format!("Invalid value: null: {text}"));
        }
        return;
    }
    rules.check(object, old, &mut |violation| {
        causes.violation(violation);
        !causes.is_full()
    });
    if !status_only {
        core::check(definition, object, old, causes);
        // For an object that is refused anyway, the mesh would mostly report the same problems again.
        if causes.found.is_empty() {
            semantic::check(definition, object, causes);
        }
    }
}

/// Takes out nulls and unknown fields, fills in defaults if wanted, and says or refuses what was taken out.
fn tidy(
    review: &Review<'_>,
    object: &mut Json,
    duplicates: &[String],
    defaults: bool,
    causes: &mut Causes,
) -> Result<(), Rejection> {
    let mut found = Normalization { defaults, ..Normalization::default() };
    normalize(object, &review.definition.schema, &mut found);
    found.unknown.sort_unstable();
    let problems = duplicates
        .iter()
        .map(|field| format!("duplicate field {field:?}"))
        .chain(found.unknown.iter().map(|field| format!("unknown field {field:?}")));
    match review.field_validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => causes.warnings.extend(problems),
        FieldValidation::Strict => {
            let problems: Vec<String> = problems.collect();
            if !problems.is_empty() {
                let (kind, version) = (review.definition.kind, review.version);
                return Err(Rejection::BadRequest(format!(
                    "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                    problems.join(", ")
                )));
            }
        }
    }
    Ok(())
}

/// Each way of writing writes its own part.
fn keep_other_part(review: &Review<'_>, object: &mut Json, old: Option<&Json>) {
    let Some(fields) = object.as_object_mut().filter(|_| review.definition.status) else {
        return;
    };
    match (review.subresource, old) {
        (Subresource::None, old) => match old.and_then(|old| old.get("status")) {
            Some(status) => {
                fields.insert("status".into(), status.clone());
            }
            None => {
                fields.remove("status");
            }
        },
        (Subresource::Status, Some(Json::Object(old))) => {
            let (status, version) = (fields.remove("status"), fields.remove("apiVersion"));
            *fields = old.clone();
            fields.remove("status");
            fields.extend(status.map(|status| ("status".to_owned(), status)));
            fields.extend(version.map(|version| ("apiVersion".to_owned(), version)));
        }
        (Subresource::Status, _) => {}
    }
}

fn is_required(definition: &Definition, name: &str) -> bool {
    definition.schema.fields().is_some_and(|fields| fields.required.contains(&name))
}

/// Whether nothing but metadata differs.
fn same_content(old: &Json, new: &Json) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else {
        return false;
    };
    let content = |name: &str| !["apiVersion", "kind", "metadata"].contains(&name);
    old.iter().filter(|(name, _)| content(name)).all(|(name, value)| new.get(name) == Some(value))
        && new.keys().filter(|name| content(name)).all(|name| old.contains_key(name))
}
