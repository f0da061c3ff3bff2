//! Every schema is structural and agrees with decoding.

use serde_json::{Map, Value as Json, json};

use crate::schema::{ListKind, Schema, Shape, crd, definitions, openapi};
use crate::{ParseOptions, read_object};

mod fields;
mod kinds;
mod page;

/// Calls `look` with every schema inside a schema, and with its path.
fn walk(schema: &Schema, path: &str, look: &mut dyn FnMut(&Schema, &str)) {
    look(schema, path);
    match &schema.shape {
        Shape::Object(fields) => {
            for (name, field) in &fields.fields {
                walk(field, &format!("{path}.{name}"), look);
            }
        }
        Shape::Map(inner, _) => walk(inner, &format!("{path}{{}}"), look),
        Shape::List(inner, ..) => walk(inner, &format!("{path}[]"), look),
        _ => {}
    }
}

#[test]
fn schemas_are_structural() {
    for definition in definitions() {
        walk(&definition.schema, definition.kind, &mut |schema, path| {
            assert!(!schema.description.contains("[`"), "{path}: {}", schema.description);
            if let Shape::Object(fields) = &schema.shape {
                let mut names: Vec<&str> = fields.fields.iter().map(|(name, _)| *name).collect();
                names.sort_unstable();
                names.dedup();
                assert_eq!(names.len(), fields.fields.len(), "{path}: a field is there twice");
                for name in fields.required.iter().chain(fields.exclusive.iter().flatten()) {
                    assert!(fields.get(name).is_some(), "{path}: there is no {name}");
                }
            }
            if let Shape::List(items, ListKind::Map { keys, .. }, _) = &schema.shape {
                let fields = items.fields().unwrap_or_else(|| panic!("{path}: items are no objects"));
                for key in keys {
                    let field = fields.get(key).unwrap_or_else(|| panic!("{path}: there is no key {key}"));
                    let is_there = fields.required.contains(key) || field.default.is_some();
                    assert!(is_there || definition.builtin, "{path}: the key {key} may be missing");
                }
            }
            if let Shape::Text { pattern: Some(pattern), .. } = &schema.shape {
                assert!(regex::Regex::new(pattern).is_ok(), "{path}: {pattern}");
            }
        });
    }
}

/// A value with all fields; of mutually exclusive fields, the one with this number.
fn full(schema: &Schema, number: usize) -> Json {
    match &schema.shape {
        Shape::Object(fields) => {
            let left_out = |name: &str| {
                let group = fields.exclusive.iter().find(|group| group.contains(&name));
                group.is_some_and(|group| group[number % group.len()] != name)
            };
            let wanted = fields.fields.iter().filter(|(name, _)| !left_out(name));
            let values: Map<String, Json> =
                wanted.map(|(name, field)| ((*name).to_owned(), full(field, number))).collect();
            Json::Object(values)
        }
        Shape::Map(values, _) => json!({ "1": full(values, number) }),
        Shape::List(items, ..) => json!([full(items, number)]),
        Shape::Text { values, .. } if !values.is_empty() => json!(values[number % values.len()]),
        Shape::Text { format, pattern, bounds, .. } => match *format {
            Some("duration") => json!("1.5s"),
            Some("date-time") => json!("2026-08-02T10:00:00Z"),
            Some("byte") => json!("Zm8="),
            // The Gateway API's durations are texts with a pattern.
            _ if pattern.is_some_and(|p| p.contains("h|m|s|ms")) => json!("1s"),
            _ => json!("a".repeat(bounds.min.unwrap_or(1) as usize)),
        },
        Shape::Integer { min, max, .. } => json!(min.or(*max).unwrap_or(1)),
        Shape::Number { min, .. } => json!(min.unwrap_or(1.5)),
        Shape::Boolean => json!(true),
        Shape::IntOrText => json!(1),
        Shape::Any => json!({ "a": [1] }),
    }
}

/// Codes that only decoding reports.
const OF_TYPES: &[&str] = &["unknown-field", "duplicate-key"];

#[test]
fn what_a_schema_admits_is_decoded() {
    let options = ParseOptions { strict: true, ..ParseOptions::default() };
    for definition in definitions().iter().filter(|d| !d.builtin) {
        let spec = definition.schema.field("spec").unwrap();
        let mut found = Vec::new();
        for number in 0..6 {
            let object = json!({
                "apiVersion": definition.api_version(),
                "kind": definition.kind,
                "metadata": { "name": "a", "namespace": "default" },
                "spec": full(spec, number),
            });
            for diagnostic in read_object(&object, &options).diagnostics {
                let of_type = diagnostic.code == "bad-value" && diagnostic.message.starts_with("expected ");
                if of_type || OF_TYPES.contains(&diagnostic.code) {
                    found.push(diagnostic.to_string());
                }
            }
        }
        assert!(found.is_empty(), "{}: {found:#?}", definition.kind);
    }
}

#[test]
fn every_kind_that_is_read_has_a_definition_of_the_same_versions() {
    for kind in crate::Kind::ALL.iter().copied().filter(|k| !k.is_setting()) {
        let found = definitions().iter().find(|d| d.mesh == Some(kind));
        let definition = found.unwrap_or_else(|| panic!("{kind} of {:?} has none", kind.group()));
        let versions: Vec<&str> = definition.versions.iter().map(|served| served.version).collect();
        assert_eq!(versions, kind.versions(), "{kind}");
        assert_eq!(definition.namespaced, kind.is_namespaced(), "{kind}");
    }
}

#[test]
fn references_lead_to_components() {
    for (group, version) in openapi::group_versions() {
        let document = openapi::document(group, version).unwrap();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let text = document.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.get(name).is_some_and(Json::is_object), "{group}/{version}: {name}");
        }
    }
    assert!(openapi::document("nobody.example", "v1").is_none());
}

#[test]
fn a_crd_says_what_the_definition_says() {
    let definition = crate::schema::find("networking.istio.io", "virtualservices").unwrap();
    let crd = crd(definition);
    assert_eq!(crd["metadata"]["name"], "virtualservices.networking.istio.io");
    assert_eq!(crd["spec"]["names"]["shortNames"], json!(["vs"]));
    let version = &crd["spec"]["versions"][0];
    assert_eq!(version["storage"], true);
    assert_eq!(version["subresources"], json!({ "status": {} }));
    let schema = &version["schema"]["openAPIV3Schema"];
    assert_eq!(schema["properties"]["metadata"], json!({ "type": "object" }));
    let route = &schema["properties"]["spec"]["properties"]["http"]["items"]["properties"]["route"]["items"];
    assert_eq!(route["required"], json!(["destination"]));
    assert!(!crd.to_string().contains("x-kubernetes-patch"));
}
