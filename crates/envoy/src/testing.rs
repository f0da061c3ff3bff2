//! Test helpers: objects from YAML, encoded messages as JSON.

use std::sync::Arc;

use config::{AnyObject, MeshConfig, Object, ParseOptions, Resource};
use model::service::{
    Endpoint, EndpointAddress, ExportTo, Health, ObjectId, Registry, Resolution, Service, ServiceKey, ServicePort,
};
use names::{Hostname, Protocol};
use protos::{Message, Name};
use registry::inputs::{MeshDefaults, MeshSettings};
use security::telemetry::{EffectiveTelemetry, Telemetry};
use serde_json::Value;

/// The only object of a kind in a document without errors.
pub(crate) fn object<K: Resource>(yaml: &str) -> Arc<Object<K>> {
    let parsed = config::parse_documents(yaml.as_bytes(), "test.yaml", &ParseOptions::default());
    assert!(parsed.refused.is_empty() && parsed.unreadable == 0, "{:#?}", parsed.diagnostics);
    let found: Vec<&AnyObject> = parsed.objects.iter().collect();
    let [object] = found[..] else { panic!("{} objects", found.len()) };
    K::from_any(object).expect("an object of this kind").clone()
}

/// Mesh configuration from YAML; empty for the defaults.
pub(crate) fn mesh(yaml: &str) -> MeshConfig {
    let (config, diagnostics) = config::parse_mesh_config(yaml.as_bytes(), "mesh.yaml", &ParseOptions::default());
    config.unwrap_or_else(|| panic!("{diagnostics:#?}"))
}

/// Mesh settings from YAML, as the rules read them.
pub(crate) fn settings(yaml: &str) -> MeshSettings {
    MeshSettings { config: mesh(yaml), ..MeshSettings::default() }
}

/// The telemetry settings in a mesh with these services, as the rules derive them.
pub(crate) fn telemetry(mesh: &str, services: &[Arc<Object<config::core::Service>>]) -> Arc<Telemetry> {
    let mut relations = flow::Engine::builder();
    registry::register(&mut relations);
    security::register(&mut relations);
    let mut engine = relations.build();
    let mut batch = flow::Batch::new();
    batch.put::<MeshDefaults>((), Arc::new(settings(mesh)));
    for service in services {
        registry::objects::put(&mut batch, AnyObject::Service(service.clone()));
    }
    engine.commit(batch);
    let cell = engine.subscribe::<EffectiveTelemetry>(());
    (*engine.row::<EffectiveTelemetry>(cell).unwrap()).clone()
}

/// An encoded message as JSON.
pub(crate) fn json<M: Message + Name>(bytes: &[u8]) -> Value {
    protos::json(&M::type_url(), bytes).expect("encoded message")
}

/// The value at a path such as `a.b[0].c`; null if it does not exist.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    let path = path.replace('[', ".").replace(']', "");
    path.split('.').fold(value, |value, step| match step.parse::<usize>() {
        Ok(index) if value.is_array() => &value[index],
        _ => &value[step],
    })
}

/// Compares the values at paths with the expected ones.
#[track_caller]
pub(crate) fn check(value: &Value, expected: &[(&str, Value)]) {
    for (path, want) in expected {
        assert_eq!(at(value, path), want, "{path} in {value:#}");
    }
}

/// A Kubernetes service `reviews.shop` with one port, 80 `http`.
pub(crate) fn service(protocol: Protocol) -> Service {
    Service {
        key: ServiceKey {
            hostname: Hostname::parse("reviews.shop.svc.cluster.local").unwrap(),
            namespace: "shop".into(),
        },
        registry: Registry::Kubernetes,
        object: ObjectId { namespace: "shop".into(), name: "reviews".into() },
        ports: vec![ServicePort { number: 80, name: "http".into(), protocol, target: None }],
        cluster: "".into(),
        addresses: Vec::new(),
        assigned: Vec::new(),
        cluster_addresses: Default::default(),
        resolution: Resolution::Endpoints,
        alias_of: None,
        headless: false,
        external: false,
        export_to: ExportTo::All,
        subject_alt_names: Vec::new(),
        labels: Default::default(),
        created: None,
        node_local: false,
        publish_not_ready: false,
        cluster_local: false,
        distribution: Default::default(),
    }
}

/// An endpoint of that Service.
pub(crate) fn endpoint(address: &str) -> Endpoint {
    let ip = address.parse().map(EndpointAddress::Ip);
    Endpoint {
        address: ip.unwrap_or_else(|_| EndpointAddress::Hostname(address.into())),
        also: None,
        cluster: "Kubernetes".into(),
        mutual_tls: false,
        own_cluster: false,
        ports: Arc::new([("http".into(), 8080)].into()),
        labels: Arc::new([("version".into(), "v1".into())].into()),
        locality: Default::default(),
        weight: 1,
        network: "".into(),
        service_account: "".into(),
        health: Health::Healthy,
        node: "".into(),
        workload: None,
    }
}
