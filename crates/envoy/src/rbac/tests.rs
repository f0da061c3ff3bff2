//! Encoded conditions.

use model::authorization::{Condition, Permission, Principal, Text};
use protos::{Message, Name};
use serde_json::{Value, json};

use super::conditions;

fn permission(all: &[Condition<Permission>]) -> Value {
    json_of(&conditions::permission(all))
}

fn json_of<M: Message + Name>(message: &M) -> Value {
    let packed = protos::any(message);
    protos::plain_json(&packed.type_url, &packed.value).unwrap()
}

fn one<T>(alternative: T) -> Condition<T> {
    Condition { negated: false, any: vec![alternative] }
}

#[test]
fn conditions_are_joined() {
    assert_eq!(permission(&[]), json!({"any": true}));
    let port = |port: u16| json!({"destinationPort": port});
    assert_eq!(permission(&[one(Permission::Port(80))]), port(80));
    let several = Condition { negated: true, any: vec![Permission::Port(80), Permission::Port(81)] };
    let not = json!({"notRule": {"orRules": {"rules": [port(80), port(81)]}}});
    assert_eq!(permission(std::slice::from_ref(&several)), not);
    let both = json!({"andRules": {"rules": [port(79), not]}});
    assert_eq!(permission(&[one(Permission::Port(79)), several]), both);
}

#[test]
fn hosts_have_no_case() {
    let host = permission(&[one(Permission::Host(Text::Exact("a.com".into())))]);
    assert_eq!(host["header"], json!({"name": ":authority", "stringMatch": {"exact": "a.com", "ignoreCase": true}}));
    let path = permission(&[one(Permission::Path(Text::Prefix("/a".into())))]);
    assert_eq!(path["urlPath"], json!({"path": {"prefix": "/a"}}));
}

#[test]
fn nothing_but_a_port_is_after_a_host() {
    let of = |text| permission(&[one(Permission::HostWithPort(text))]);
    let both = |start, form: &str| {
        let start = json!({"header": {"name": ":authority", "stringMatch": start}});
        let form = json!({"header": {"name": ":authority", "stringMatch": {"safeRegex": {"regex": form}}}});
        json!({"andRules": {"rules": [start, form]}})
    };
    let name = of(Text::Exact("a.com".into()));
    assert_eq!(name, both(json!({"prefix": "a.com:", "ignoreCase": true}), "[^:]*:[0-9]*"));
    let below = of(Text::Suffix(".a.com".into()));
    assert_eq!(below, both(json!({"contains": ".a.com:", "ignoreCase": true}), "[^:]*:[0-9]*"));
    let address = of(Text::Exact("[fd00::1]".into()));
    assert_eq!(address, both(json!({"prefix": "[fd00::1]:", "ignoreCase": true}), r"\[[^\]]*\]:[0-9]*"));
}

#[test]
fn the_texts_of_a_pattern_are_quoted() {
    let identity = Principal::Identity(vec![Text::Segments(["spiffe://".into(), ".y+(z)/".into()].into())]);
    let found = json_of(&conditions::principal(&[one(identity)]));
    let expected = json!({"principalName": {"safeRegex": {"regex": r"spiffe://[^/]*\.y\+\(z\)/.*"}}});
    assert_eq!(found["authenticated"], expected);
}

#[test]
fn claims_are_texts_or_lists_of_them() {
    let claim = Principal::Claim(vec!["a".into(), "b".into()], Text::Exact("c".into()));
    let found = json_of(&conditions::principal(&[one(claim)]));
    let text = json!({"stringMatch": {"exact": "c"}});
    let expected = json!({
        "filter": "envoy.filters.http.jwt_authn",
        "path": [{"key": "payload"}, {"key": "a"}, {"key": "b"}],
        "value": {"orMatch": {"valueMatchers": [{"listMatch": {"oneOf": text}}, text]}},
    });
    assert_eq!(found["metadata"], expected);
}
