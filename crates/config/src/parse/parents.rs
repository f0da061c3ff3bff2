//! The parents of objects of the Gateway API that validation refuses.

use std::slice;

use serde_json::{Value as Json, json};

use crate::decode::{Decode as _, Decoder, Unknown};
use crate::gateway_api::backend_policy::TrafficPolicyTarget;
use crate::gateway_api::listener::ParentGatewayReference;
use crate::gateway_api::reference::{ParentReference, PolicyTarget};
use crate::gateway_api::text::GATEWAY_GROUP;
use crate::object::Kind;
use crate::parse::json::node;
use crate::parse::{Limits, conform};
use crate::problem::FieldPath;
use crate::schema::Schema;
use crate::yaml::Node;

/// The most parents of an object.
const MOST: usize = 32;

/// The valid references of an object to its parents, in their order, so that its status can say why it is refused: the `parentRefs`
/// of a route, the class of a Gateway, the Gateway of a ListenerSet, and the targets of a policy. None for other kinds.
pub fn parents_of(kind: Kind, object: &Json) -> Vec<ParentReference> {
    let spec = &object["spec"];
    let class = json!({"group": GATEWAY_GROUP, "kind": Kind::GatewayClass.name(), "name": spec["gatewayClassName"]});
    let (references, schema) = match kind {
        Kind::KubeGateway => (&class, ParentReference::schema()),
        Kind::ListenerSet => (&spec["parentRef"], ParentGatewayReference::schema()),
        Kind::BackendTlsPolicy => (&spec["targetRefs"], PolicyTarget::schema()),
        Kind::BackendTrafficPolicy => (&spec["targetRefs"], TrafficPolicyTarget::schema()),
        kind if kind.is_route() => (&spec["parentRefs"], ParentReference::schema()),
        _ => return Vec::new(),
    };
    let references = references.as_array().map_or(slice::from_ref(references), Vec::as_slice);
    let objects = references.iter().filter(|json| json.is_object());
    let mut all: Vec<ParentReference> = Vec::new();
    for reference in objects.filter_map(|json| reference(&node(json, Limits::default().depth)?, &schema)) {
        if all.len() < MOST && !all.contains(&reference) {
            all.push(reference);
        }
    }
    all
}

/// A reference that conforms to its schema. All references have the fields of a parent's, or some of them.
fn reference(node: &Node, schema: &Schema) -> Option<ParentReference> {
    let mut cx = Decoder::new(Unknown::Ignore, 1);
    let reference = ParentReference::decode(node, &mut cx)?;
    let found = conform::check(node, node.at, schema, FieldPath::root(), 1);
    (cx.into_problems().is_empty() && found.is_empty()).then_some(reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_parents_are_read_and_each_once() {
        let edge = json!({"name": "edge"});
        let service = json!({"group": "", "kind": "Service", "name": "web", "port": 80, "later": 1});
        let broken = [json!({"name": "edge", "port": 0}), json!({"namespace": "x"}), json!("edge"), json!({"name": 1})];
        let references: Vec<Json> = [edge.clone(), service].into_iter().chain(broken).chain([edge]).collect();
        let object = json!({"spec": {"parentRefs": references, "hostnames": 3}});
        let read = parents_of(Kind::TcpRoute, &object);
        let names: Vec<(&str, Option<u16>)> = read.iter().map(|one| (&*one.name, one.port)).collect();
        assert_eq!(names, [("edge", None), ("web", Some(80))]);
        assert!(parents_of(Kind::VirtualService, &object).is_empty());
        assert!(parents_of(Kind::HttpRoute, &json!({"spec": {"parentRefs": "edge"}})).is_empty());
    }

    #[test]
    fn gateways_have_a_class_sets_a_gateway_and_policies_targets() {
        let read = |kind, spec: Json| -> Vec<String> {
            let all = parents_of(kind, &json!({"spec": spec}));
            all.iter().map(|one| format!("{} {} {:?}", one.kind, one.name, one.section_name)).collect()
        };
        assert_eq!(read(Kind::KubeGateway, json!({"gatewayClassName": "istio"})), ["GatewayClass istio None"]);
        for class in [json!({}), json!({"gatewayClassName": ""}), json!({"gatewayClassName": {"a": 1}})] {
            assert!(read(Kind::KubeGateway, class).is_empty());
        }
        assert_eq!(read(Kind::ListenerSet, json!({"parentRef": {"name": "edge"}})), ["Gateway edge None"]);
        assert!(read(Kind::ListenerSet, json!({"listeners": 3})).is_empty());
        let web = json!({"group": "", "kind": "Service", "name": "web", "sectionName": "https"});
        let targets = json!({"targetRefs": [web, {"kind": "Service", "name": "web"}, null]});
        assert_eq!(read(Kind::BackendTlsPolicy, targets.clone()), ["Service web Some(\"https\")"]);
        assert_eq!(read(Kind::BackendTrafficPolicy, targets), ["Service web Some(\"https\")"]);
    }
}
