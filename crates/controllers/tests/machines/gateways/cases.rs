//! The cases in `cases`.

use std::path::Path;

use config::MeshConfig;
use config::mesh::LabelSelector;
use controllers::{Body, Driver, Write};
use serde_json::{Value, json};

use super::{Cluster, TEMPLATE, documents, options, problems};

/// A write as a case has it.
fn shown(write: &Write) -> Value {
    let Body::Apply { fields, manager, create, managed } = &write.body else { panic!("{write:?}") };
    assert_eq!((*manager, *create, *managed), ("istio.io/gateway-controller", true, true));
    fields.clone()
}

fn check(path: &Path) {
    let name = path.display();
    let case = documents(&std::fs::read_to_string(path).unwrap()).remove(0);
    let mut options = options();
    options.http3 = case["http3"] == true;
    options.copies_metadata = case["copies"] != false;
    let mut cluster = Cluster::new(options, case["template"].as_str().unwrap_or(TEMPLATE));
    if let Some(labels) = case["selected"].as_object() {
        let labels = labels.iter().map(|(name, value)| (name.as_str().into(), value.as_str().unwrap().into()));
        let selector = LabelSelector { match_labels: labels.collect(), ..LabelSelector::default() };
        cluster.driver.mesh(&MeshConfig { discovery_selectors: vec![selector], ..MeshConfig::default() });
    }
    for object in case["objects"].as_array().unwrap() {
        cluster.put(object);
    }
    let writes: Vec<Value> = cluster.driver.plan().iter().map(shown).collect();
    let expected = case["writes"].as_array().unwrap();
    for (at, (write, expected)) in writes.iter().zip(expected).enumerate() {
        assert_eq!(write, expected, "{name}: write {at} is {write}");
    }
    assert_eq!(writes.len(), expected.len(), "{name}: {writes:#?}");
    let expected = case.get("problems").cloned().unwrap_or_else(|| json!({}));
    assert_eq!(json!(problems(&cluster.driver)), expected, "{name}");
    assert!(cluster.driver.plan().is_empty(), "{name}: the writes are in flight");
}

#[test]
fn gateways_get_their_objects() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/gateways/cases");
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths.iter().for_each(|path| check(path));
}
