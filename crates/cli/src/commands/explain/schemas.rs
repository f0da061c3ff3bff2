//! Schemas of an OpenAPI document, and the ways from one to the other.

use anyhow::{Result, anyhow};
use serde_json::Value as Json;

use crate::server::Kind;

/// How many references are followed from one to the next.
const MAX_REFERENCES: usize = 16;

/// All schemas of a document.
#[derive(Clone, Copy)]
pub(super) struct Schemas<'d> {
    pub(super) document: &'d Json,
}

impl<'d> Schemas<'d> {
    pub(super) fn of_kind(self, kind: &Kind) -> Option<&'d Json> {
        let is_kind = |schema: &&Json| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.into_iter().flatten().any(|one| {
                one["group"].as_str().unwrap_or_default() == kind.group
                    && one["version"] == kind.version.as_str()
                    && one["kind"] == kind.kind.as_str()
            })
        };
        self.document["components"]["schemas"]
            .as_object()?
            .values()
            .find(is_kind)
    }

    /// The schema itself, where one refers to another.
    pub(super) fn resolve(self, schema: &'d Json) -> &'d Json {
        let mut schema = schema;
        for _ in 0..MAX_REFERENCES {
            let Some(name) = reference(schema) else { break };
            schema = &self.document["components"]["schemas"][name];
        }
        schema
    }

    /// What the items of lists and the values of maps are, all the way.
    pub(super) fn inner(self, schema: &'d Json) -> &'d Json {
        let mut schema = self.resolve(schema);
        for _ in 0..MAX_REFERENCES {
            let next = match schema["items"].is_object() {
                true => &schema["items"],
                false if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
                false => break,
            };
            schema = self.resolve(next);
        }
        schema
    }

    /// Follows fields; returns the schema as it is written at the last of them.
    pub(super) fn walk(self, root: &'d Json, fields: &[String]) -> Result<(Vec<String>, &'d Json)> {
        let mut at = root;
        let mut path = Vec::new();
        for field in fields {
            let name = field.trim_end_matches("[]");
            let properties = &self.inner(at)["properties"];
            at = properties.get(name).ok_or_else(|| {
                let all: Vec<&str> = properties
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                let here = if path.is_empty() {
                    "the kind".to_owned()
                } else {
                    path.join(".")
                };
                match all.is_empty() {
                    true => anyhow!("field \"{name}\" does not exist: {here} has no fields"),
                    false => anyhow!("field \"{name}\" does not exist\nhint: {here} has {}", all.join(", ")),
                }
            })?;
            path.push(name.to_owned());
        }
        Ok((path, at))
    }

    /// `string`, `[]Object`, `map[string]string`, `ObjectMeta`.
    pub(super) fn type_of(self, schema: &'d Json, depth: usize) -> String {
        if depth > MAX_REFERENCES {
            return "Object".to_owned();
        }
        if let Some(name) = reference(schema) {
            let target = self.resolve(schema);
            return match target["properties"].is_object() {
                true => name.rsplit('.').next().unwrap_or(name).to_owned(),
                false => self.type_of(target, depth + 1),
            };
        }
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return "IntOrString".to_owned();
        }
        match schema["type"].as_str() {
            Some("array") => format!("[]{}", self.type_of(&schema["items"], depth + 1)),
            Some("object") if schema["additionalProperties"].is_object() => {
                format!(
                    "map[string]{}",
                    self.type_of(&schema["additionalProperties"], depth + 1)
                )
            }
            Some("object") | None => "Object".to_owned(),
            Some(name) => name.to_owned(),
        }
    }

    /// The text where a schema is used, or else that of the schema it refers to.
    pub(super) fn description(self, schema: &'d Json) -> &'d str {
        let own = schema["description"].as_str().filter(|text| !text.is_empty());
        own.or_else(|| self.resolve(schema)["description"].as_str())
            .unwrap_or_default()
    }
}

fn reference(schema: &Json) -> Option<&str> {
    let direct = schema["$ref"].as_str();
    let in_all = || schema["allOf"].as_array().filter(|all| all.len() == 1)?[0]["$ref"].as_str();
    direct.or_else(in_all)?.strip_prefix("#/components/schemas/")
}
