//! The location of the content in objects of each kind.

use crate::core::{ConfigMap, EndpointSlice, Ingress, IngressClass, Namespace, Node as KubeNode, Pod, Secret, Service};
use crate::decode::{Decode, Decoder};
use crate::mesh::MeshConfig;
use crate::object::{Content, spec_of};
use crate::parse::meta::part;
use crate::problem::Segment;
use crate::yaml::Node;

impl Content for MeshConfig {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<MeshConfig> {
        let mut config: MeshConfig =
            cx.within(Segment::Field("spec".into()), |cx| Decode::decode(&spec_of(root), cx))?;
        config.keep_default_providers();
        Some(config)
    }
}

impl Content for Service {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<Service> {
        let spec: Service = part(root, "spec", cx).unwrap_or_default();
        Some(Service { status: part(root, "status", cx).unwrap_or_default(), ..spec })
    }
}

impl Content for Pod {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<Pod> {
        let spec: Pod = part(root, "spec", cx).unwrap_or_default();
        Some(Pod { status: part(root, "status", cx).unwrap_or_default(), ..spec })
    }
}

impl Content for KubeNode {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<KubeNode> {
        let spec: KubeNode = part(root, "spec", cx).unwrap_or_default();
        let addresses = root
            .get("status")
            .and_then(|status| cx.within(Segment::Field("status".into()), |cx| part(status, "addresses", cx)));
        Some(KubeNode { addresses: addresses.unwrap_or_default(), ..spec })
    }
}

impl Content for Ingress {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<Ingress> {
        let spec: Ingress = part(root, "spec", cx).unwrap_or_default();
        let load_balancer = root
            .get("status")
            .and_then(|status| cx.within(Segment::Field("status".into()), |cx| part(status, "loadBalancer", cx)));
        Some(Ingress { load_balancer: load_balancer.unwrap_or_default(), ..spec })
    }
}

impl Content for IngressClass {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<IngressClass> {
        Some(part(root, "spec", cx).unwrap_or_default())
    }
}

impl Content for Namespace {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<Namespace> {
        Some(part(root, "status", cx).unwrap_or_default())
    }
}

impl Content for Secret {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<Secret> {
        Decode::decode(root, cx)
    }
}

impl Content for ConfigMap {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<ConfigMap> {
        Decode::decode(root, cx)
    }
}

impl Content for EndpointSlice {
    fn decode(root: &Node, cx: &mut Decoder) -> Option<EndpointSlice> {
        Decode::decode(root, cx)
    }
}
