//! Addresses in the statuses of Ingresses.

use config::StringMap;
use config::core::{
    Ingress, IngressClass, LoadBalancerIngress, LoadBalancerStatus, Node, NodeAddress, Service, ServiceStatus,
};
use config::mesh::{IngressControllerMode, MeshConfig};
use controllers::{Body, Controller, IngressStatuses, SeenIngress};
use serde_json::{Value, json};

fn ingress(class: Option<&str>, reached: &[&str]) -> Option<SeenIngress> {
    let point = |ip: &&str| LoadBalancerIngress { ip: (*ip).into(), ..LoadBalancerIngress::default() };
    Some(SeenIngress {
        uid: "u".into(),
        annotations: StringMap::new(),
        spec: Ingress {
            ingress_class_name: class.map(Into::into),
            load_balancer: LoadBalancerStatus { ingress: reached.iter().map(point).collect() },
            ..Ingress::default()
        },
    })
}

fn service(points: &[(&str, &str)], external: &[&str]) -> Option<Service> {
    let point = |(ip, hostname): &(&str, &str)| LoadBalancerIngress { ip: (*ip).into(), hostname: (*hostname).into() };
    Some(Service {
        external_ips: external.iter().map(|ip| (*ip).into()).collect(),
        status: ServiceStatus { load_balancer: LoadBalancerStatus { ingress: points.iter().map(point).collect() } },
        ..Service::default()
    })
}

fn controller(mode: IngressControllerMode) -> IngressStatuses {
    let mut controller = IngressStatuses::default();
    controller.mesh(&MeshConfig { ingress_controller_mode: mode, ..MeshConfig::default() });
    controller.class("istio", Some(IngressClass { controller: "istio.io/ingress-controller".into() }));
    controller
}

/// The planned writes: the names of the Ingresses, and the addresses of the first.
fn planned(controller: &mut IngressStatuses) -> (Vec<String>, Value) {
    let writes = controller.plan();
    let names = writes.iter().map(|write| write.target.name.to_string()).collect();
    let points = writes.first().map_or(Value::Null, |write| match &write.body {
        Body::Apply { fields, .. } => fields["status"]["loadBalancer"]["ingress"].clone(),
        Body::Create { .. } | Body::Delete { .. } | Body::Merge { .. } => panic!("{write:?}"),
    });
    (names, points)
}

#[test]
fn served_ingresses_get_the_gateways_addresses() {
    let mut controller = controller(IngressControllerMode::Strict);
    controller.ingress("a", "ours", ingress(Some("istio"), &[]));
    controller.ingress("a", "no-class", ingress(None, &[]));
    controller.ingress("a", "theirs", ingress(Some("nginx"), &["9.9.9.9"]));
    assert_eq!(planned(&mut controller).0.len(), 0, "there is no gateway");
    controller.service("istio-ingressgateway", service(&[("10.0.0.2", ""), ("", "lb.example")], &["10.0.0.1"]));
    controller.service("other", service(&[("10.0.0.3", "")], &[]));
    let (names, points) = planned(&mut controller);
    assert_eq!(names, ["ours"]);
    assert_eq!(points, json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, {"hostname": "lb.example"}]));
    assert_eq!(planned(&mut controller).0.len(), 0, "the write is in flight");
    controller.service("istio-ingressgateway", service(&[("10.0.0.2", "")], &[]));
    assert_eq!(planned(&mut controller).1, json!([{"ip": "10.0.0.2"}]));
    controller.ingress("a", "ours", ingress(Some("istio"), &["10.0.0.2"]));
    assert_eq!(planned(&mut controller).0.len(), 0);
    // The Service was deleted and the gateway's addresses are unknown: statuses are left as they are.
    controller.service("istio-ingressgateway", None);
    assert_eq!(planned(&mut controller).0.len(), 0);
    // The class gets another controller, and the mode admits Ingresses without a class.
    controller.service("istio-ingressgateway", service(&[("10.0.0.4", "")], &[]));
    controller.class("istio", Some(IngressClass { controller: "x".into() }));
    controller.mesh(&MeshConfig { ingress_controller_mode: IngressControllerMode::Default, ..MeshConfig::default() });
    assert_eq!(planned(&mut controller).0, ["no-class"]);
}

#[test]
fn without_a_service_the_addresses_of_gateway_nodes_are_used() {
    let mut controller = controller(IngressControllerMode::Strict);
    controller.ingress("a", "ours", ingress(Some("istio"), &[]));
    let labels = |value: &str| StringMap::from([("istio".into(), value.into())]);
    controller.pod("gw-1", Some((labels("ingressgateway"), "n1".into())));
    controller.pod("gw-2", Some((labels("ingressgateway"), "n2".into())));
    controller.pod("app", Some((labels("app"), "n3".into())));
    for (name, kind) in [("n1", "InternalIP"), ("n2", "ExternalIP"), ("n3", "InternalIP")] {
        let address = |kind: &str, last: &str| NodeAddress {
            kind: kind.into(),
            address: format!("10.0.{last}.{}", &name[1..]).into(),
        };
        let addresses = vec![address("InternalIP", "0"), address(kind, "1")];
        controller.node(name, Some(Node { addresses, ..Node::default() }));
    }
    assert_eq!(planned(&mut controller).1, json!([{"ip": "10.0.0.1"}, {"ip": "10.0.1.2"}]));
    controller.pod("gw-2", None);
    assert_eq!(planned(&mut controller).1, json!([{"ip": "10.0.0.1"}]));
}
