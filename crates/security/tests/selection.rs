//! Which policies select a workload, asked as a rule asks.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use config::istio::{AuthorizationPolicy, RequestAuthentication};
use config::{ParseOptions, parse_documents};
use flow::{Batch, Engine, Reads, Relation, Rule};
use model::audience::PolicyIds;
use model::proxy::Labels;
use registry::inputs::{MeshDefaults, MeshSettings};
use registry::objects;
use security::selection;

/// The policies of one workload.
struct Selected;

type Workload = (Arc<str>, Labels);

impl Relation for Selected {
    const NAME: &'static str = "policies of the test";
    type Key = Workload;
    type Row = [PolicyIds; 2];
}

impl Rule for Selected {
    fn derive(cx: &Reads<'_>, (namespace, labels): &Workload) -> Option<[PolicyIds; 2]> {
        let root = "root".into();
        Some([
            selection::of_workload::<AuthorizationPolicy>(cx, &root, namespace, labels),
            selection::of_workload::<RequestAuthentication>(cx, &root, namespace, labels),
        ])
    }
}

fn engine() -> Engine {
    let mut builder = Engine::builder();
    registry::register(&mut builder);
    security::register(&mut builder);
    builder.view::<Selected>();
    let mut engine = builder.build();
    let mut batch = Batch::new();
    let settings = MeshSettings::default();
    batch.put::<MeshDefaults>((), Arc::new(settings));
    engine.commit(batch);
    engine
}

/// Commits policies `namespace/name: spec`.
fn put(engine: &mut Engine, kind: &str, policies: &[(&str, &str)]) {
    let mut batch = Batch::new();
    for (id, spec) in policies {
        let (namespace, name) = id.split_once('/').unwrap();
        let meta = format!("{{name: {name}, namespace: {namespace}}}");
        let text = format!("{{apiVersion: security.istio.io/v1, kind: {kind}, metadata: {meta}, spec: {spec}}}");
        let parsed = parse_documents(text.as_bytes(), "test", &ParseOptions::default());
        objects::put(&mut batch, parsed.objects.into_iter().next().unwrap());
    }
    engine.commit(batch);
}

fn workload(namespace: &str, labels: &[(&str, &str)]) -> Workload {
    (namespace.into(), labels.iter().map(|(name, value)| (Arc::from(*name), Arc::from(*value))).collect())
}

fn selected(engine: &mut Engine, workload: &Workload) -> [String; 2] {
    let cell = engine.subscribe::<Selected>(workload.clone());
    let row = engine.row::<Selected>(cell).unwrap();
    [0, 1].map(|at| row[at].iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
}

const WEB: &str = "{selector: {matchLabels: {app: web}}}";

#[test]
fn of_the_mesh_of_the_namespace_and_by_labels() {
    let mut engine = engine();
    let (web, other) = (workload("shop", &[("app", "web"), ("v", "1")]), workload("shop", &[("app", "other")]));
    put(&mut engine, "AuthorizationPolicy", &[("root/all", "{}"), ("shop/all", "{}"), ("else/all", "{}")]);
    put(&mut engine, "AuthorizationPolicy", &[("root/web", WEB), ("shop/web", WEB), ("else/web", WEB)]);
    let both = "{selector: {matchLabels: {app: web, v: '2'}}}";
    put(&mut engine, "AuthorizationPolicy", &[("shop/both", both), ("shop/empty", "{selector: {}}")]);
    put(&mut engine, "RequestAuthentication", &[("shop/jwt", WEB)]);
    let found = selected(&mut engine, &web);
    assert_eq!(found, ["root/all root/web shop/all shop/empty shop/web", "shop/jwt"]);
    assert_eq!(selected(&mut engine, &other), ["root/all shop/all shop/empty", ""]);
    assert_eq!(selected(&mut engine, &workload("root", &[])), ["root/all", ""]);
}

#[test]
fn attached_policies_select_the_proxies_of_their_gateway_only() {
    let mut engine = engine();
    let target = |group: &str, kind: &str| format!("{{targetRefs: [{{group: {group}, kind: {kind}, name: edge}}]}}");
    let gateway = target("gateway.networking.k8s.io", "Gateway");
    let old = gateway.replace("targetRefs: [", "targetRef: ").replace(']', "");
    let service =
        "{targetRefs: [{kind: Service, name: edge}, {group: networking.istio.io, kind: ServiceEntry, name: edge}]}";
    let class = target("gateway.networking.k8s.io", "GatewayClass");
    let policies = [
        ("shop/gateway", &*gateway),
        ("shop/old", &old),
        ("shop/service", service),
        ("shop/selecting", "{selector: {matchLabels: {app: edge}}}"),
        ("root/gateway", &gateway),
        ("root/class", &class),
    ];
    put(&mut engine, "AuthorizationPolicy", &policies);
    let edge = workload("shop", &[("app", "edge"), ("gateway.networking.k8s.io/gateway-name", "edge")]);
    assert_eq!(selected(&mut engine, &edge), ["shop/gateway shop/old shop/selecting", ""]);
    let sidecar = workload("shop", &[("app", "edge")]);
    assert_eq!(selected(&mut engine, &sidecar), ["shop/selecting", ""]);
}

#[test]
fn a_workload_reads_candidates_and_no_rules() {
    let mut engine = engine();
    let (web, other) = (workload("shop", &[("app", "web")]), workload("shop", &[("app", "other")]));
    put(&mut engine, "AuthorizationPolicy", &[("shop/web", WEB)]);
    selected(&mut engine, &web);
    selected(&mut engine, &other);
    let runs = |engine: &Engine| engine.stats().relation(Selected::NAME).unwrap().runs;
    let before = runs(&engine);
    let stricter = "{selector: {matchLabels: {app: web}}, action: DENY, rules: [{}]}";
    put(&mut engine, "AuthorizationPolicy", &[("shop/web", stricter)]);
    assert_eq!(runs(&engine), before, "the rules are not read");
    put(&mut engine, "AuthorizationPolicy", &[("shop/web-2", WEB), ("else/all", "{}")]);
    assert_eq!(runs(&engine), before + 1, "the other workload has not this label");
    assert_eq!(selected(&mut engine, &web), ["shop/web shop/web-2", ""]);
}
