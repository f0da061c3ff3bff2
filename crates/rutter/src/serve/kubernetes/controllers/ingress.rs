//! Where Ingresses can be reached.

use std::sync::Arc;

use config::{AnyObject, MeshConfig, ParseOptions, read_object};
use serde_json::Value;
use status::controllers::{Controller as _, IngressStatuses, SeenIngress, Write};

use super::{Driver, Watched, id, labels};

pub(super) struct IngressDriver {
    namespace: Arc<str>,
    machine: IngressStatuses,
}

impl IngressDriver {
    /// `namespace` is where the gateway and its service are.
    pub(super) fn new(namespace: &Arc<str>) -> IngressDriver {
        IngressDriver {
            namespace: namespace.clone(),
            machine: IngressStatuses::default(),
        }
    }
}

impl Driver for IngressDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![
            Watched::all("networking.k8s.io", "Ingress", "ingresses"),
            Watched::all("networking.k8s.io", "IngressClass", "ingressclasses"),
            Watched::all("", "Service", "services").within(&self.namespace),
            Watched::all("", "Pod", "pods")
                .within(&self.namespace)
                .labelled("istio"),
            Watched::all("", "Node", "nodes"),
        ]
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        let read = || read_object(object, &ParseOptions::default()).object;
        let machine = &mut self.machine;
        match (place, there.then(read).flatten()) {
            (0, Some(AnyObject::Ingress(ingress))) => {
                let seen = SeenIngress {
                    uid: ingress.meta.uid.clone(),
                    annotations: ingress.meta.annotations.clone(),
                    spec: ingress.spec.clone(),
                };
                machine.ingress(namespace, name, Some(seen));
            }
            (0, _) => machine.ingress(namespace, name, None),
            (1, Some(AnyObject::IngressClass(class))) => machine.class(name, Some(class.spec.clone())),
            (1, _) => machine.class(name, None),
            (2, Some(AnyObject::Service(service))) => machine.service(name, Some(service.spec.clone())),
            (2, _) => machine.service(name, None),
            (3, Some(AnyObject::Pod(pod))) => {
                let runs = !pod.spec.is_terminal() && pod.meta.deletion_timestamp.is_none() && pod.spec.is_ready();
                machine.pod(name, runs.then(|| (labels(object), pod.spec.node_name.clone())));
            }
            (3, _) => machine.pod(name, None),
            (_, Some(AnyObject::Node(node))) => machine.node(name, Some(node.spec.clone())),
            (..) => machine.node(name, None),
        }
    }

    fn mesh(&mut self, mesh: &MeshConfig) {
        self.machine.mesh(mesh);
    }

    fn restart(&mut self) {
        self.machine.restart();
    }

    fn plan(&mut self) -> Vec<Write> {
        self.machine.plan()
    }
}
