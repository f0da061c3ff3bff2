//! Reduces the memory of objects by sharing equal strings.

use std::collections::HashSet;
use std::sync::Arc;

use config::core::Pod;
use config::{AnyObject, Meta, Object, StringMap};

/// Longer strings are rarely equal.
const LONGEST: usize = 80;
/// From this number of strings on, unused ones are removed.
const SWEEP: usize = 4096;

/// Shared strings.
#[derive(Default, Debug)]
pub(crate) struct Texts {
    known: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Texts {
    /// Replaces a string by the shared equal one.
    pub(crate) fn share(&mut self, text: &mut Arc<str>) {
        if text.len() > LONGEST {
            return;
        }
        match self.known.get(text) {
            Some(known) => *text = known.clone(),
            None => {
                if self.known.len() >= self.sweep_at.max(SWEEP) {
                    self.known.retain(|text| Arc::strong_count(text) > 1);
                    self.sweep_at = self.known.len() * 2;
                }
                self.known.insert(text.clone());
            }
        }
    }

    fn share_map(&mut self, map: &mut StringMap) {
        let shared = std::mem::take(map).into_iter().map(|(mut key, mut value)| {
            self.share(&mut key);
            self.share(&mut value);
            (key, value)
        });
        *map = shared.collect();
    }

    fn meta(&mut self, meta: &mut Meta) {
        self.share(&mut meta.namespace);
        self.share(&mut meta.generate_name);
        self.share_map(&mut meta.labels);
        self.share_map(&mut meta.annotations);
        if let Some(owner) = &mut meta.owner {
            self.share(&mut owner.kind);
            self.share(&mut owner.name);
        }
    }

    /// Reduces an object of a core kind and sets its cluster. Kinds that are only read in the config cluster are
    /// unchanged.
    pub(crate) fn trim(&mut self, object: AnyObject, cluster: &Arc<str>) -> AnyObject {
        match object {
            AnyObject::Pod(pod) => AnyObject::Pod(self.changed(pod, cluster, |texts, pod| texts.pod(&mut pod.spec))),
            AnyObject::EndpointSlice(slice) => AnyObject::EndpointSlice(self.changed(slice, cluster, |_, _| {})),
            AnyObject::Service(service) => AnyObject::Service(self.changed(service, cluster, |_, _| {})),
            AnyObject::Node(node) => AnyObject::Node(self.changed(node, cluster, |_, _| {})),
            AnyObject::Namespace(namespace) => AnyObject::Namespace(self.changed(namespace, cluster, |_, _| {})),
            AnyObject::WorkloadEntry(entry) => AnyObject::WorkloadEntry(self.changed(entry, cluster, |_, _| {})),
            AnyObject::KubeGateway(gateway) => AnyObject::KubeGateway(self.changed(gateway, cluster, |_, _| {})),
            AnyObject::ServiceExport(export) => AnyObject::ServiceExport(self.changed(export, cluster, |_, _| {})),
            AnyObject::ServiceImport(import) => AnyObject::ServiceImport(self.changed(import, cluster, |_, _| {})),
            other => other,
        }
    }

    fn pod(&mut self, pod: &mut Pod) {
        self.share(&mut pod.service_account_name);
        self.share(&mut pod.node_name);
        for container in pod.containers.iter_mut().chain(&mut pod.init_containers) {
            self.share(&mut container.name);
            self.share(&mut container.restart_policy);
            for port in &mut container.ports {
                self.share(&mut port.name);
                self.share(&mut port.protocol);
            }
            container.ports.shrink_to_fit();
        }
        pod.containers.shrink_to_fit();
        pod.init_containers.shrink_to_fit();
        let status = &mut pod.status;
        for other in status.pod_ips.iter_mut().filter(|other| other.ip == status.pod_ip) {
            other.ip = status.pod_ip.clone();
        }
        status.pod_ips.shrink_to_fit();
        // Only the Ready condition of a pod is used.
        status.conditions.retain(|condition| &*condition.kind == "Ready");
        status.conditions.shrink_to_fit();
        for condition in &mut status.conditions {
            self.share(&mut condition.kind);
            self.share(&mut condition.status);
        }
    }

    fn changed<S: Clone>(
        &mut self,
        mut object: Arc<Object<S>>,
        cluster: &Arc<str>,
        more: impl FnOnce(&mut Texts, &mut Object<S>),
    ) -> Arc<Object<S>> {
        // The object was just created and is not shared.
        let inside = Arc::make_mut(&mut object);
        inside.meta.cluster = cluster.clone();
        self.meta(&mut inside.meta);
        more(self, inside);
        object
    }
}
