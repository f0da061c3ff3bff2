//! Properties that hold for all objects and patches.

mod support;

use config::Timestamp;
use config::schema::Definition;
use k8s_patch::{Limits, Writer, apply, json_patch, merge_patch, strategic_merge_patch, track};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

/// Any value, with names that have a meaning in patches among others.
fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        "[a-c]{0,2}".prop_map(Json::from),
        prop::sample::select(vec![
            "delete",
            "replace",
            "merge",
            "/a",
            "/a/0",
            "add",
            "move",
            "k:{\"name\":1}",
            "f:a",
            ""
        ])
        .prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop::sample::select(vec![
            "a",
            "b",
            "name",
            "port",
            "spec",
            "status",
            "metadata",
            "parts",
            "ports",
            "tags",
            "notes",
            "inner",
            "free",
            "whole",
            "$patch",
            "$retainKeys",
            "$setElementOrder/parts",
            "$deleteFromPrimitiveList/tags",
            "op",
            "path",
            "from",
            "value",
            "managedFields",
            "manager",
            "operation",
            "apiVersion",
            "fieldsType",
            "fieldsV1",
            "f:spec",
            ".",
            "k:{\"name\":\"a\"}",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((name, inner), 0..4).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

/// A `spec` that conforms to the test kind.
fn any_spec() -> impl Strategy<Value = Json> {
    let small = || prop::option::of(0..3_i64);
    let name = || prop::sample::select(vec!["x", "y", "z"]);
    let parts = prop::option::of(prop::collection::btree_map(name(), small(), 1..3));
    let notes = prop::option::of(prop::collection::btree_map(name(), name(), 1..3));
    let tags = prop::option::of(prop::collection::btree_set(name(), 1..3));
    (small(), parts, notes, tags, small(), small()).prop_map(|(size, parts, notes, tags, a, whole)| {
        let mut spec = Map::new();
        let mut put = |name: &str, value: Option<Json>| spec.extend(value.map(|value| (name.to_owned(), value)));
        put("size", size.map(Json::from));
        put(
            "parts",
            parts.map(|parts| {
                let part = |(name, size): (&str, Option<i64>)| match size {
                    Some(size) => json!({"name": name, "size": size}),
                    None => json!({"name": name}),
                };
                parts.into_iter().map(part).collect::<Vec<_>>().into()
            }),
        );
        put("notes", notes.map(|notes| json!(notes)));
        put("tags", tags.map(|tags| json!(tags)));
        put("inner", a.map(|a| json!({"a": a, "deep": {"c": a}})));
        put("whole", whole.map(|a| json!({"a": a})));
        Json::Object(spec)
    })
}

fn object(spec: &Json) -> Json {
    json!({"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "n"}, "spec": spec})
}

fn writer<'a>(definition: &'a Definition, manager: &'a str, minute: i64) -> Writer<'a> {
    Writer {
        definition,
        version: "v1",
        manager,
        subresource: None,
        now: Timestamp::from_unix(1_800_000_000 + 60 * minute),
    }
}

/// The merge patch from one value to another.
fn difference(old: &Json, new: &Json) -> Json {
    let (Some(before), Some(after)) = (old.as_object(), new.as_object()) else {
        return new.clone();
    };
    let mut out = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        out.insert(name.clone(), Json::Null);
    }
    for (name, value) in after {
        match before.get(name) {
            Some(old) if old == value => {}
            Some(old) => drop(out.insert(name.clone(), difference(old, value))),
            None => drop(out.insert(name.clone(), value.clone())),
        }
    }
    Json::Object(out)
}

/// A value with sorted lists.
fn sorted(value: &Json) -> Json {
    match value {
        Json::Array(items) => {
            let mut items: Vec<Json> = items.iter().map(sorted).collect();
            items.sort_by_key(Json::to_string);
            Json::Array(items)
        }
        Json::Object(fields) => {
            fields.iter().map(|(name, value)| (name.clone(), sorted(value))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn nothing_panics(document in any_json(), patch in any_json()) {
        let definition = support::thing(true);
        let limits = Limits::default();
        let by = writer(&definition, "m", 1);
        let _ = json_patch(&document, &patch, &limits);
        let _ = json_patch(&document, &json!([patch]), &limits);
        let _ = merge_patch(&document, &patch, &limits);
        let spec = definition.schema.field("spec").unwrap();
        let _ = strategic_merge_patch(&document, &patch, spec, &limits);
        for (document, patch) in [(&document, &patch), (&object(&document), &object(&patch))] {
            for force in [false, true] {
                let _ = apply(Some(document), patch, &by, force);
                let _ = apply(None, patch, &by, force);
            }
            let mut new = patch.clone();
            track(Some(document), &mut new, &by);
            let mut new = object(patch);
            new["metadata"]["managedFields"] = document.clone();
            track(Some(document), &mut new, &by);
        }
    }

    #[test]
    fn a_merge_patch_of_the_difference_produces_the_new_value(old in any_spec(), new in any_spec()) {
        let patch = difference(&old, &new);
        prop_assert_eq!(merge_patch(&old, &patch, &Limits::default()).unwrap(), new);
    }

    #[test]
    fn a_strategic_patch_of_itself_changes_nothing(old in any_spec()) {
        let definition = support::thing(true);
        let spec = definition.schema.field("spec").unwrap();
        prop_assert_eq!(strategic_merge_patch(&old, &old, spec, &Limits::default()).unwrap(), old);
    }

    #[test]
    fn apply_is_idempotent(first in any_spec(), second in any_spec()) {
        let definition = support::thing(false);
        let one = apply(None, &object(&first), &writer(&definition, "a", 1), false).unwrap();
        let two = apply(Some(&one), &object(&second), &writer(&definition, "b", 2), true).unwrap();
        let again = apply(Some(&two), &object(&second), &writer(&definition, "b", 3), false).unwrap();
        prop_assert_eq!(again, two);
    }

    #[test]
    fn applied_fields_are_present(first in any_spec(), second in any_spec()) {
        let definition = support::thing(false);
        let one = apply(None, &object(&first), &writer(&definition, "a", 1), false).unwrap();
        let two = apply(Some(&one), &object(&second), &writer(&definition, "a", 1), false).unwrap();
        let fresh = apply(None, &object(&second), &writer(&definition, "a", 1), false).unwrap();
        // With a single manager, the object is what it applied last.
        prop_assert_eq!(sorted(&two), sorted(&fresh));
    }

    #[test]
    fn an_empty_apply_removes_only_fields_of_the_manager(mine in any_spec(), others in any_spec()) {
        let definition = support::thing(false);
        let one = apply(None, &object(&others), &writer(&definition, "a", 1), false).unwrap();
        prop_assume!(apply(Some(&one), &object(&mine), &writer(&definition, "b", 2), false).is_ok());
        let both = apply(Some(&one), &object(&mine), &writer(&definition, "b", 2), false).unwrap();
        let left = apply(Some(&both), &object(&json!({})), &writer(&definition, "b", 3), false).unwrap();
        // Empty lists and objects have no fields that could remain.
        let bare = |value: &Json| {
            let mut spec = value["spec"].clone();
            if let Some(fields) = spec.as_object_mut() {
                fields.retain(|_, value| *value != json!([]) && *value != json!({}));
            }
            sorted(&spec)
        };
        prop_assert_eq!(bare(&left), bare(&one));
    }

    #[test]
    fn the_last_writer_owns_a_field(first in any_spec(), second in any_spec()) {
        let definition = support::thing(false);
        let mut one = object(&first);
        track(None, &mut one, &writer(&definition, "a", 1));
        let mut two = object(&second);
        track(Some(&one), &mut two, &writer(&definition, "b", 2));
        let entries = two["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        prop_assert!(entries.len() <= 2);
        if sorted(&first) == sorted(&second) {
            prop_assert_eq!(&two["metadata"]["managedFields"], &one["metadata"]["managedFields"]);
        }
        if second["size"] != first["size"] && !second["size"].is_null() {
            let owner = entries.iter().find(|entry| entry["fieldsV1"]["f:spec"]["f:size"].is_object()).unwrap();
            prop_assert_eq!(&owner["manager"], "b");
        }
    }
}
