//! The templates of gateways and waypoints, which make whole objects.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use config::{Limits, MeshConfig, parse_yaml_json};
use inject::{Injector, Surroundings};
use serde_json::{Value, json};

const GATEWAY: &str = include_str!("../../../deploy/helm/rutter/files/kube-gateway.yaml");
const VALUES: &str = include_str!("values.yaml");

/// The objects that a controller gets for a Gateway, by kind.
fn objects(waypoint: bool, labels: Value) -> BTreeMap<String, Value> {
    // The chart writes the first line.
    let template = format!("{{{{- $waypoint := {waypoint} -}}}}\n{GATEWAY}");
    let config = json!({"policy": "enabled", "templates": {"it": template}});
    let mut values = parse_yaml_json(VALUES.as_bytes(), "", &Limits::default()).documents.remove(0).value;
    values["global"]["waypoint"] = json!({"tolerations": [{"key": "mesh"}], "resources": {"requests": {"cpu": "7m"}}});
    let injector = Injector::parse(&config.to_string(), &values.to_string()).unwrap();
    let (mesh, none) = (MeshConfig::default(), BTreeMap::new());
    let around = Surroundings {
        mesh: &mesh,
        proxy_config: &mesh.default_config,
        revision: "",
        parameters: &none,
        native_sidecars: false,
        namespace: None,
        openshift: false,
        compliance_policy: "",
        environment: &none,
        now: 0,
        seed: 0,
    };
    let data = json!({
        "Name": "front", "Namespace": "shop", "UID": "u-1", "DeploymentName": "front-istio", "ServiceAccount": "front-istio",
        "GatewayClass": "istio", "GatewayNameLabel": "gateway.networking.k8s.io/gateway-name", "ServiceType": "LoadBalancer",
        "ControllerLabel": "istio.io-mesh-controller", "ClusterID": "east", "Revision": "", "ProxyImage": "hub/proxyv2:1",
        "InfrastructureLabels": labels, "InfrastructureAnnotations": {"a": "b", "gateway.istio.io/name-override": "x"},
        "ObjectMeta": {}, "Spec": {"Addresses": [{"Value": "192.0.2.1"}]}, "Values": values, "ProxyConfig": {}, "MeshConfig": {},
        "Ports": [{"Name": "http", "Port": 80, "Protocol": "TCP", "AppProtocol": "http"}],
    });
    let made = injector.objects("it", &data, &around).unwrap();
    made.into_iter().map(|object| (object["kind"].as_str().unwrap().to_owned(), object)).collect()
}

#[test]
fn a_gateway_has_five_objects_with_their_owner() {
    let made = objects(false, json!({"topology.istio.io/network": "net-1"}));
    let kinds: Vec<&str> = made.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Service", "ServiceAccount"]);
    for object in made.values() {
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u-1", "{object}");
        assert_eq!(object["metadata"]["annotations"], json!({"a": "b"}), "internal annotations are left out");
        assert_eq!(object["metadata"]["labels"]["gateway.networking.k8s.io/gateway-name"], "front");
    }
    let pod = &made["Deployment"]["spec"]["template"];
    assert_eq!(
        made["Deployment"]["spec"]["selector"]["matchLabels"],
        json!({"gateway.networking.k8s.io/gateway-name": "front"})
    );
    assert_eq!(pod["metadata"]["labels"]["sidecar.istio.io/inject"], "false");
    let container = &pod["spec"]["containers"][0];
    assert_eq!((&container["image"], &container["args"][1]), (&json!("hub/proxyv2:1"), &json!("router")));
    let value = |name: &str| {
        container["env"].as_array().unwrap().iter().find(|it| it["name"] == name).map(|it| it["value"].clone())
    };
    assert_eq!(value("ISTIO_META_REQUESTED_NETWORK_VIEW"), Some("net-1".into()));
    assert_eq!(value("ISTIO_META_CLUSTER_ID"), Some("east".into()));
    let service = &made["Service"]["spec"];
    assert_eq!(
        (&service["loadBalancerIP"], &service["ports"][0]["appProtocol"]),
        (&json!("192.0.2.1"), &json!("http"))
    );
    assert_eq!(made["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"], "front-istio");
}

#[test]
fn a_waypoint_has_its_own_mode_and_settings() {
    let made = objects(true, json!({}));
    let pod = &made["Deployment"]["spec"]["template"];
    assert_eq!(pod["metadata"]["labels"]["istio.io/dataplane-mode"], "none");
    assert_eq!(pod["metadata"]["labels"]["gateway.istio.io/managed"], "istio.io-mesh-controller");
    assert_eq!(pod["spec"]["tolerations"], json!([{"key": "mesh"}]));
    let container = &pod["spec"]["containers"][0];
    assert_eq!((&container["args"][1], &container["resources"]["requests"]["cpu"]), (&json!("waypoint"), &json!("7m")));
    assert_eq!(made["Service"]["metadata"]["annotations"]["networking.istio.io/traffic-distribution"], "PreferClose");
}
