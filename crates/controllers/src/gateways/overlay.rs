//! Changes of the rendered objects by ConfigMaps: the defaults of a class, and the parameters of a Gateway.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use config::schema::{Schema, find_kind};
use config::{Limits, Timestamp, parse_yaml_json};
use k8s_patch::strategic_merge_patch;
use serde_json::Value;

use crate::Resource;

/// The label of ConfigMaps with the defaults of a class.
const CLASS: &str = "gateway.istio.io/defaults-for-class";

/// A kind of object that a Gateway may have.
#[derive(Debug)]
pub(super) struct Part {
    /// The resource.
    pub(super) resource: Resource,
    /// The key of its overlay in a ConfigMap.
    key: &'static str,
    /// Whether it is made only if there is an overlay for it.
    optional: bool,
}

const fn part(resource: Resource, key: &'static str, optional: bool) -> Part {
    Part { resource, key, optional }
}

/// All kinds, in the order in which they are written.
pub(super) const PARTS: [Part; 5] = [
    part(Resource::SERVICE_ACCOUNT, "serviceAccount", false),
    part(Resource::SERVICE, "service", false),
    part(Resource::DEPLOYMENT, "deployment", false),
    part(Resource::AUTOSCALER, "horizontalPodAutoscaler", true),
    part(Resource::DISRUPTION_BUDGET, "podDisruptionBudget", true),
];

/// Metadata that an overlay must not change.
const FIXED: [&str; 11] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
];

/// The overlays of a ConfigMap, by key.
type Overlays = BTreeMap<&'static str, Arc<str>>;

/// A ConfigMap as far as it may concern Gateways.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// The overlays; else a key that is none.
    overlays: Result<Overlays, Arc<str>>,
    /// The class that it has the defaults of.
    pub(super) class: Option<Arc<str>>,
    /// `creationTimestamp`.
    pub(super) created: Option<Timestamp>,
}

impl Parameters {
    /// Reads a ConfigMap. The values of other ConfigMaps are not kept.
    pub fn of(object: &Value) -> Parameters {
        let metadata = &object["metadata"];
        Parameters {
            overlays: overlays(object),
            class: metadata["labels"].get(CLASS).and_then(Value::as_str).map(Into::into),
            created: metadata["creationTimestamp"].as_str().and_then(Timestamp::parse),
        }
    }

    /// Applies the overlay for an object; returns whether there is one.
    pub(super) fn apply(&self, part: &Part, object: &mut Value) -> Result<bool, String> {
        let overlays = self.overlays.as_ref().map_err(|key| {
            let keys: Vec<&str> = PARTS.iter().map(|part| part.key).collect();
            format!("unknown key {key:?}: use {}", keys.join(", "))
        })?;
        let Some(text) = overlays.get(part.key) else {
            return Ok(false);
        };
        let wrong = |message: String| format!("key `{}`: {message}", part.key);
        let patch = read(text).map_err(&wrong)?;
        let patched = strategic_merge_patch(object, &patch, schema(part), &k8s_patch::Limits::default());
        let patched = patched.map_err(|error| wrong(error.to_string()))?;
        if let Some(field) = changed(object, &patched) {
            return Err(wrong(format!("`{field}` must not be changed")));
        }
        *object = patched;
        Ok(true)
    }
}

impl Part {
    /// Whether an object is made. `overlaid`: whether an overlay was applied.
    pub(super) fn is_wanted(&self, overlaid: bool) -> bool {
        overlaid || !self.optional
    }
}

fn overlays(object: &Value) -> Result<Overlays, Arc<str>> {
    let mut found = Overlays::new();
    for (name, value) in object["data"].as_object().into_iter().flatten() {
        match (PARTS.iter().find(|part| part.key == name), value.as_str()) {
            (Some(part), Some(text)) => drop(found.insert(part.key, text.into())),
            _ => return Err(name.as_str().into()),
        }
    }
    Ok(found)
}

fn read(text: &str) -> Result<Value, String> {
    let parsed = parse_yaml_json(text.as_bytes(), "", &Limits::default());
    if let Some(error) = parsed.errors.into_iter().next() {
        return Err(format!("line {}: {}", error.line, error.message));
    }
    let mut documents = parsed.documents.into_iter().map(|document| document.value);
    match (documents.next(), documents.next()) {
        (None | Some(Value::Null), None) => Ok(Value::Object(serde_json::Map::new())),
        (Some(patch @ Value::Object(_)), None) => Ok(patch),
        _ => Err("expected one object".to_owned()),
    }
}

/// The schema of a kind, which has the merge keys of its lists. Lists of kinds without one are replaced.
fn schema(part: &Part) -> &'static Schema {
    static OTHER: LazyLock<Schema> = LazyLock::new(|| Schema::map(Schema::text().into()));
    find_kind(part.resource.group, part.resource.kind).map_or(&OTHER, |kind| &kind.schema)
}

/// The first field that an overlay changed and must not change.
fn changed(before: &Value, after: &Value) -> Option<String> {
    if let Some(field) = ["apiVersion", "kind"].into_iter().find(|field| before.get(*field) != after.get(*field)) {
        return Some(field.to_owned());
    }
    let (before, after) = (&before["metadata"], &after["metadata"]);
    let managed = after.get("managedFields").map(|_| "managedFields");
    let fixed = FIXED.into_iter().find(|field| before.get(*field) != after.get(*field));
    fixed.or(managed).map(|field| format!("metadata.{field}"))
}
