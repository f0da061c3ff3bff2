//! Properties of all kinds: names, definitions, defaults and size limits.

use config::schema::{self, Schema, Shape};
use config::{Kind, ParseOptions, parse_documents};
use serde_json::{Value as Json, json};

fn object(kind: Kind, spec: &Json) -> String {
    let metadata = json!({"name": "a"});
    json!({"apiVersion": kind.api_version(), "kind": kind.name(), "metadata": metadata, "spec": spec}).to_string()
}

/// Sets the defaults of a schema, as an API server does.
fn fill(value: &mut Json, schema: &Schema) {
    match (&schema.shape, value) {
        (Shape::Object(fields), Json::Object(entries)) => {
            for (name, field) in &fields.fields {
                if let Some(default) = field.default.as_ref().filter(|_| !entries.contains_key(*name)) {
                    entries.insert((*name).to_owned(), default.clone());
                }
                if let Some(entry) = entries.get_mut(*name) {
                    fill(entry, field);
                }
            }
        }
        (Shape::List(items, ..), Json::Array(values)) => values.iter_mut().for_each(|value| fill(value, items)),
        (Shape::Map(values, _), Json::Object(entries)) => entries.values_mut().for_each(|value| fill(value, values)),
        _ => {}
    }
}

#[test]
fn finds_kinds_by_group_and_name() {
    for kind in Kind::ALL {
        assert_eq!(Kind::find(kind.group(), kind.name()), Some(*kind));
        let others = Kind::ALL.iter().filter(|other| other.to_string() == kind.to_string());
        assert_eq!(others.count(), 1, "{kind} is ambiguous");
    }
    let gateway = |group| Kind::find(group, "Gateway");
    assert_eq!(gateway("networking.istio.io"), Some(Kind::Gateway));
    assert_eq!(gateway("gateway.networking.k8s.io"), Some(Kind::KubeGateway));
}

#[test]
fn gateway_api_kinds_have_definitions_with_status() {
    let kinds = Kind::ALL.iter().filter(|kind| kind.group().contains(".networking.") && !kind.is_istio());
    for kind in kinds {
        let definition = schema::find_kind(kind.group(), kind.name()).expect("a definition");
        assert_eq!(definition.mesh, Some(*kind));
        // ReferenceGrant has no status.
        assert_eq!(definition.status, *kind != Kind::ReferenceGrant, "{kind}");
        let served: Vec<&str> = definition.versions.iter().map(|served| served.version).collect();
        assert_eq!(served, kind.versions(), "{kind}");
    }
}

/// The defaults of the types equal the defaults of the schemas.
#[test]
fn explicit_defaults_do_not_change_an_object() {
    let text = include_str!("data/gateway_api.yaml");
    let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
    assert!(parsed.objects.len() >= 15);
    for object in &parsed.objects {
        let mut filled: Json = serde_json::from_str(object.raw().expect("kept")).expect("JSON");
        let definition = schema::find_kind(object.kind().group(), object.kind().name()).expect("a definition");
        fill(&mut filled, &definition.schema);
        let again = parse_documents(filled.to_string().as_bytes(), "f", &ParseOptions::default());
        assert_eq!(again.objects.len(), 1, "{}: {:?}", object.key(), again.diagnostics);
        assert_eq!(again.objects[0].spec_json(), object.spec_json(), "{}", object.key());
    }
}

#[test]
fn total_number_of_matches_is_limited() {
    for (kind, one) in
        [(Kind::HttpRoute, json!({"path": {"value": "/a"}})), (Kind::GrpcRoute, json!({"method": {"service": "a"}}))]
    {
        for (last, good) in [(64, true), (63, true), (1, true), (65, false)] {
            let rule = |count: usize| json!({"matches": vec![&one; count]});
            let text = object(kind, &json!({"rules": [rule(64), rule(last)]}));
            let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
            assert_eq!(parsed.is_whole(), good, "{kind} {last}: {:?}", parsed.diagnostics);
        }
        let rules = json!({"rules": vec![json!({"matches": vec![&one; 64]}), json!({"matches": vec![&one; 64]}), json!({"matches": [one]})]});
        let parsed = parse_documents(object(kind, &rules).as_bytes(), "f", &ParseOptions::default());
        let said = parsed.diagnostics.iter().any(|d| d.path.to_string() == "spec.rules" && d.code == "validation-rule");
        assert!(said, "{kind}: {:?}", parsed.diagnostics);
    }
}
