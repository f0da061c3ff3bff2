//! Feeds the controller with the objects that it watches, and with the configuration in effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, Kind, MeshConfig};
use inject::Injector;
use model::kube::GatewayRefusal;
use model::service::ObjectId;
use serde_json::{Map, Value, json};

use super::overlay::{PARTS, Parameters};
use super::{GatewayDeployments, Options, Problem};
use crate::{Controller, Driver, MANAGED, Resource, Target, Watched, id};

/// The prefix of OpenShift's annotations of a namespace.
const RANGES: &str = "openshift.io/sa.scc.";

/// Runs [`GatewayDeployments`].
pub struct DeploymentDriver(GatewayDeployments);

impl DeploymentDriver {
    /// A driver that has seen no objects yet.
    pub fn new(options: Options) -> DeploymentDriver {
        DeploymentDriver(GatewayDeployments::new(options))
    }

    /// The machine, to see its problems.
    pub fn deployments(&self) -> &GatewayDeployments {
        &self.0
    }
}

impl Driver for DeploymentDriver {
    fn watched(&self) -> Vec<Watched> {
        let parts = PARTS.iter().map(|part| Watched::all(part.resource).labelled(MANAGED));
        [Resource::NAMESPACE, Resource::CONFIG_MAP].map(Watched::all).into_iter().chain(parts).collect()
    }

    fn see(&mut self, place: usize, object: &Value, there: bool) {
        let (namespace, name) = id(object);
        match place {
            0 => self.0.namespace(object, there),
            1 => self.0.parameters(namespace, name, there.then(|| Parameters::of(object))),
            _ => {
                if let Some(part) = PARTS.get(place - 2) {
                    self.0.object(&Target::new(part.resource, namespace, name), there.then_some(object));
                }
            }
        }
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind::GatewayClass, Kind::KubeGateway, Kind::ListenerSet, Kind::ProxyConfig]
    }

    fn configuration(&mut self, kind: Kind, objects: Vec<AnyObject>) {
        let objects = objects.into_iter();
        match kind {
            Kind::GatewayClass => {
                let classes = objects.filter_map(|object| match object {
                    AnyObject::GatewayClass(class) => {
                        Some((class.meta.name.clone(), class.spec.controller_name.clone()))
                    }
                    _ => None,
                });
                self.0.classes(classes.collect::<BTreeMap<_, _>>());
            }
            Kind::KubeGateway => self.0.gateways(objects.filter_map(|object| match object {
                AnyObject::KubeGateway(gateway) => Some(gateway),
                _ => None,
            })),
            Kind::ListenerSet => self.0.listener_sets(objects.filter_map(|object| match object {
                AnyObject::ListenerSet(set) => Some(set),
                _ => None,
            })),
            _ => self.0.proxy_configs(objects.filter_map(|object| match object {
                AnyObject::ProxyConfig(config) => Some(config),
                _ => None,
            })),
        }
    }

    fn mesh(&mut self, mesh: &MeshConfig) {
        self.0.mesh(mesh);
    }

    fn injector(&mut self, injector: Option<&Arc<Injector>>) {
        self.0.injector(injector);
    }

    fn revisions(&mut self, names: &BTreeSet<Arc<str>>, is_default: bool) {
        self.0.revisions(names, is_default);
    }

    fn refusals(&self) -> BTreeMap<ObjectId, GatewayRefusal> {
        let refusal = |((namespace, name), problem): (&(Arc<str>, Arc<str>), &Problem)| {
            let id = ObjectId { namespace: namespace.clone(), name: name.clone() };
            Some((id, GatewayRefusal { reason: problem.accepted_reason()?, message: problem.to_string().into() }))
        };
        self.0.problems().iter().filter_map(refusal).collect()
    }

    fn machine(&mut self) -> &mut dyn Controller {
        &mut self.0
    }
}

/// The annotations of a namespace with ranges of users, in the form of an object; `None` if there are none.
pub(super) fn users(namespace: &Value) -> Option<Value> {
    let annotations = namespace["metadata"]["annotations"].as_object()?.iter();
    let ranges: Map<String, Value> = annotations
        .filter(|(name, _)| name.starts_with(RANGES))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    (!ranges.is_empty()).then(|| json!({"metadata": {"annotations": ranges}}))
}
