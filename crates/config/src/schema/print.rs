//! Conversion of schemas to JSON, for OpenAPI v3 documents and for CRDs.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::schema::{Bounds, Fields, ListKind, Schema, Shape};

/// A schema in OpenAPI v3 without references.
pub fn to_openapi(schema: &Schema) -> Json {
    Printer::inline(true).schema(schema)
}

/// Prints schemas.
pub(super) struct Printer {
    /// Referenced named types; none if types are printed in place.
    components: Option<BTreeMap<&'static str, Json>>,
    /// Whether extensions for strategic merge patches are printed. CRDs do not support them.
    patches: bool,
}

impl Printer {
    /// Prints types in place.
    pub(super) fn inline(patches: bool) -> Printer {
        Printer { components: None, patches }
    }

    /// Prints references to named types.
    pub(super) fn with_components() -> Printer {
        Printer { components: Some(BTreeMap::new()), patches: true }
    }

    /// The referenced types.
    pub(super) fn into_components(self) -> BTreeMap<&'static str, Json> {
        self.components.unwrap_or_default()
    }

    /// Prints a schema, as a reference if its type is named.
    pub(super) fn schema(&mut self, schema: &Schema) -> Json {
        let Some(named) = schema.named.as_ref().filter(|_| self.components.is_some()) else {
            return self.body(schema);
        };
        self.component(schema);
        let reference = json!({ "$ref": format!("#/components/schemas/{}", named.name) });
        if *schema.description == *named.description && schema.default.is_none() && !schema.nullable {
            return reference;
        }
        let mut out = Map::new();
        self.about(schema, &mut out);
        out.insert("allOf".to_owned(), json!([reference]));
        if schema.retain_keys {
            out.insert("x-kubernetes-patch-strategy".to_owned(), json!("retainKeys"));
        }
        Json::Object(out)
    }

    /// Adds the type of a schema to the components.
    fn component(&mut self, schema: &Schema) {
        let (Some(named), Some(components)) = (&schema.named, &mut self.components) else {
            return;
        };
        if components.contains_key(named.name) {
            return;
        }
        // The placeholder ends recursion.
        components.insert(named.name, Json::Null);
        let own = Schema {
            description: named.description.clone(),
            default: None,
            nullable: false,
            retain_keys: false,
            ..schema.clone()
        };
        let body = self.body(&own);
        if let Some(components) = &mut self.components {
            components.insert(named.name, body);
        }
    }

    /// Prints a schema in place.
    pub(super) fn body(&mut self, schema: &Schema) -> Json {
        let mut out = Map::new();
        self.about(schema, &mut out);
        self.shape(&schema.shape, &mut out);
        if schema.atomic {
            out.insert("x-kubernetes-map-type".to_owned(), json!("atomic"));
        }
        if schema.retain_keys && self.patches {
            let strategy = match schema.shape {
                Shape::List(..) => "merge,retainKeys",
                _ => "retainKeys",
            };
            out.insert("x-kubernetes-patch-strategy".to_owned(), json!(strategy));
        }
        if !schema.rules.is_empty() {
            let rules = schema.rules.iter().map(|r| json!({ "rule": r.rule, "message": r.message }));
            out.insert("x-kubernetes-validations".to_owned(), rules.collect());
        }
        Json::Object(out)
    }

    /// Prints description, default and nullability.
    fn about(&self, schema: &Schema, out: &mut Map<String, Json>) {
        if !schema.description.is_empty() {
            out.insert("description".to_owned(), json!(&*schema.description));
        }
        if let Some(default) = &schema.default {
            out.insert("default".to_owned(), default.clone());
        }
        if schema.nullable {
            out.insert("nullable".to_owned(), json!(true));
        }
    }

    fn shape(&mut self, shape: &Shape, out: &mut Map<String, Json>) {
        let mut put = |key: &str, value: Json| out.insert(key.to_owned(), value);
        match shape {
            Shape::Object(fields) => {
                put("type", json!("object"));
                self.fields(fields, out);
            }
            Shape::Map(values, limits) => {
                put("type", json!("object"));
                bounds(limits, "Properties", out);
                out.insert("additionalProperties".to_owned(), self.schema(values));
            }
            Shape::List(items, kind, limits) => {
                put("type", json!("array"));
                bounds(limits, "Items", out);
                out.insert("items".to_owned(), self.schema(items));
                self.list(kind, out);
            }
            Shape::Text { format, pattern, values, bounds: limits } => {
                put("type", json!("string"));
                format.map(|format| put("format", json!(format)));
                pattern.map(|pattern| put("pattern", json!(pattern)));
                (!values.is_empty()).then(|| put("enum", json!(values)));
                bounds(limits, "Length", out);
            }
            Shape::Integer { format, min, max } => {
                put("type", json!("integer"));
                put("format", json!(format));
                min.map(|min| put("minimum", json!(min)));
                max.map(|max| put("maximum", json!(max)));
            }
            Shape::Number { min, max } => {
                put("type", json!("number"));
                put("format", json!("double"));
                min.map(|min| put("minimum", json!(min)));
                max.map(|max| put("maximum", json!(max)));
            }
            Shape::Boolean => {
                put("type", json!("boolean"));
            }
            Shape::IntOrText => {
                put("x-kubernetes-int-or-string", json!(true));
                put("anyOf", json!([{ "type": "integer" }, { "type": "string" }]));
            }
            Shape::Any => {
                put("x-kubernetes-preserve-unknown-fields", json!(true));
            }
        }
    }

    fn fields(&mut self, fields: &Fields, out: &mut Map<String, Json>) {
        if !fields.fields.is_empty() {
            let mut properties = Map::new();
            for (name, schema) in &fields.fields {
                properties.insert((*name).to_owned(), self.schema(schema));
            }
            for (spelling, name) in &fields.spellings {
                properties.extend(fields.get(name).map(|schema| ((*spelling).to_owned(), self.schema(schema))));
            }
            out.insert("properties".to_owned(), Json::Object(properties));
        }
        if !fields.required.is_empty() {
            out.insert("required".to_owned(), json!(fields.required));
        }
        if fields.open {
            out.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
        }
        let mut groups: Vec<Json> = fields.exclusive.iter().map(|group| at_most_one(group)).collect();
        match groups.len() {
            0 => {}
            1 => {
                out.insert("oneOf".to_owned(), groups.remove(0));
            }
            _ => {
                let groups = groups.into_iter().map(|group| json!({ "oneOf": group }));
                out.insert("allOf".to_owned(), groups.collect());
            }
        }
    }

    fn list(&self, kind: &ListKind, out: &mut Map<String, Json>) {
        let mut put = |key: &str, value: Json| out.insert(format!("x-kubernetes-{key}"), value);
        match kind {
            ListKind::Atomic => {
                put("list-type", json!("atomic"));
            }
            ListKind::Set => {
                put("list-type", json!("set"));
                if self.patches {
                    put("patch-strategy", json!("merge"));
                }
            }
            ListKind::Map { keys, patch_key } => {
                put("list-type", json!("map"));
                put("list-map-keys", json!(keys));
                if let Some(key) = patch_key.filter(|_| self.patches) {
                    put("patch-merge-key", json!(key));
                    put("patch-strategy", json!("merge"));
                }
            }
        }
    }
}

/// A schema that allows at most one of the fields.
fn at_most_one(group: &[&'static str]) -> Json {
    let one: Vec<Json> = group.iter().map(|name| json!({ "required": [name] })).collect();
    let none = json!({ "not": { "anyOf": one } });
    std::iter::once(none).chain(one).collect()
}

fn bounds(bounds: &Bounds, what: &str, out: &mut Map<String, Json>) {
    if let Some(min) = bounds.min {
        out.insert(format!("min{what}"), json!(min));
    }
    if let Some(max) = bounds.max {
        out.insert(format!("max{what}"), json!(max));
    }
}
