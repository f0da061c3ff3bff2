//! What all objects have in common: `apiVersion`, `kind`, `metadata`.

use std::sync::{Arc, LazyLock};

use crate::schema::{Fields, ListKind, Named, Schema, Shape};

/// `metadata` of every object.
pub fn object_meta() -> Arc<Schema> {
    static META: LazyLock<Arc<Schema>> = LazyLock::new(make_object_meta);
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

fn make_object_meta() -> Arc<Schema> {
    let text = |description: &str| Schema::text().describe(description);
    let time = |description: &str| time().describe(description);
    let texts = |description: &str| Schema::map(Arc::new(Schema::text())).describe(description);
    let mut finalizers = Schema::list(Arc::new(Schema::text()))
        .describe("Who must have cleaned up before the object goes; while it is not empty, deletion only marks it.");
    crate::schema::facts::set(&mut finalizers);
    let fields = vec![
        (
            "name",
            text("The name, unique among the objects of the kind in the namespace. It never changes."),
        ),
        (
            "generateName",
            text("A prefix from which the server makes a unique name, if there is no name."),
        ),
        (
            "namespace",
            text("The namespace, for kinds that live in one. It never changes."),
        ),
        (
            "labels",
            texts("Keys and values by which objects are selected and grouped."),
        ),
        (
            "annotations",
            texts("Keys and values that tools keep with the object; nothing is selected by them."),
        ),
        (
            "uid",
            text("Unique over all objects there ever were. Set by the server."),
        ),
        (
            "resourceVersion",
            text("The version of the stored object, opaque. Sent with an update, it must be the current one."),
        ),
        (
            "generation",
            Schema::integer("int64").describe("Counts changes of what the object asks for. Set by the server."),
        ),
        (
            "creationTimestamp",
            nullable(time("When the object was created. Set by the server.")),
        ),
        (
            "deletionTimestamp",
            nullable(time(
                "When deletion was asked for; the object goes once its finalizers are empty.",
            )),
        ),
        (
            "deletionGracePeriodSeconds",
            Schema::integer("int64").describe("Seconds that the object has to end by itself. Set by the server."),
        ),
        ("ownerReferences", owners()),
        ("finalizers", finalizers),
        ("managedFields", managed_fields()),
        ("selfLink", text("Deprecated: no server sets it any more.")),
    ];
    let what = "What names, versions and groups the object.";
    Arc::new(named(
        object(what, fields, vec![]),
        "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        what,
    ))
}

fn owners() -> Schema {
    let flag = |description: &str| Schema::new(Shape::Boolean).describe(description);
    let text = |description: &str| Schema::text().describe(description);
    let mut owner = object(
        "An object that this one belongs to.",
        vec![
            ("apiVersion", text("The owner's API version.")),
            ("kind", text("The owner's kind.")),
            ("name", text("The owner's name.")),
            ("uid", text("The owner's uid.")),
            (
                "controller",
                flag("Whether it is the one owner that manages the object."),
            ),
            (
                "blockOwnerDeletion",
                flag("Whether the owner stays until this object is gone, when it is deleted in the foreground."),
            ),
        ],
        vec!["apiVersion", "kind", "name", "uid"],
    );
    owner.atomic = true;
    let owner = named(
        owner,
        "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
        "An object that this one belongs to.",
    );
    list_by(owner, &["uid"], Some("uid"))
        .describe("The objects that this one belongs to; it goes when all of them are gone.")
}

fn managed_fields() -> Schema {
    let text = |description: &str| Schema::text().describe(description);
    let fields_v1 = Schema::new(Shape::Object(Fields {
        open: true,
        ..Fields::default()
    }))
    .describe("The fields, as a tree of their paths.");
    let fields_v1 = named(
        fields_v1,
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "Fields, as a tree of their paths.",
    );
    let entry = object(
        "The fields that one manager set.",
        vec![
            ("manager", text("Who it is.")),
            ("operation", text("How the fields were set: `Apply` or `Update`.")),
            ("apiVersion", text("The version in which the fields are named.")),
            ("time", time().describe("When the manager last changed its fields.")),
            ("fieldsType", text("How the fields are written: `FieldsV1`.")),
            ("fieldsV1", fields_v1),
            ("subresource", text("The subresource by which they were set, or empty.")),
        ],
        vec![],
    );
    let entry = named(
        entry,
        "io.k8s.apimachinery.pkg.apis.meta.v1.ManagedFieldsEntry",
        "The fields that one manager set.",
    );
    Schema::list(Arc::new(entry)).describe("Who set which fields. Kept by the server for server-side apply.")
}

fn nullable(mut schema: Schema) -> Schema {
    schema.nullable = true;
    schema
}
