//! Properties of all bodies and objects.
#![allow(clippy::unwrap_used)]

mod support;

use admission::{Decoded, Limits, Operation, Stamp, Subresource, decode, fill_name, mark_deleted, prepare};
use config::Timestamp;
use config::schema::{Definition, ListKind, Schema, Shape, definitions};
use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

fn any_json() -> impl Strategy<Value = Json> {
    let leaf = prop_oneof![
        Just(Json::Null),
        any::<bool>().prop_map(Json::from),
        any::<i64>().prop_map(Json::from),
        (-1000..1000_i32).prop_map(|quarters| Json::from(f64::from(quarters) / 4.0)),
        ".{0,4}".prop_map(Json::from),
        prop::sample::select(vec!["a", "example.com/x", "IPv4", "None", "80", "2026-01-01T00:00:00Z"])
            .prop_map(Json::from),
    ];
    leaf.prop_recursive(4, 32, 5, |inner| {
        let name = prop::sample::select(vec![
            "metadata",
            "spec",
            "status",
            "name",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
            "ports",
            "port",
            "type",
            "data",
            "stringData",
            "hosts",
            "http",
            "route",
            "containers",
            "template",
            "selector",
            "endpoints",
            "uid",
            "clusterIP",
            "clusterIPs",
            "rules",
            "matches",
            "listeners",
            "generateName",
            "deletionTimestamp",
            "managedFields",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Json::from),
            prop::collection::vec((name, inner), 0..5).prop_map(|fields| fields
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value))
                .collect::<Map<_, _>>()
                .into()),
        ]
    })
}

/// A value that a schema mostly allows, made from a list of numbers.
fn fitting(schema: &Schema, dice: &mut impl FnMut(u64) -> u64, depth: u32) -> Json {
    match &schema.shape {
        Shape::Object(fields) => {
            let mut out = Map::new();
            for (name, schema) in &fields.fields {
                let wanted = fields.required.contains(name) || (depth > 0 && dice(6) == 0);
                if wanted {
                    out.insert((*name).to_owned(), fitting(schema, dice, depth.saturating_sub(1)));
                }
            }
            Json::Object(out)
        }
        Shape::Map(values, _) => json!({"key": fitting(values, dice, depth.saturating_sub(1))}),
        Shape::List(items, kind, _) => {
            let count = if *kind == ListKind::Atomic { 1 + dice(2) } else { 1 };
            (0..count).map(|_| fitting(items, dice, depth.saturating_sub(1))).collect::<Vec<_>>().into()
        }
        Shape::Text { values, format, .. } => match (values.as_slice(), format) {
            ([], Some("date-time")) => "2026-01-01T00:00:00Z".into(),
            ([], Some("byte")) => "eA==".into(),
            ([], _) => ["a", "example.com", "10.0.0.1", "/", "1s"][usize::try_from(dice(5)).unwrap()].into(),
            (values, _) => values[usize::try_from(dice(values.len() as u64)).unwrap()].into(),
        },
        Shape::Integer { min, .. } => json!(min.unwrap_or(1)),
        Shape::Number { .. } => json!(1.5),
        Shape::Boolean => json!(dice(2) == 0),
        Shape::IntOrText => json!(80),
        Shape::Any => json!({"any": 1}),
    }
}

fn object_of(definition: &Definition, seed: u64) -> Json {
    let mut state = seed;
    let mut dice = |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    let mut object = Map::new();
    for (name, schema) in &definition.schema.fields().unwrap().fields {
        if !["apiVersion", "kind", "metadata"].contains(name) {
            object.insert((*name).to_owned(), fitting(schema, &mut dice, 4));
        }
    }
    support::whole(definition, &Json::Object(object))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) })]

    #[test]
    fn nothing_panics(sent in any_json(), stored in any_json(), kind in any::<prop::sample::Index>()) {
        let definition = &definitions()[kind.index(definitions().len())];
        let stored = support::whole(definition, &json!({"spec": stored, "metadata": {"labels": stored, "finalizers": stored}}));
        let inside = json!({"metadata": sent, "spec": sent, "data": sent, "status": sent});
        for object in [sent.clone(), inside] {
            let mut named = object.clone();
            fill_name(&mut named, 7);
            let mut review = support::review(definition, Operation::Update);
            let _ = admission::admit(&review, Decoded::from(named.clone()), None);
            let _ = admission::admit(&review, Decoded::from(named.clone()), Some(&stored));
            let _ = admission::check_apply(&review, Decoded::from(named.clone()));
            review.subresource = Subresource::Status;
            let _ = admission::admit(&review, Decoded::from(named.clone()), Some(&stored));
            let stamp = Stamp { now: Timestamp::from_unix(0), uid: "u" };
            prepare(Some(&stored), &mut named, &stamp);
            prepare(None, &mut named, &stamp);
            mark_deleted(&mut named, stamp.now, 1);
        }
    }

    #[test]
    fn bodies_never_panic(body in prop::collection::vec(any::<u8>(), 0..64), text in "[\\[\\]{}:,\"a-c0-9 \n&*-]{0,64}") {
        for content_type in [None, Some("application/yaml")] {
            let _ = decode(&body, content_type, &Limits::default());
            let _ = decode(text.as_bytes(), content_type, &Limits::default());
        }
    }

    #[test]
    fn a_value_decodes_to_itself(value in any_json()) {
        let decoded = decode(value.to_string().as_bytes(), None, &Limits::default()).unwrap();
        prop_assert_eq!(decoded, Decoded::from(value));
    }

    #[test]
    fn admitted_objects_are_admitted_unchanged(seed in any::<u64>(), kind in any::<prop::sample::Index>()) {
        let definition = &definitions()[kind.index(definitions().len())];
        let object = object_of(definition, seed);
        let Ok(once) = support::create(definition, object) else {
            return Ok(());
        };
        let twice = support::create(definition, once.object.clone()).unwrap();
        prop_assert_eq!(&twice.object, &once.object);
        let update = support::review(definition, Operation::Update);
        let third = admission::admit(&update, Decoded::from(once.object.clone()), Some(&once.object)).unwrap();
        prop_assert_eq!(&third.object, &once.object);
    }
}

#[test]
fn many_generated_objects_are_admitted() {
    // The property above is worth something only if there are such objects.
    let admitted = definitions()
        .iter()
        .filter(|definition| (0..50).any(|seed| support::create(definition, object_of(definition, seed)).is_ok()))
        .count();
    assert!(admitted * 2 > definitions().len(), "{admitted} of {}", definitions().len());
}
