//! OpenAPI v3 documents, one for each group version. `kubectl explain` and client libraries read them.

mod paths;

use serde_json::{Map, Value as Json, json};

use crate::schema::print::Printer;
use crate::schema::{Definition, Shape, core, definitions};

/// The group versions that have a document, in the order of the kinds.
pub fn group_versions() -> Vec<(&'static str, &'static str)> {
    let mut out = Vec::new();
    for definition in definitions() {
        for served in definition.versions {
            let found = (definition.group, served.version);
            if !out.contains(&found) {
                out.push(found);
            }
        }
    }
    out
}

/// The document of a group version; none if it serves no kind.
///
/// Every call builds the document. Callers should cache it, with a hash of its bytes for the index.
pub fn document(group: &str, version: &str) -> Option<Json> {
    let of_version = |d: &&Definition| d.group == group && d.served(version).is_some();
    let kinds: Vec<&Definition> = definitions().iter().filter(of_version).collect();
    if kinds.is_empty() {
        return None;
    }
    let mut printer = Printer::with_components();
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for definition in kinds {
        let name = component(definition, version);
        let gvk = json!([{ "group": group, "version": version, "kind": definition.kind }]);
        schemas.insert(name.clone(), whole(definition, &mut printer, &gvk));
        schemas.insert(format!("{name}List"), list(definition, version, &name));
        paths::add(definition, version, &name, &mut paths);
    }
    for shared in core::shared() {
        printer.schema(&shared);
    }
    for (name, schema) in printer.into_components() {
        schemas.entry(name.to_owned()).or_insert(schema);
    }
    special(&mut schemas);
    Some(json!({
        "openapi": "3.0.0",
        "info": { "title": "Rutter", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "BearerToken": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "authorization",
                    "description": "A bearer token",
                },
            },
        },
    }))
}

/// The name of the schema of a kind: the type name for core kinds, the reversed group for kinds of CRDs, as API servers
/// name them.
fn component(definition: &Definition, version: &str) -> String {
    if let Some(named) = &definition.schema.named {
        return named.name.to_owned();
    }
    let mut parts: Vec<&str> = definition.group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{}", parts.join("."), definition.kind)
}

fn whole(definition: &Definition, printer: &mut Printer, gvk: &Json) -> Json {
    let mut out = printer.body(&definition.schema);
    out["x-kubernetes-group-version-kind"] = gvk.clone();
    out
}

fn list(definition: &Definition, version: &str, name: &str) -> Json {
    let text = |description: &str| json!({ "type": "string", "description": description });
    json!({
        "description": format!("A list of objects of the kind {}.", definition.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": text("The group and version of the API."),
            "kind": text("The kind of the list."),
            "metadata": {
                "description": "The version of the list, and the token to continue.",
                "allOf": [{ "$ref": format!("#/components/schemas/{META}.ListMeta") }],
            },
            "items": {
                "description": "The objects.",
                "type": "array",
                "items": { "$ref": format!("#/components/schemas/{name}") },
            },
        },
        "x-kubernetes-group-version-kind": [
            { "group": definition.group, "version": version, "kind": definition.list_kind() },
        ],
    })
}

/// Types whose OpenAPI v3 schema differs from the schema in CRDs.
fn special(schemas: &mut Map<String, Json>) {
    let one_of = |first: &str, second: &str| json!([{ "type": first }, { "type": second }]);
    let mut replace = |name: &str, extra: Json| {
        if let Some(Json::Object(schema)) = schemas.get_mut(name) {
            schema.retain(|key, _| key == "description");
            schema.extend(extra.as_object().cloned().unwrap_or_default());
        }
    };
    replace(
        "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
        json!({ "format": "int-or-string", "oneOf": one_of("integer", "string") }),
    );
    replace("io.k8s.apimachinery.pkg.api.resource.Quantity", json!({ "oneOf": one_of("string", "number") }));
    replace(&format!("{META}.FieldsV1"), json!({ "type": "object" }));
}

/// The package of types that all groups share.
const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Whether a kind supports strategic merge patches. Only core kinds do.
fn has_strategic_patches(definition: &Definition) -> bool {
    definition.builtin && matches!(definition.schema.shape, Shape::Object(_))
}
