//! Objects of tests/data/objects.yaml, and the rules of all kinds.
#![allow(clippy::unwrap_used)]

mod support;

use admission::{Decoded, FieldValidation, Operation, Reason, Rejection, Subresource};
use config::rules::Rules;
use config::schema::{Schema, Shape, definitions};
use serde_json::{Value as Json, json};

#[test]
fn objects() {
    let mut failures = Vec::new();
    for case in support::cases(include_str!("data/objects.yaml")) {
        let definition = support::kind(case["of"].as_str().unwrap());
        let old = case.get("old").map(|old| support::whole(definition, old));
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let mut review = support::review(definition, operation);
        if case["strict"] == true {
            review.field_validation = FieldValidation::Strict;
        }
        if case["status"] == true {
            review.subresource = Subresource::Status;
        }
        let object = support::whole(definition, &case["object"]);
        let outcome = admission::admit(&review, Decoded::from(object), old.as_ref());
        if let Err(why) = expect(&case, outcome.map(|admitted| (admitted.object, admitted.warnings))) {
            failures.push(format!("{}: {why}", case["name"]));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Whether the outcome is as the case says.
fn expect(case: &Json, outcome: Result<(Json, Vec<String>), Rejection>) -> Result<(), String> {
    match outcome {
        Ok((object, warnings)) => {
            let Some(result) = case.get("result") else {
                return Err(format!("admitted: {object}"));
            };
            if !support::contains(&object, result) {
                return Err(format!("other object: {object}"));
            }
            let expected = case.get("warnings").cloned().unwrap_or_else(|| json!(warnings));
            if json!(warnings) != expected { Err(format!("other warnings: {warnings:?}")) } else { Ok(()) }
        }
        Err(Rejection::BadRequest(message)) => match case["bad"].as_str() {
            Some(expected) if message.contains(expected) => Ok(()),
            _ => Err(message),
        },
        Err(Rejection::Invalid(causes)) => {
            let texts: Vec<String> = causes
                .iter()
                .map(|cause| format!("{} {}: {}", cause.field, cause.reason.name(), cause.message))
                .collect();
            let Some(expected) = case["causes"].as_array() else {
                return Err(format!("refused: {texts:#?}"));
            };
            let mut left = texts.clone();
            for wanted in expected.iter().map(|wanted| wanted.as_str().unwrap()) {
                // FIELD REASON, and what the message contains.
                let (head, part) = wanted.split_once(": ").unwrap_or((wanted, ""));
                let fits = |text: &String| text.starts_with(&format!("{head}: ")) && text.contains(part);
                let Some(position) = left.iter().position(fits) else {
                    return Err(format!("no {wanted} in {texts:#?}"));
                };
                left.remove(position);
            }
            if left.is_empty() { Ok(()) } else { Err(format!("too many: {left:#?}")) }
        }
    }
}

fn patterns(schema: &Schema, out: &mut Vec<&'static str>) {
    match &schema.shape {
        Shape::Text { pattern, .. } => out.extend(*pattern),
        Shape::Object(fields) => fields.fields.iter().for_each(|(_, field)| patterns(field, out)),
        Shape::Map(inner, _) | Shape::List(inner, ..) => patterns(inner, out),
        _ => {}
    }
}

#[test]
fn all_rules_and_patterns_compile() {
    for definition in definitions() {
        let mut broken = Vec::new();
        patterns(&definition.schema, &mut broken);
        broken.retain(|pattern| regex::Regex::new(pattern).is_err());
        let rules = Rules::of(&definition.schema);
        broken.extend(rules.invalid());
        assert!(broken.is_empty(), "{}: {broken:#?}", definition.kind);
    }
}

#[test]
fn messages_name_the_object() {
    let services = support::kind("/services");
    let object = support::whole(services, &json!({"spec": {}}));
    let rejection = support::create(services, object).unwrap_err();
    assert_eq!(rejection.message(services, "x"), "Service \"x\" is invalid: spec.ports: Required value");
    let routes = support::kind("networking.istio.io/virtualservices");
    let object = support::whole(routes, &json!({"spec": {"hosts": 1, "gateways": 2}}));
    let rejection = support::create(routes, object).unwrap_err();
    let message = rejection.message(routes, "x");
    assert!(message.starts_with("VirtualService.networking.istio.io \"x\" is invalid: [spec."), "{message}");
    assert_eq!(Reason::TypeInvalid.name(), "FieldValueTypeInvalid");
}

#[test]
fn an_applied_configuration_is_checked_but_not_filled_in() {
    let services = support::kind("/services");
    let mut review = support::review(services, Operation::Update);
    let sent =
        json!({"apiVersion": "v1", "kind": "Service", "spec": {"ports": [{"port": 80, "prot": 1, "name": null}]}});
    let (object, warnings) = admission::check_apply(&review, Decoded::from(sent.clone())).unwrap();
    assert_eq!(object["spec"], json!({"ports": [{"port": 80}]}));
    assert_eq!(warnings, ["unknown field \"spec.ports[0].prot\""]);
    review.field_validation = FieldValidation::Strict;
    let doubled = Decoded { duplicates: vec!["spec.ports".into()], object: sent };
    let Err(Rejection::BadRequest(message)) = admission::check_apply(&review, doubled) else {
        panic!("not refused");
    };
    let expected = "strict decoding error: duplicate field \"spec.ports\", unknown field \"spec.ports[0].prot\"";
    assert!(message.ends_with(expected), "{message}");
}
