//! Parsed objects: metadata, defaults and accessors.

use std::sync::Arc;
use std::time::Duration;

use config::istio::*;
use config::mesh::{LabelSelector, LabelSelectorRequirement, ProxyClusterName};
use config::{AnyObject, Kind, MeshConfig, Meta, Object, ObjectKey, ParseOptions, Resource, Timestamp, core};
use names::Protocol;

/// Parses a text with exactly one object.
fn read<S: Resource>(text: &str) -> Arc<Object<S>> {
    let parsed = config::parse_documents(text.as_bytes(), "dir/a.yaml", &ParseOptions::default());
    let [object] = &parsed.objects[..] else { panic!("{:?}", parsed.diagnostics) };
    S::from_any(object).expect("the kind").clone()
}

#[test]
fn parses_metadata_and_origin() {
    let object = read::<core::Pod>(
        "# comment\napiVersion: v1\nkind: Pod\nmetadata:\n  name: a-1-x\n  namespace: shop\n  generateName: a-1-\n  \
         labels: {app: a, empty: }\n  annotations: {b: \"1\"}\n  uid: u\n  resourceVersion: \"7\"\n  generation: 3\n  \
         creationTimestamp: 2026-08-02T10:00:00Z\n  ownerReferences:\n  - {kind: Other, name: o}\n  \
         - {kind: ReplicaSet, name: a-1, controller: true}\n",
    );
    let meta = &object.meta;
    assert_eq!(meta.key(), ObjectKey::new(Kind::Pod, "shop", "a-1-x"));
    assert_eq!(meta.key().to_string(), "Pod shop/a-1-x");
    assert_eq!((meta.label("app"), meta.label("empty"), meta.label("x")), (Some("a"), Some(""), None));
    assert_eq!((meta.annotation("b"), &*meta.uid, &*meta.resource_version), (Some("1"), "u", "7"));
    assert_eq!((meta.generation, &*meta.generate_name), (3, "a-1-"));
    assert_eq!(meta.creation_timestamp, Timestamp::parse("2026-08-02T10:00:00Z"));
    assert_eq!(meta.owner.as_ref().map(|o| (&*o.kind, &*o.name)), Some(("ReplicaSet", "a-1")));
    let origin = meta.origin.as_ref().expect("a file");
    assert_eq!((&*origin.file, origin.line), ("dir/a.yaml", 2));
}

#[test]
fn a_config_map_of_a_server_is_never_the_mesh_configuration() {
    // Everyone who may write to any namespace could change the settings of the mesh.
    let map = serde_json::json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "istio", "namespace": "shop"},
        "data": {"mesh": "trustDomain: theirs"},
    });
    let read = config::read_object(&map, &ParseOptions::default());
    assert_eq!(read.object.map(|object| object.key()), Some(ObjectKey::new(Kind::ConfigMap, "shop", "istio")));
    let parsed = config::parse_documents(map.to_string().as_bytes(), "a.yaml", &ParseOptions::default());
    assert_eq!(parsed.objects[0].key(), MeshConfig::key(), "in a file it is");
}

#[test]
fn sorts_by_age_then_name() {
    let meta = |name: &str, seconds: Option<i64>| Meta {
        creation_timestamp: seconds.map(Timestamp::from_unix),
        ..Meta::new(Kind::Sidecar, "ns", name)
    };
    let mut all = [meta("b", Some(2)), meta("a", Some(2)), meta("z", Some(1)), meta("m", None), meta("c", None)];
    all.sort_by(Meta::by_age);
    assert_eq!(all.map(|m| m.name.to_string()), ["c", "m", "z", "a", "b"]);
}

#[test]
fn position_in_file_does_not_affect_equality() {
    let text =
        "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {name: a}\nspec: {address: 10.0.0.1}\n";
    let (here, there) = (read::<WorkloadEntry>(text), read::<WorkloadEntry>(&format!("\n\n{text}")));
    assert_eq!(here, there);
    assert_ne!(here, read::<WorkloadEntry>(&text.replace("10.0.0.1", "10.0.0.2")));
}

#[test]
fn keeps_raw_json_of_istio_kinds() {
    let object = read::<WorkloadEntry>(
        "apiVersion: networking.istio.io/v1beta1\nkind: WorkloadEntry\nmetadata: {name: a, managedFields: [{a: b}]}\n\
         spec: {address: 10.0.0.1, unknown: [1, 0x10, yes, 1.5, ~]}\nstatus: {a: b}\n",
    );
    let raw: serde_json::Value = serde_json::from_str(object.raw.as_deref().expect("kept")).expect("JSON");
    assert_eq!(
        raw,
        serde_json::json!({
            "apiVersion": "networking.istio.io/v1beta1", "kind": "WorkloadEntry", "metadata": {"name": "a"},
            "spec": {"address": "10.0.0.1", "unknown": [1, 16, true, 1.5, null]},
        })
    );
    let any = AnyObject::WorkloadEntry(object);
    assert_eq!(any.spec_json(), serde_json::json!({"address": "10.0.0.1"}));
    assert!(read::<core::Namespace>("{apiVersion: v1, kind: Namespace, metadata: {name: a}}").raw.is_none());
}

#[test]
fn route_has_one_action() {
    let object = read::<VirtualService>(
        "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a}\nspec:\n  hosts: [a]\n  http:\n  \
         - {match: [{uri: {exact: /a}, headers: {x: {}}}], redirect: {uri: /b, port: 8080}}\n  \
         - {match: [{uri: {prefix: /c}}], directResponse: {status: 503, body: {bytes: aGk=}}}\n  \
         - {route: [{destination: {host: a, port: {number: 80}}}], timeout: 1m, retries: {attempts: 2, backoff: 5ms}}\n",
    );
    let spec = &object.spec;
    assert!(spec.applies_to_mesh() && !spec.is_delegate());
    assert_eq!(spec.http[0].matches[0].uri, Some(StringMatch::Exact("/a".into())));
    assert_eq!(spec.http[0].matches[0].headers.get("x"), Some(&StringMatch::Present));
    assert!(matches!(spec.http[0].action(), HttpAction::Redirect(r) if r.port == Some(RedirectPort::Port(8080))));
    let HttpAction::DirectResponse(response) = spec.http[1].action() else { panic!() };
    assert!(matches!(&response.body, Some(HttpBody::Bytes(bytes)) if **bytes == *b"hi"));
    let HttpAction::Route([only]) = spec.http[2].action() else { panic!() };
    assert_eq!(only.destination.port, Some(PortSelector { number: 80 }));
    assert_eq!(spec.http[2].timeout, Some(Duration::from_secs(60)));
}

#[test]
fn parses_ports_and_addresses() {
    let service = read::<core::Service>(
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec:\n  clusterIP: 10.0.0.1\n  ports:\n  \
         - {name: http-a, port: 80, targetPort: web}\n  - {name: b, port: 3306}\n  - {name: c, port: 53, protocol: UDP}\n",
    );
    let kinds: Vec<Protocol> = service.spec.ports.iter().map(core::ServicePort::kind).collect();
    assert_eq!(kinds, [Protocol::Http, Protocol::Tcp, Protocol::Udp]);
    assert_eq!(service.spec.ports[0].target_port, Some(core::TargetPort::Name("web".into())));
    assert_eq!(service.spec.virtual_addresses().map(|a| &**a).collect::<Vec<_>>(), ["10.0.0.1"]);
    assert!(!service.spec.is_headless());

    let headless = read::<core::Service>(
        "{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}",
    );
    assert!(headless.spec.is_headless() && headless.spec.virtual_addresses().next().is_none());

    let pod = read::<core::Pod>(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  \
         - {name: a, ports: [{name: web, containerPort: 8080}, {name: dns, containerPort: 53, protocol: UDP}]}\n\
         status: {phase: Running, podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: \"fd00::1\"}], \
         conditions: [{type: Ready, status: \"True\"}]}\n",
    );
    assert_eq!((pod.spec.named_port("web"), pod.spec.named_port("dns")), (Some(8080), None));
    assert_eq!(pod.spec.addresses().map(|a| &**a).collect::<Vec<_>>(), ["10.0.0.1", "fd00::1"]);
    assert_eq!(&*pod.spec.service_account(), "default");
    assert!(pod.spec.is_ready() && !pod.spec.is_terminal());

    let slice = read::<core::EndpointSlice>(
        "{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: s}, addressType: IPv4, \
         endpoints: [{addresses: [10.0.0.1]}, {addresses: [10.0.0.2], conditions: {ready: false, serving: true}}]}",
    );
    let ready: Vec<bool> = slice.spec.endpoints.iter().map(|e| e.conditions.is_ready()).collect();
    assert_eq!((ready, slice.spec.endpoints[1].conditions.is_serving()), (vec![true, false], true));
}

#[test]
fn service_entry_protocol_ignores_port_name() {
    let port = |protocol: &str, name: &str| ServicePort {
        number: 80,
        protocol: protocol.into(),
        name: name.into(),
        target_port: 0,
    };
    assert_eq!(port("grpc-web", "a").kind(), Protocol::GrpcWeb);
    assert_eq!(port("", "http").kind(), Protocol::Unsupported);
    assert_eq!(port("", "http").target(), 80);
    assert_eq!(ServicePort { target_port: 8080, ..port("", "a") }.target(), 8080);
}

#[test]
fn mesh_config_has_istio_defaults() {
    let mesh = MeshConfig::default();
    assert_eq!((mesh.proxy_listen_port, mesh.proxy_inbound_listen_port, mesh.proxy_http_port), (15001, 15006, 0));
    assert_eq!((mesh.connect_timeout, mesh.dns_refresh_rate), (Duration::from_secs(10), Duration::from_secs(60)));
    assert!(mesh.protocol_detection_timeout.is_zero() && mesh.enable_auto_mtls && mesh.enable_tracing);
    assert_eq!((&*mesh.root_namespace, &*mesh.trust_domain), ("istio-system", "cluster.local"));
    assert_eq!(mesh.outbound_traffic_policy.mode, OutboundMode::AllowAny);
    assert_eq!(mesh.default_service_export_to, ["*".into()]);
    assert_eq!(mesh.default_config.status_port, 15020);
    assert_eq!(mesh.default_config.cluster_name, Some(ProxyClusterName::ServiceCluster("istio-proxy".into())));

    let written = read::<MeshConfig>(
        "{apiVersion: mesh.istio.io/v1alpha1, kind: MeshConfig, spec: {outboundTrafficPolicy: {}, defaultConfig: {concurrency: 2}}}",
    );
    assert_eq!(written.meta.key(), MeshConfig::key());
    assert_eq!(written.spec.outbound_traffic_policy.mode, OutboundMode::RegistryOnly, "a message replaces its default");
    assert_eq!((written.spec.default_config.concurrency, written.spec.default_config.status_port), (Some(2), 15020));
}

#[test]
fn matches_label_selectors() {
    let labels = [("app", "a"), ("tier", "web")].map(|(k, v)| (Arc::from(k), Arc::from(v))).into();
    let condition = |key: &str, operator: &str, values: &[&str]| LabelSelector {
        match_expressions: vec![LabelSelectorRequirement {
            key: key.into(),
            operator: operator.into(),
            values: values.iter().map(|v| Arc::from(*v)).collect(),
        }],
        ..LabelSelector::default()
    };
    for (key, operator, values, want) in [
        ("app", "In", &["a", "b"][..], true),
        ("app", "In", &["b"], false),
        ("app", "NotIn", &["a"], false),
        ("none", "NotIn", &["a"], true),
        ("none", "Exists", &[], false),
        ("none", "DoesNotExist", &[], true),
        ("app", "Resembles", &["a"], false),
    ] {
        assert_eq!(condition(key, operator, values).matches(&labels), want, "{key} {operator} {values:?}");
    }
    assert!(LabelSelector::default().matches(&labels));
}

#[test]
fn parses_mesh_networks_from_text_and_object() {
    let text = "networks: {west: {endpoints: [{fromRegistry: w}, {fromCidr: 10.0.0.0/8}], gateways: [{address: 1.2.3.4, port: 15443}]}}";
    let (networks, said) = config::parse_mesh_networks(text.as_bytes(), "f", &ParseOptions::default());
    assert!(said.is_empty(), "{said:?}");
    let object = format!("{{apiVersion: mesh.istio.io/v1alpha1, kind: MeshNetworks, spec: {{{text}}}}}");
    let read = read::<config::MeshNetworks>(&object);
    assert_eq!(read.meta.key(), config::MeshNetworks::key());
    assert_eq!(Some(&read.spec), networks.as_ref());
    let (none, said) = config::parse_mesh_networks(b"", "f", &ParseOptions::default());
    assert!(none.is_some_and(|n| n.networks.is_empty()) && said.is_empty());
    for bad in [
        "networks: {a: {endpoints: [{}]}}",
        "networks: {a: {endpoints: [{fromCidr: nowhere}]}}",
        "networks: {a: {gateways: [{address: 1.2.3.4}]}}",
        "networks: {a: {gateways: [{port: 15443}]}}",
    ] {
        let (networks, said) = config::parse_mesh_networks(bad.as_bytes(), "f", &ParseOptions::default());
        assert!(networks.is_none() && said[0].path.to_string().starts_with("networks"), "{bad}: {said:?}");
    }
}
