//! Writes the addresses of the ingress gateway to the status of each Ingress that is served.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use config::core::ingress::gateway_label;
use config::core::{Ingress, IngressClass, Node, Service, ServiceType};
use config::mesh::MeshConfig;
use config::{AnyObject, ParseOptions, StringMap, read_object};
use serde_json::{Value, json};

use crate::{Body, Controller, Driver, Ledger, Resource, Target, Watched, Write, id, labels, put};

/// The label of gateway pods.
const LABEL: &str = "istio";

/// The observed state of an Ingress.
#[derive(Clone, PartialEq, Debug)]
pub struct SeenIngress {
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.annotations`.
    pub annotations: StringMap,
    /// `spec`.
    pub spec: Ingress,
}

/// The namespace and name of an Ingress.
type Key = (Arc<str>, Arc<str>);

/// Plans the statuses of Ingresses.
#[derive(Default, Debug)]
pub struct IngressStatuses {
    mesh: MeshConfig,
    ingresses: BTreeMap<Key, SeenIngress>,
    classes: BTreeMap<Arc<str>, IngressClass>,
    /// The Services in the gateway's namespace.
    services: BTreeMap<Arc<str>, Service>,
    /// The running pods in the gateway's namespace: their labels and nodes.
    pods: BTreeMap<Arc<str>, (StringMap, Arc<str>)>,
    nodes: BTreeMap<Arc<str>, Node>,
    dirty: BTreeSet<Key>,
    /// Whether facts that affect all Ingresses may have changed.
    moved: bool,
    points: Option<Vec<String>>,
    ledger: Ledger,
}

impl IngressStatuses {
    /// Sets the mesh configuration.
    pub fn mesh(&mut self, mesh: &MeshConfig) {
        self.mesh = mesh.clone();
        self.all();
    }

    /// Sets the state of an Ingress; `None` if it was deleted.
    pub fn ingress(&mut self, namespace: &str, name: &str, seen: Option<SeenIngress>) {
        let key: Key = (namespace.into(), name.into());
        let before = put(&mut self.ingresses, key.clone(), seen.clone());
        let reached = |seen: &Option<SeenIngress>| seen.as_ref().map(|seen| seen.spec.load_balancer.clone());
        if reached(&before) != reached(&seen) {
            self.ledger.forget(&target(&key));
        }
        self.dirty.insert(key);
    }

    /// Sets the state of an IngressClass; `None` if it was deleted.
    pub fn class(&mut self, name: &str, class: Option<IngressClass>) {
        put(&mut self.classes, name, class);
        self.all();
    }

    /// Sets the state of a Service in the gateway's namespace; `None` if it was deleted.
    pub fn service(&mut self, name: &str, service: Option<Service>) {
        put(&mut self.services, name, service);
        self.moved = true;
    }

    /// Sets the labels and the node of a running pod in the gateway's namespace; `None` if it is not running.
    pub fn pod(&mut self, name: &str, pod: Option<(StringMap, Arc<str>)>) {
        put(&mut self.pods, name, pod);
        self.moved = true;
    }

    /// Sets the state of a node; `None` if it was deleted.
    pub fn node(&mut self, name: &str, node: Option<Node>) {
        put(&mut self.nodes, name, node);
        self.moved = true;
    }

    fn all(&mut self) {
        self.moved = true;
        self.dirty.extend(self.ingresses.keys().cloned());
    }

    /// The addresses of the gateway, sorted; `None` if they are unknown.
    fn points(&self) -> Option<Vec<String>> {
        let mut points: Vec<String> = match self.services.get(&self.mesh.ingress_service) {
            Some(service) if service.kind == ServiceType::ExternalName => vec![service.external_name.to_string()],
            Some(service) => {
                let given = service.status.load_balancer.ingress.iter();
                let given = given.map(|one| if one.ip.is_empty() { &one.hostname } else { &one.ip });
                given.chain(&service.external_ips).map(|point| point.to_string()).collect()
            }
            // A missing Service without gateway pods is a mistake, so statuses are left as they are.
            None if !self.mesh.ingress_service.is_empty() && !self.has_gateway() => return None,
            None => self.gateway_nodes().filter_map(outside).collect(),
        };
        points.retain(|point| !point.is_empty());
        points.sort();
        points.dedup();
        Some(points)
    }

    fn has_gateway(&self) -> bool {
        self.gateway_nodes().next().is_some()
    }

    fn gateway_nodes(&self) -> impl Iterator<Item = &Node> {
        let wanted = gateway_label(&self.mesh);
        let selected = move |labels: &StringMap| labels.get(LABEL) == Some(&wanted);
        let pods = self.pods.values().filter(move |(labels, _)| selected(labels));
        pods.filter_map(|(_, node)| self.nodes.get(node))
    }

    fn wanted(&self, key: &Key) -> Option<Write> {
        let seen = self.ingresses.get(key)?;
        let points = self.points.as_ref()?;
        let class = |name: &str| self.classes.get(name);
        if !seen.spec.is_selected(&seen.annotations, &self.mesh, class) {
            return None;
        }
        let current = seen.spec.load_balancer.ingress.iter();
        let mut current: Vec<&str> =
            current.map(|one| if one.ip.is_empty() { &*one.hostname } else { &*one.ip }).collect();
        current.sort_unstable();
        if current.iter().eq(points) {
            return None;
        }
        let point = |point: &String| match point.parse::<IpAddr>() {
            Ok(_) => json!({"ip": point}),
            Err(_) => json!({"hostname": point}),
        };
        let points: Vec<Value> = points.iter().map(point).collect();
        Some(Write {
            target: target(key),
            uid: seen.uid.clone(),
            body: Body::Apply {
                fields: json!({"status": {"loadBalancer": {"ingress": points}}}),
                manager: "rutter",
                create: false,
                managed: false,
            },
        })
    }
}

/// The external address of a node, or else its internal address.
fn outside(node: &Node) -> Option<String> {
    let first = |kind: &str| node.addresses_of(kind).next().map(|address| address.to_string());
    first("ExternalIP").or_else(|| first("InternalIP"))
}

impl Controller for IngressStatuses {
    fn plan(&mut self) -> Vec<Write> {
        if std::mem::take(&mut self.moved) {
            let points = self.points();
            if points != self.points {
                self.points = points;
                self.dirty.extend(self.ingresses.keys().cloned());
            }
        }
        let dirty = std::mem::take(&mut self.dirty);
        let settle = |key: &Key| {
            let wanted = self.wanted(key);
            self.ledger.settle(&target(key), wanted)
        };
        dirty.iter().filter_map(settle).collect()
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.all();
    }
}

fn target((namespace, name): &Key) -> Target {
    Target::status(Resource::INGRESS, namespace, name)
}

/// Feeds the controller with the objects that it watches.
pub struct IngressDriver {
    namespace: Arc<str>,
    machine: IngressStatuses,
}

impl IngressDriver {
    /// A driver without objects. `namespace` contains the gateway and its Service.
    pub fn new(namespace: &Arc<str>) -> IngressDriver {
        IngressDriver { namespace: namespace.clone(), machine: IngressStatuses::default() }
    }
}

impl Driver for IngressDriver {
    fn watched(&self) -> Vec<Watched> {
        vec![
            Watched::all(Resource::INGRESS),
            Watched::all(Resource::INGRESS_CLASS),
            Watched::all(Resource::SERVICE).within(&self.namespace),
            Watched::all(Resource::POD).within(&self.namespace).labelled("istio"),
            Watched::all(Resource::NODE),
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

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.machine
    }
}
