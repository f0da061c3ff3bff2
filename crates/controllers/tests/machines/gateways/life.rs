//! The objects of a Gateway over time.

use controllers::gateways::ClassDriver;
use controllers::{Body, Driver, Write};
use serde_json::{Value, json};

use super::{Cluster, TEMPLATE, injector, options, problems};

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
}

fn gateway(name: &str, port: u16) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": format!("u-{name}"),
            "annotations": {},
        },
        "spec": {"gatewayClassName": "istio", "listeners": [{"name": "http", "port": port, "protocol": "HTTP"}]},
    })
}

fn cluster() -> Cluster {
    let mut cluster = Cluster::new(options(), TEMPLATE);
    cluster.put(&namespace());
    cluster
}

fn targets(writes: &[Write]) -> Vec<String> {
    writes.iter().map(|write| write.target.to_string()).collect()
}

/// The object that a write makes, with what the API server adds.
fn made(write: &Write) -> Value {
    let Body::Apply { fields, .. } = &write.body else { panic!("{write:?}") };
    let mut object = fields.clone();
    object["metadata"]["uid"] = "made".into();
    object["metadata"]["resourceVersion"] = "1".into();
    object["spec"]["revisionHistoryLimit"] = 10.into();
    object
}

#[test]
fn objects_are_written_again_when_somebody_changes_them() {
    let mut cluster = cluster();
    cluster.put(&gateway("front", 80));
    let writes = cluster.driver.plan();
    assert_eq!(
        targets(&writes),
        ["ServiceAccount shop/front-istio", "Service shop/front-istio", "Deployment shop/front-istio"]
    );
    let objects: Vec<Value> = writes.iter().map(made).collect();
    objects.iter().for_each(|object| cluster.put(object));
    assert!(cluster.driver.plan().is_empty(), "all is as wanted");

    let mut scaled = objects[2].clone();
    scaled["spec"]["replicas"] = 3.into();
    scaled["status"] = json!({"readyReplicas": 3});
    scaled["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap().insert(0, json!({"name": "other"}));
    cluster.put(&scaled);
    assert!(cluster.driver.plan().is_empty(), "fields of others stay");

    scaled["spec"]["template"]["spec"]["containers"][1]["image"] = "wrong".into();
    cluster.put(&scaled);
    assert_eq!(targets(&cluster.driver.plan()), ["Deployment shop/front-istio"]);
    scaled["status"]["readyReplicas"] = 2.into();
    cluster.put(&scaled);
    assert!(cluster.driver.plan().is_empty(), "only the status changed");

    cluster.delete(&objects[1]);
    assert_eq!(targets(&cluster.driver.plan()), ["Service shop/front-istio"]);
    let mut foreign = objects[0].clone();
    foreign["metadata"]["labels"] = json!({});
    cluster.put(&foreign);
    assert_eq!(targets(&cluster.driver.plan()), ["ServiceAccount shop/front-istio"], "the writer refuses it");
}

#[test]
fn only_what_changes_is_written() {
    let mut cluster = cluster();
    for name in ["front", "back"] {
        cluster.put(&gateway(name, 80));
    }
    assert_eq!(cluster.driver.plan().len(), 6);
    cluster.put(&gateway("front", 81));
    assert_eq!(targets(&cluster.driver.plan()), ["Service shop/front-istio"]);
    cluster.driver.injector(Some(&injector(&format!("{TEMPLATE}\n"))));
    assert!(cluster.driver.plan().is_empty(), "an equal template makes equal objects");
    cluster.driver.injector(Some(&injector(&TEMPLATE.replace("{{ .ProxyImage }}", "next"))));
    assert_eq!(targets(&cluster.driver.plan()), ["Deployment shop/back-istio", "Deployment shop/front-istio"]);
    cluster.driver.machine().restart();
    assert_eq!(cluster.driver.plan().len(), 6, "another replica may have written them");
}

#[test]
fn a_gateway_that_is_deleted_or_moved_away_is_left_to_kubernetes() {
    let mut cluster = cluster();
    cluster.put(&gateway("front", 80));
    let objects: Vec<Value> = cluster.driver.plan().iter().map(made).collect();
    objects.iter().for_each(|object| cluster.put(object));
    cluster.delete(&gateway("front", 80));
    objects.iter().for_each(|object| cluster.delete(object));
    assert!(cluster.driver.plan().is_empty());
}

#[test]
fn nothing_is_written_without_an_injection_configuration() {
    let mut cluster = cluster();
    cluster.driver.injector(None);
    cluster.put(&gateway("front", 80));
    assert!(cluster.driver.plan().is_empty());
    cluster.driver.injector(Some(&injector(TEMPLATE)));
    assert_eq!(cluster.driver.plan().len(), 3);
}

#[test]
fn a_broken_template_leaves_what_is_there() {
    let mut cluster = cluster();
    cluster.put(&gateway("front", 80));
    assert_eq!(cluster.driver.plan().len(), 3);
    cluster.driver.injector(Some(&injector("{{ fail \"no\" }}")));
    assert!(cluster.driver.plan().is_empty());
    assert_eq!(problems(&cluster.driver).len(), 1);
    cluster.driver.injector(Some(&injector(TEMPLATE)));
    assert!(cluster.driver.plan().is_empty(), "nothing has changed");
    assert!(problems(&cluster.driver).is_empty());
}

#[test]
fn two_gateways_do_not_write_one_object() {
    let mut cluster = cluster();
    let named = |name: &str, created: &str| {
        let mut gateway = gateway(name, 80);
        gateway["metadata"]["annotations"]["gateway.istio.io/name-override"] = "edge".into();
        gateway["metadata"]["creationTimestamp"] = created.into();
        gateway
    };
    cluster.put(&named("a", "2026-02-01T00:00:00Z"));
    cluster.put(&named("b", "2026-01-01T00:00:00Z"));
    let writes = targets(&cluster.driver.plan());
    assert_eq!(writes, ["ServiceAccount shop/b-istio", "Service shop/edge", "Deployment shop/edge"]);
    assert_eq!(problems(&cluster.driver)["shop/a"], "Service shop/edge belongs to Gateway shop/b");
    cluster.delete(&named("b", "2026-01-01T00:00:00Z"));
    let writes = targets(&cluster.driver.plan());
    assert_eq!(writes, ["ServiceAccount shop/a-istio", "Service shop/edge", "Deployment shop/edge"]);
}

#[test]
fn a_selector_of_an_earlier_version_is_kept() {
    let mut cluster = cluster();
    cluster.put(&json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "front-istio", "namespace": "shop", "labels": {"gateway.istio.io/managed": "x"}},
        "spec": {
            "selector": {"matchLabels": {"istio.io/gateway-name": "front"}},
            "template": {"metadata": {"labels": {"istio.io/gateway-name": "front"}}},
        },
    }));
    cluster.put(&gateway("front", 80));
    let writes = cluster.driver.plan();
    let spec = &made(&writes[2])["spec"];
    assert_eq!(spec["selector"], json!({"matchLabels": {"istio.io/gateway-name": "front"}}));
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(labels["istio.io/gateway-name"], "front");
    assert_eq!(labels["gateway.networking.k8s.io/gateway-name"], "front");
}

#[test]
fn missing_classes_are_created() {
    let mut driver = ClassDriver::new("istio");
    let class = |name: &str| json!({"metadata": {"name": name}});
    driver.see(0, &class("istio-remote"), true);
    let writes = driver.plan();
    let Body::Create { fields, .. } = &writes[0].body else { panic!("{writes:?}") };
    assert_eq!(
        (targets(&writes), &fields["spec"]["controllerName"]),
        (vec!["GatewayClass istio".to_owned()], &json!("istio.io/gateway-controller"))
    );
    assert!(driver.plan().is_empty(), "in flight");
    driver.see(0, &class("istio"), true);
    assert!(driver.plan().is_empty());
    driver.see(0, &class("istio-remote"), false);
    assert_eq!(targets(&driver.plan()), ["GatewayClass istio-remote"]);
}
