//! The schemas of the fields that all objects have: `apiVersion`, `kind`, `metadata`.

use std::sync::{Arc, LazyLock};

use crate::schema::{Fields, ListKind, Named, Schema, Shape, core};

/// `metadata` of every object.
pub fn object_meta() -> Arc<Schema> {
    static META: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(core::object_meta()));
    META.clone()
}

/// The schema of a whole object: `apiVersion`, `kind` and `metadata`, then the fields of its kind.
pub(super) fn whole_object(
    description: &str,
    fields: Vec<(&'static str, Schema)>,
    required: Vec<&'static str>,
) -> Schema {
    let mut all = vec![
        ("apiVersion", Schema::text().describe("The group and version of the API.")),
        ("kind", Schema::text().describe("The kind of the object, in CamelCase.")),
        ("metadata", (*object_meta()).clone()),
    ];
    all.extend(fields);
    object(description, all, required)
}

/// An object with these fields.
pub(super) fn object(description: &str, fields: Vec<(&'static str, Schema)>, required: Vec<&'static str>) -> Schema {
    let fields = fields.into_iter().map(|(name, schema)| (name, Arc::new(schema))).collect();
    Schema::new(Shape::Object(Fields { fields, required, ..Fields::default() })).describe(description)
}

/// A list map with these keys.
pub(super) fn list_by(items: Schema, keys: &[&'static str], patch_key: Option<&'static str>) -> Schema {
    let mut list = Schema::list(Arc::new(items));
    if let Shape::List(_, kind, _) = &mut list.shape {
        *kind = ListKind::Map { keys: keys.to_vec(), patch_key };
    }
    list
}

/// A time with a precision of seconds.
pub(super) fn time() -> Schema {
    named(Schema::text_of(Some("date-time")), "io.k8s.apimachinery.pkg.apis.meta.v1.Time", "A time in RFC 3339.")
}

/// Names the type of a schema.
pub(super) fn named(mut schema: Schema, name: &'static str, description: &str) -> Schema {
    schema.named = Some(Named { name, description: description.into() });
    schema
}

/// A set of fields, as managed fields contain it.
pub(super) fn fields_v1() -> Schema {
    let schema = Schema::new(Shape::Object(Fields { open: true, ..Fields::default() }));
    named(schema, "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "A set of fields, as a trie of their paths.")
}
