//! Patches of tests/data with their results or errors.

mod support;

use config::schema::Schema;
use k8s_patch::{Error, Limits, json_patch, merge_patch, strategic_merge_patch};
use serde_json::{Value as Json, json};

fn run(text: &str, patch: impl Fn(&Json, &Json) -> Result<Json, Error>) {
    for case in support::cases(text) {
        let name = &case["name"];
        match (patch(&case["document"], &case["patch"]), case.get("result"), case.get("error").and_then(Json::as_str)) {
            (Ok(result), Some(expected), None) => assert_eq!(result, *expected, "{name}"),
            (Err(error), None, Some(expected)) => {
                assert!(error.to_string().contains(expected), "{name}: {error} has no {expected:?}");
            }
            (outcome, ..) => panic!("{name}: {outcome:?}"),
        }
    }
}

#[test]
fn json_patches() {
    run(include_str!("data/json.yaml"), |document, patch| json_patch(document, patch, &Limits::default()));
}

#[test]
fn merge_patches() {
    run(include_str!("data/merge.yaml"), |document, patch| merge_patch(document, patch, &Limits::default()));
}

#[test]
fn strategic_merge_patches() {
    let thing = support::thing(true);
    let spec: &Schema = thing.schema.field("spec").unwrap();
    run(include_str!("data/strategic.yaml"), |document, patch| {
        strategic_merge_patch(document, patch, spec, &Limits::default())
    });
}

#[test]
fn limits_are_enforced() {
    let limits = Limits { operations: 3, depth: 10, bytes: 1000 };
    let too_large = |outcome: Result<Json, Error>| matches!(outcome, Err(Error::TooLarge(_)));
    let add = json!({"op": "add", "path": "/a", "value": 1});
    assert!(json_patch(&json!({}), &json!([add, add, add]), &limits).is_ok());
    let many = json_patch(&json!({}), &json!([add, add, add, add]), &limits);
    assert_eq!(many.unwrap_err().to_string(), "The allowed maximum operations in a JSON patch is 3, got 4");
    // Few copies, each of which contains the previous ones.
    let limits = Limits { operations: 100, ..limits };
    let doubling: Vec<Json> = (0..40).map(|n| json!({"op": "copy", "from": "", "path": format!("/a{n}")})).collect();
    assert!(too_large(json_patch(&json!({"a": "0123456789"}), &Json::from(doubling), &limits)));
    // Moves that nest deeper and deeper.
    let deeper: Vec<Json> = (0..40)
        .flat_map(|n| {
            let (from, to) = (format!("/a{n}"), format!("/a{}", n + 1));
            [
                json!({"op": "add", "path": to, "value": {}}),
                json!({"op": "move", "from": from, "path": format!("{to}/b")}),
            ]
        })
        .collect();
    assert!(too_large(json_patch(&json!({"a0": {}}), &Json::from(deeper), &limits)));
    let deep = (0..20).fold(json!(1), |inner, _| json!({"a": inner}));
    assert!(too_large(merge_patch(&json!({}), &deep, &limits)));
    assert!(too_large(strategic_merge_patch(&json!({}), &deep, &support::thing(true).schema, &limits)));
    let long = json!({"a": "x".repeat(2000)});
    assert!(too_large(merge_patch(&json!({}), &long, &limits)));
    let path = "/a".repeat(20);
    assert!(too_large(json_patch(&json!({}), &json!([{"op": "add", "path": path, "value": 1}]), &limits)));
}
