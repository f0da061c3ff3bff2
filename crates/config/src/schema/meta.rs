//! What all objects have in common: `apiVersion`, `kind`, `metadata`.

use std::sync::{Arc, LazyLock};

use crate::schema::{Fields, ListKind, Named, Schema, Shape, core};

/// `metadata` of every object.
pub fn object_meta() -> Arc<Schema> {
    static META: LazyLock<Arc<Schema>> = LazyLock::new(|| Arc::new(core::object_meta()));
    META.clone()
}

/// A whole object: `apiVersion`, `kind` and `metadata`, then the fields of its kind.
pub(super) fn whole_object(
    description: &str,
    fields: Vec<(&'static str, Schema)>,
    required: Vec<&'static str>,
) -> Schema {
    let mut all = vec![
        (
            "apiVersion",
            Schema::text().describe("The group and version of the API that the object is written for."),
        ),
        ("kind", Schema::text().describe("What the object is, in CamelCase.")),
        ("metadata", (*object_meta()).clone()),
    ];
    all.extend(fields);
    object(description, all, required)
}

/// An object with these fields.
pub(super) fn object(description: &str, fields: Vec<(&'static str, Schema)>, required: Vec<&'static str>) -> Schema {
    let fields = fields
        .into_iter()
        .map(|(name, schema)| (name, Arc::new(schema)))
        .collect();
    Schema::new(Shape::Object(Fields {
        fields,
        required,
        ..Fields::default()
    }))
    .describe(description)
}

/// A list whose items are told apart by these fields.
pub(super) fn list_by(items: Schema, keys: &[&'static str], patch_key: Option<&'static str>) -> Schema {
    let mut list = Schema::list(Arc::new(items));
    if let Shape::List(_, kind, _) = &mut list.shape {
        *kind = ListKind::Map {
            keys: keys.to_vec(),
            patch_key,
        };
    }
    list
}

/// A time, to the second.
pub(super) fn time() -> Schema {
    named(
        Schema::text_of(Some("date-time")),
        "io.k8s.apimachinery.pkg.apis.meta.v1.Time",
        "A time in RFC 3339.",
    )
}

/// The same as a type with this name.
pub(super) fn named(mut schema: Schema, name: &'static str, description: &str) -> Schema {
    schema.named = Some(Named {
        name,
        description: description.into(),
    });
    schema
}

/// Fields as a tree of their paths, as managed fields have them.
pub(super) fn fields_v1() -> Schema {
    let schema = Schema::new(Shape::Object(Fields {
        open: true,
        ..Fields::default()
    }));
    named(
        schema,
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "Fields, as a tree of their paths.",
    )
}
