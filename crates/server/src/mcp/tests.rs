//! Objects survive encoding, and versions depend on the content only.

use config::ParseOptions;
use protos::envoy::service::discovery::v3::DiscoveryResponse;
use protos::istio::mcp::v1alpha1::Resource;
use protos::{Message as _, plain_json};
use serde_json::json;

use super::*;

/// A change set that adds and deletes these objects.
fn change(objects: &[AnyObject], deletes: &[ObjectKey]) -> ChangeSet {
    let mut change: ChangeSet = objects.iter().cloned().collect();
    change.deletes.extend(deletes.iter().cloned());
    change
}

const ENTRY: &str = "networking.istio.io/v1/ServiceEntry";

fn object(text: &str) -> AnyObject {
    let parsed = config::parse_documents(text.as_bytes(), "test", &ParseOptions::default());
    assert!(parsed.is_whole(), "{:?}", parsed.diagnostics);
    parsed.objects.into_iter().next().expect("an object")
}

fn entry(name: &str, host: &str) -> AnyObject {
    object(&format!(
        "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: default, labels: {{app: a}}}}\nspec:\n  hosts: [{host}]\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n  resolution: DNS\n"
    ))
}

fn resources_of(answer: &Answer) -> Vec<Resource> {
    let response = DiscoveryResponse::decode(answer.resources.clone()).expect("a response");
    let resources = response.resources.into_iter();
    resources.map(|any| any.decode_as::<Resource>().expect("a resource").expect("whole")).collect()
}

#[test]
fn objects_are_encoded_as_istios_messages() {
    let configuration = Configuration::default();
    configuration.apply(&change(&[entry("b", "b.com"), entry("a", "a.com")], &[]));
    let answer = configuration.answer(ENTRY);
    let all = resources_of(&answer);
    let meta = all[0].metadata.clone().expect("metadata");
    assert_eq!((meta.name.as_str(), meta.labels["app"].as_str(), meta.version.is_empty()), ("default/a", "a", false));
    let body = all[0].body.clone().expect("a body");
    assert_eq!(body.type_url, "type.googleapis.com/istio.networking.v1alpha3.ServiceEntry");
    let spec = plain_json(&body.type_url, &body.value).expect("a spec");
    assert_eq!(
        spec,
        json!({"hosts": ["a.com"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"})
    );
    // All versions of a kind name it; unknown types are empty.
    assert_eq!(configuration.answer("networking.istio.io/v1alpha3/ServiceEntry").version, answer.version);
    for nothing in ["networking.istio.io/v9/ServiceEntry", "core/v1/Service", "a/b/C", "x", ""] {
        assert!(configuration.answer(nothing).resources.is_empty(), "{nothing}");
    }
}

#[test]
fn kinds_without_a_message_are_encoded_as_structs() {
    let configuration = Configuration::default();
    let class = object(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: g}\nspec: {controllerName: istio.io/gateway-controller}\n",
    );
    configuration.apply(&change(&[class], &[]));
    let all = resources_of(&configuration.answer("gateway.networking.k8s.io/v1/GatewayClass"));
    let body = all[0].body.clone().expect("a body");
    assert_eq!(body.type_url, "type.googleapis.com/google.protobuf.Struct");
    assert_eq!(all[0].metadata.as_ref().expect("metadata").name, "/g");
}

#[test]
fn the_version_depends_on_the_content_only() {
    let (one, two) = (Configuration::default(), Configuration::default());
    one.apply(&change(&[entry("a", "a.com"), entry("b", "b.com")], &[]));
    two.apply(&change(&[entry("b", "x.com")], &[]));
    assert_ne!(one.answer(ENTRY).version, two.answer(ENTRY).version);
    two.apply(&change(&[entry("b", "b.com"), entry("a", "a.com")], &[]));
    assert_eq!(one.answer(ENTRY).version, two.answer(ENTRY).version);
    one.apply(&change(&[], &[entry("a", "a.com").key()]));
    assert_eq!(resources_of(&one.answer(ENTRY)).len(), 1);
    assert_eq!(one.answer(ENTRY).version, one.answer(ENTRY).version);
}

#[test]
fn mesh_config_is_sent_as_a_single_message() {
    let configuration = Configuration::default();
    configuration.set_mesh(MeshConfig::default());
    let answer = configuration.answer("core/v1alpha1/MeshConfig");
    let response = DiscoveryResponse::decode(answer.resources).expect("a response");
    assert_eq!(response.resources[0].type_url, "type.googleapis.com/istio.mesh.v1alpha1.MeshConfig");
    let config = plain_json(&response.resources[0].type_url, &response.resources[0].value).expect("settings");
    assert_eq!(config["proxyListenPort"], 15001);
}
