//! A kind for tests, with every merge type of fields.
#![allow(dead_code)]

use std::sync::Arc;

use config::schema::{Bounds, Definition, Fields, ListKind, Schema, Served, Shape, object_meta};
use serde_json::Value as Json;

/// The schema of an object with these fields.
pub(crate) fn object(fields: Vec<(&'static str, Schema)>) -> Schema {
    let fields = fields.into_iter().map(|(name, schema)| (name, Arc::new(schema))).collect();
    Schema::new(Shape::Object(Fields { fields, ..Fields::default() }))
}

/// The schema of a list of this kind.
pub(crate) fn list(items: Schema, kind: ListKind) -> Schema {
    Schema::new(Shape::List(Arc::new(items), kind, Bounds::default()))
}

fn keyed(keys: &[&'static str], patch_key: Option<&'static str>) -> ListKind {
    ListKind::Map { keys: keys.to_vec(), patch_key }
}

fn atomic(mut schema: Schema) -> Schema {
    schema.atomic = true;
    schema
}

fn with_default(mut schema: Schema, default: Json) -> Schema {
    schema.default = Some(default);
    schema
}

/// `Thing`: a status subresource; below `spec` a scalar (`size`), an atomic list (`words`), a set (`tags`), lists by one key
/// (`parts`) and by two (`ports`), a map (`notes`), an atomic map (`selector`), an atomic object (`whole`), an object
/// (`inner`), and anything (`free`).
pub(crate) fn thing(builtin: bool) -> Definition {
    let number = || Schema::integer("int64");
    let part =
        object(vec![("name", Schema::text()), ("size", number()), ("words", Schema::list(Arc::new(Schema::text())))]);
    let port = object(vec![
        ("port", number()),
        ("protocol", with_default(Schema::text(), "TCP".into())),
        ("name", Schema::text()),
    ]);
    let spec = object(vec![
        ("size", number()),
        ("word", Schema::text()),
        ("words", Schema::list(Arc::new(Schema::text()))),
        ("tags", list(Schema::text(), ListKind::Set)),
        ("parts", list(part, keyed(&["name"], Some("name")))),
        ("ports", list(port, keyed(&["port", "protocol"], Some("port")))),
        ("notes", Schema::map(Arc::new(Schema::text()))),
        ("selector", atomic(Schema::map(Arc::new(Schema::text())))),
        ("whole", atomic(object(vec![("a", number()), ("b", number())]))),
        ("inner", object(vec![("a", number()), ("b", number()), ("deep", object(vec![("c", number())]))])),
        ("free", Schema::new(Shape::Any)),
    ]);
    let status = object(vec![("ready", number()), ("word", Schema::text())]);
    let meta = Arc::unwrap_or_clone(object_meta());
    let schema = object(vec![
        ("apiVersion", Schema::text()),
        ("kind", Schema::text()),
        ("metadata", meta),
        ("spec", spec),
        ("status", status),
    ]);
    Definition {
        group: "test.example.com",
        versions: &[Served { version: "v1", deprecated: None }, Served { version: "v1beta1", deprecated: None }],
        kind: "Thing",
        plural: "things",
        singular: "thing",
        short_names: &[],
        categories: &[],
        namespaced: true,
        status: true,
        builtin,
        columns: &[],
        selectable: &[],
        mesh: None,
        schema: Arc::new(schema),
    }
}

/// The documents of a YAML file.
pub(crate) fn cases(text: &str) -> Vec<Json> {
    let read = config::parse_yaml_json(text.as_bytes(), "", &config::Limits::default());
    assert!(read.errors.is_empty(), "{:?}", read.errors);
    assert!(read.documents.iter().all(|document| document.duplicates.is_empty()), "there are no duplicate keys");
    read.documents.into_iter().map(|document| document.value).collect()
}
