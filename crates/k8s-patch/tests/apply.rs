//! Server-side apply: runs the scenarios of tests/data/apply.yaml step by step.

#![allow(clippy::unwrap_used)]

mod support;

use config::Timestamp;
use config::schema::Definition;
use k8s_patch::{Writer, apply, manager_name, track};
use serde_json::{Map, Value as Json, json};

fn whole(sent: &Json) -> Json {
    let mut object =
        json!({"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "n"}});
    for (name, value) in sent.as_object().unwrap() {
        if name == "metadata" {
            object["metadata"].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        } else {
            object[name] = value.clone();
        }
    }
    object
}

fn minute(minute: &Json) -> Timestamp {
    Timestamp::from_unix(1_800_000_000 + 60 * minute.as_i64().unwrap())
}

/// The managers as `NAME/OPERATION[/SUBRESOURCE]`, each with one of its fields.
fn managers(object: &Json, field: &str) -> Json {
    let mut out = Map::new();
    for entry in object["metadata"]["managedFields"].as_array().into_iter().flatten() {
        let mut name = format!("{}/{}", entry["manager"].as_str().unwrap(), entry["operation"].as_str().unwrap());
        if let Some(subresource) = entry["subresource"].as_str() {
            name.push('/');
            name.push_str(subresource);
        }
        out.insert(name, entry[field].clone());
    }
    Json::Object(out)
}

/// Applies a step to an object.
fn step(definition: &Definition, live: Option<&Json>, step: &Json) -> Result<Json, String> {
    let sent = whole(&step["object"]);
    let op = step["op"].as_str().unwrap();
    let writer = Writer {
        definition,
        version: "v1",
        manager: step["by"].as_str().unwrap(),
        subresource: op.starts_with("status ").then_some("status"),
        now: minute(&step["at"]),
    };
    match op.trim_start_matches("status ") {
        "apply" => apply(live, &sent, &writer, false).map_err(|error| error.to_string()),
        "force" => apply(live, &sent, &writer, true).map_err(|error| error.to_string()),
        "update" => {
            let mut new = sent;
            track(live, &mut new, &writer);
            Ok(new)
        }
        "default" => {
            let mut new = sent;
            new["metadata"]["managedFields"] = live.unwrap()["metadata"]["managedFields"].clone();
            Ok(new)
        }
        other => panic!("{other}"),
    }
}

#[test]
fn scenarios() {
    let definition = support::thing(false);
    for case in support::cases(include_str!("data/apply.yaml")) {
        let mut live: Option<Json> = None;
        for (number, expected) in case["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{}, step {}", case["name"], number + 1);
            match (step(&definition, live.as_ref(), expected), expected["error"].as_str()) {
                (Ok(object), None) => {
                    if !expected["spec"].is_null() {
                        assert_eq!(object["spec"], expected["spec"], "{place}");
                    }
                    if !expected["owners"].is_null() {
                        assert_eq!(managers(&object, "fieldsV1"), expected["owners"], "{place}");
                    }
                    for (manager, time) in expected["times"].as_object().into_iter().flatten() {
                        assert_eq!(managers(&object, "time")[manager], minute(time).to_string(), "{place}: {manager}");
                    }
                    live = Some(object);
                }
                (Err(error), Some(wanted)) => assert!(error.contains(wanted), "{place}: {error}"),
                (outcome, _) => panic!("{place}: {outcome:?}"),
            }
        }
    }
}

#[test]
fn the_number_of_update_managers_is_limited() {
    let definition = support::thing(false);
    let mut live: Option<Json> = None;
    for number in 0..30 {
        let notes: Map<String, Json> = (0..=number).map(|n| (format!("k{n}"), "v".into())).collect();
        let sent =
            json!({"by": format!("m{number}"), "op": "update", "at": number, "object": {"spec": {"notes": notes}}});
        live = Some(step(&definition, live.as_ref(), &sent).unwrap());
    }
    let owners = managers(&live.unwrap(), "fieldsV1");
    assert!(owners.as_object().unwrap().len() <= 10, "{owners}");
    let old = &owners["ancient-changes/Update"]["f:spec"]["f:notes"];
    assert!(old["f:k0"].is_object() && old["f:k15"].is_object() && old["f:k29"].is_null(), "{owners}");
    assert!(owners["m29/Update"]["f:spec"]["f:notes"]["f:k29"].is_object(), "{owners}");
}

#[test]
fn builtin_kinds_always_have_a_spec() {
    let definition = support::thing(true);
    let sent = json!({"by": "a", "op": "update", "at": 1, "object": {"spec": {"size": 1}, "metadata": {"labels": {"l": "1"}}}});
    let object = step(&definition, None, &sent).unwrap();
    let expected = json!({"f:metadata": {"f:labels": {".": {}, "f:l": {}}}, "f:spec": {"f:size": {}}});
    assert_eq!(managers(&object, "fieldsV1"), json!({"a/Update": expected}));
}

#[test]
fn manager_names_come_from_the_parameter_or_the_user_agent() {
    assert_eq!(manager_name(Some("me"), Some("kubectl/v1")).unwrap(), "me");
    assert_eq!(manager_name(None, Some("kubectl/v1.36 (linux)")).unwrap(), "kubectl");
    assert_eq!(manager_name(Some(""), Some("a\u{7}b/1")).unwrap(), "ab");
    assert_eq!(manager_name(None, Some(&"é".repeat(100))).unwrap().len(), 128);
    assert!(manager_name(Some(&"a".repeat(129)), None).is_err());
    assert!(manager_name(Some("a\nb"), None).is_err());
}
