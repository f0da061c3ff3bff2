//! Which PeerAuthentication holds, asked as a rule asks.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use config::{ParseOptions, parse_documents};
use flow::{Batch, Engine, Reads, Relation, Rule};
use model::mtls::{Mode, MtlsModes};
use model::proxy::Labels;
use registry::inputs::{MeshDefaults, MeshSettings};
use registry::objects;
use security::peers;

/// The connections that one workload accepts.
struct Workloads;

type Workload = (Arc<str>, Labels);

impl Relation for Workloads {
    const NAME: &'static str = "workloads of the test";
    type Key = Workload;
    type Row = MtlsModes;
}

impl Rule for Workloads {
    fn derive(cx: &Reads<'_>, (namespace, labels): &Workload) -> Option<MtlsModes> {
        Some(peers::of_workload(cx, &"root".into(), namespace, labels))
    }
}

/// Whether clients see it as plain text at port 80.
struct Plain;

impl Relation for Plain {
    const NAME: &'static str = "plain text of the test";
    type Key = Workload;
    type Row = Option<bool>;
}

impl Rule for Plain {
    fn derive(cx: &Reads<'_>, (namespace, labels): &Workload) -> Option<Option<bool>> {
        let plain = peers::plain(cx, &"root".into(), namespace);
        Some(plain.map(|plain| plain.at(labels, 80)))
    }
}

fn engine() -> Engine {
    let mut builder = Engine::builder();
    registry::register(&mut builder);
    security::register(&mut builder);
    builder.view::<Workloads>();
    builder.view::<Plain>();
    let mut engine = builder.build();
    let mut batch = Batch::new();
    batch.put::<MeshDefaults>((), Arc::new(settings()));
    engine.commit(batch);
    engine
}

fn settings() -> MeshSettings {
    MeshSettings::default()
}

/// Adds `namespace/name: spec`, older ones first.
fn put(engine: &mut Engine, objects: &[(&str, &str)]) {
    let mut batch = Batch::new();
    for (age, (id, spec)) in objects.iter().enumerate() {
        let (namespace, name) = id.split_once('/').unwrap();
        let meta = format!("{{name: {name}, namespace: {namespace}, creationTimestamp: '2020-01-01T00:00:{age:02}Z'}}");
        let text =
            format!("{{apiVersion: security.istio.io/v1, kind: PeerAuthentication, metadata: {meta}, spec: {spec}}}");
        let parsed = parse_documents(text.as_bytes(), "test", &ParseOptions::default());
        let Some(object) = parsed.objects.into_iter().next() else {
            panic!("{text}: {:?}", parsed.diagnostics);
        };
        objects::put(&mut batch, object);
    }
    engine.commit(batch);
}

fn workload(namespace: &str, app: &str) -> Workload {
    let labels = [("app", app), ("version", "v1")];
    let labels = labels.map(|(name, value)| (Arc::from(name), Arc::from(value)));
    (namespace.into(), Labels::from(labels))
}

fn modes(engine: &mut Engine, workload: &Workload) -> MtlsModes {
    let cell = engine.subscribe::<Workloads>(workload.clone());
    (*engine.row::<Workloads>(cell).unwrap()).clone()
}

fn is_plain(engine: &mut Engine, workload: &Workload) -> Option<bool> {
    let cell = engine.subscribe::<Plain>(workload.clone());
    *engine.row::<Plain>(cell).unwrap()
}

fn only(mode: Mode) -> MtlsModes {
    MtlsModes::new(mode, [])
}

const STRICT: &str = "{mtls: {mode: STRICT}}";
const DISABLE: &str = "{mtls: {mode: DISABLE}}";

#[test]
fn the_narrowest_counts() {
    let mut engine = engine();
    let (web, other) = (workload("shop", "web"), workload("shop", "other"));
    let mut seen = |objects: &[(&str, &str)]| {
        put(&mut engine, objects);
        [&web, &other].map(|workload| modes(&mut engine, workload))
    };
    assert_eq!(seen(&[]), [only(Mode::Permissive), only(Mode::Permissive)]);
    assert_eq!(seen(&[("root/all", STRICT)]), [only(Mode::Strict), only(Mode::Strict)]);
    assert_eq!(seen(&[("shop/all", DISABLE)]), [only(Mode::Disable), only(Mode::Disable)]);
    let web_only = "{selector: {matchLabels: {app: web}}, mtls: {mode: PERMISSIVE}}";
    assert_eq!(seen(&[("shop/web", web_only)]), [only(Mode::Permissive), only(Mode::Disable)]);
}

#[test]
fn what_is_left_open_the_wider_one_says() {
    let mut engine = engine();
    let web = workload("shop", "web");
    let ports = "{selector: {matchLabels: {app: web}}, portLevelMtls: {'80': {mode: DISABLE}, '81': {mode: UNSET}}}";
    put(&mut engine, &[("root/all", STRICT), ("shop/all", "{}"), ("shop/web", ports)]);
    let found = modes(&mut engine, &web);
    assert_eq!(found, MtlsModes::new(Mode::Strict, [(80, Mode::Disable)]));
    assert_eq!(found.at(81), Mode::Strict);
}

#[test]
fn the_oldest_of_a_sort_counts() {
    let mut engine = engine();
    let web = workload("shop", "web");
    let older = "{selector: {matchLabels: {version: v1}}, mtls: {mode: DISABLE}}";
    let younger = "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}";
    put(&mut engine, &[("shop/z", older), ("shop/a", younger), ("shop/b", STRICT), ("shop/c", DISABLE)]);
    assert_eq!(modes(&mut engine, &web), only(Mode::Disable));
    assert_eq!(modes(&mut engine, &workload("other", "web")), only(Mode::Permissive));
    let elsewhere = (Arc::from("shop"), Labels::new());
    assert_eq!(modes(&mut engine, &elsewhere), only(Mode::Strict), "b is older than c");
}

#[test]
fn selectors_mean_nothing_in_the_root_namespace() {
    let mut engine = engine();
    let selecting = "{selector: {matchLabels: {app: web}}, mtls: {mode: DISABLE}}";
    put(&mut engine, &[("root/web", selecting)]);
    for namespace in ["root", "shop"] {
        let web = workload(namespace, "web");
        assert_eq!(modes(&mut engine, &web), only(Mode::Permissive));
        assert_eq!(is_plain(&mut engine, &web), None);
    }
    put(&mut engine, &[("root/all", STRICT)]);
    assert_eq!(modes(&mut engine, &workload("root", "web")), only(Mode::Strict));
}

#[test]
fn clients_see_the_same() {
    let cases: &[&[(&str, &str)]] = &[
        &[("root/all", DISABLE)],
        &[("root/all", DISABLE), ("shop/all", STRICT)],
        &[("shop/all", DISABLE), ("shop/web", "{selector: {matchLabels: {app: web}}, mtls: {mode: STRICT}}")],
        &[
            ("shop/all", STRICT),
            ("shop/web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {'80': {mode: DISABLE}}}"),
        ],
        &[
            ("root/all", DISABLE),
            ("shop/web", "{selector: {matchLabels: {app: web}}, portLevelMtls: {'80': {mode: PERMISSIVE}}}"),
        ],
        &[("shop/web", "{selector: {matchLabels: {app: web}}}"), ("shop/all", DISABLE)],
    ];
    for objects in cases {
        let mut engine = engine();
        put(&mut engine, objects);
        for app in ["web", "other"] {
            let workload = workload("shop", app);
            let disabled = modes(&mut engine, &workload).at(80) == Mode::Disable;
            let seen = is_plain(&mut engine, &workload).unwrap_or(false);
            assert_eq!(seen, disabled, "{objects:?} {app}");
        }
    }
}

#[test]
fn a_change_reaches_whom_it_concerns() {
    let mut engine = engine();
    let selecting = |mode: &str| format!("{{selector: {{matchLabels: {{app: web}}}}, mtls: {{mode: {mode}}}}}");
    put(&mut engine, &[("shop/web", &selecting("STRICT"))]);
    let (web, other) = (workload("shop", "web"), workload("shop", "other"));
    modes(&mut engine, &web);
    modes(&mut engine, &other);
    is_plain(&mut engine, &web);
    let runs = |engine: &Engine, name| engine.stats().relation(name).unwrap().runs;
    let before = (runs(&engine, Workloads::NAME), runs(&engine, Plain::NAME));
    put(&mut engine, &[("shop/web", &selecting("PERMISSIVE"))]);
    assert_eq!(runs(&engine, Workloads::NAME), before.0 + 1, "the other one is no reader");
    assert_eq!(runs(&engine, Plain::NAME), before.1, "plain text is as it was");
    assert_eq!(modes(&mut engine, &web), only(Mode::Permissive));
}
