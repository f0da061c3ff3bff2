//! Which Gateways are deployed, and the writes that this needs.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::gateway_api::{FromListenerNamespaces, Gateway, Listener, ListenerSet};
use config::mesh::{NamespaceProxyConfigs, ProxyConfig, ProxyConfigLayer, ProxyConfigLayers};
use config::{Meta, Object, StringMap};
use inject::{GATEWAY_NAME, Injector};

use super::overlay::Parameters;
use super::wanted::{self, Facts, Wanted};
use model::standing::CONTROLLERS;

use super::{CONTROLLER, GatewayDeployments, Key, OWN_VERSION, Problem, REVISION, VERSION};
use crate::{Body, Controller, Resource, Target, Write};

/// The label that Kubernetes gives to every namespace.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

impl Controller for GatewayDeployments {
    fn plan(&mut self) -> Vec<Write> {
        let Some(injector) = self.injector.clone() else {
            return Vec::new();
        };
        let mut writes = Vec::new();
        // A Gateway that gives up a name makes others dirty, which wait for it.
        while !self.dirty.is_empty() {
            let mut dirty: Vec<Key> = std::mem::take(&mut self.dirty).into_iter().collect();
            dirty.sort_by_cached_key(|key| {
                (self.gateways.get(key).map(|gateway| gateway.meta.creation_timestamp), key.clone())
            });
            for key in &dirty {
                writes.extend(self.reconcile(key, &injector));
            }
        }
        writes
    }

    fn restart(&mut self) {
        self.ledger.clear();
        self.all();
    }
}

impl GatewayDeployments {
    /// The writes that a Gateway needs.
    fn reconcile(&mut self, key: &Key, injector: &Injector) -> Vec<Write> {
        let Some(gateway) = self.gateways.get(key).filter(|gateway| self.is_ours(gateway)).cloned() else {
            self.release(key, &BTreeSet::new());
            self.problems.remove(key);
            return Vec::new();
        };
        let mut writes = Vec::new();
        match self.wanted(key, &gateway, injector) {
            Ok(wanted) => {
                if self.problems.remove(key).is_some() {
                    tracing::info!(gateway = name(key), "the Gateway is deployed again");
                }
                self.release(key, &wanted.iter().map(|write| write.target.clone()).collect());
                for write in wanted {
                    self.owners.insert(write.target.clone(), key.clone());
                    writes.extend(self.ledger.settle(&write.target.clone(), Some(write)));
                }
            }
            Err(problem) => {
                if self.problems.get(key) != Some(&problem) {
                    tracing::warn!(gateway = name(key), %problem, "cannot deploy a Gateway; what it has is left as it is");
                    self.problems.insert(key.clone(), problem);
                }
            }
        }
        writes
    }

    /// Gives up the objects of a Gateway that are not wanted any more. They stay until the Gateway is deleted.
    fn release(&mut self, key: &Key, wanted: &BTreeSet<Target>) {
        let given_up = |(target, owner): &(&Target, &Key)| *owner == key && !wanted.contains(*target);
        let given_up: Vec<Target> = self.owners.iter().filter(given_up).map(|(target, _)| target.clone()).collect();
        for target in &given_up {
            self.owners.remove(target);
            self.ledger.forget(target);
        }
        if !given_up.is_empty() {
            let waits = |(_, problem): &(&Key, &Problem)| matches!(problem, Problem::Taken { .. });
            self.dirty.extend(self.problems.iter().filter(waits).map(|(key, _)| key.clone()));
        }
    }

    /// Whether this control plane deploys a Gateway.
    fn is_ours(&self, gateway: &Object<Gateway>) -> bool {
        let (meta, class) = (&gateway.meta, &gateway.spec.gateway_class_name);
        let served = match self.classes.get(class) {
            Some(controller) => CONTROLLERS.contains(&&**controller),
            None => *class == self.options.default_class,
        };
        // Without a UID it is not an object of this cluster, and its objects would have no owner.
        let exists = meta.deletion_timestamp.is_none() && !meta.uid.is_empty();
        served
            && exists
            && wanted::is_managed(&gateway.spec)
            && self.namespaces.is_selected(&meta.namespace)
            && self.is_of_revision(meta)
            && may_manage(meta)
    }

    /// Whether the label of a Gateway, or else of its namespace, names this revision.
    fn is_of_revision(&self, meta: &Meta) -> bool {
        let of_namespace = || self.namespaces.labels(&meta.namespace)?.get(REVISION);
        match meta.labels.get(REVISION).or_else(of_namespace) {
            Some(revision) if !revision.is_empty() => self.revisions.0.contains(revision),
            _ => self.revisions.1,
        }
    }

    fn wanted(&self, key: &Key, gateway: &Object<Gateway>, injector: &Injector) -> Result<Vec<Write>, Problem> {
        let meta = &gateway.meta;
        let parameters = match wanted::parameters_name(&gateway.spec)? {
            None => None,
            Some(name) => {
                let missing = || Problem::Parameters(format!("ConfigMap {name:?} does not exist"));
                Some(self.parameters.get(&(meta.namespace.clone(), name.clone())).ok_or_else(missing)?)
            }
        };
        let facts = Facts {
            options: &self.options,
            injector,
            mesh: &self.mesh,
            proxy_config: &self.proxy_config(meta),
            namespace: self.users.get(&meta.namespace),
            ports: &wanted::ports(self.listeners(key, gateway).into_iter(), self.options.http3),
            defaults: self.defaults(&gateway.spec.gateway_class_name),
            parameters,
        };
        let objects = wanted::objects(gateway, &facts)?;
        objects.into_iter().map(|wanted| self.write(key, wanted)).collect()
    }

    fn write(&self, key: &Key, (part, mut fields): Wanted) -> Result<Write, Problem> {
        let name_of_object = fields["metadata"]["name"].as_str().unwrap_or_default();
        let target = Target::new(part.resource, &key.0, name_of_object);
        if let Some(owner) = self.owners.get(&target).filter(|owner| *owner != key) {
            return Err(Problem::Taken { object: target.to_string(), owner: name(owner) });
        }
        if let Some(seen) = self.seen.get(&target).filter(|_| part.resource == Resource::DEPLOYMENT) {
            seen.keep_selector(&mut fields);
        }
        let body = Body::Apply { fields, manager: CONTROLLER, create: true, managed: true };
        Ok(Write { target, uid: Arc::default(), body })
    }

    /// The listeners of a Gateway, and of the ListenerSets that it accepts, by age.
    fn listeners<'l>(&'l self, key: &Key, gateway: &'l Object<Gateway>) -> Vec<&'l Listener> {
        let mut sets: Vec<&Object<ListenerSet>> = self
            .sets
            .values()
            .map(|set| &**set)
            .filter(|set| super::observe::parent(set) == *key && self.accepts(gateway, set))
            .collect();
        sets.sort_by(|a, b| a.meta.by_age(&b.meta));
        gateway.spec.listeners.iter().chain(sets.into_iter().flat_map(|set| &set.spec.listeners)).collect()
    }

    fn accepts(&self, gateway: &Object<Gateway>, set: &Object<ListenerSet>) -> bool {
        let Some(allowed) = &gateway.spec.allowed_listeners else {
            return false;
        };
        let namespace = &set.meta.namespace;
        match allowed.namespaces.from {
            FromListenerNamespaces::None => false,
            FromListenerNamespaces::Same => *namespace == gateway.meta.namespace,
            FromListenerNamespaces::All => true,
            FromListenerNamespaces::Selector => {
                let (Some(selector), Some(labels)) = (&allowed.namespaces.selector, self.namespaces.labels(namespace))
                else {
                    return false;
                };
                let mut labels = labels.clone();
                labels.entry(NAMESPACE_NAME.into()).or_insert_with(|| namespace.clone());
                selector.matches(&labels)
            }
        }
    }

    /// The effective settings of the proxies of a Gateway.
    fn proxy_config(&self, meta: &Meta) -> ProxyConfig {
        let of = |namespace: &str| self.proxy_configs.get(namespace);
        let common = |configs: &NamespaceProxyConfigs| {
            configs.common.as_ref().map(|object| ProxyConfigLayer::from_object(&object.spec))
        };
        let root = &self.mesh.root_namespace;
        let own = of(&meta.namespace);
        let labels = StringMap::from([(GATEWAY_NAME.into(), meta.name.clone())]);
        let selecting = own.and_then(|own| own.selecting(&labels));
        let layers = ProxyConfigLayers {
            mesh: of(root).and_then(common),
            namespace: own.and_then(common).filter(|_| meta.namespace != *root),
            annotation: None,
            workload: selecting.map(|object| ProxyConfigLayer::from_object(&object.spec)),
        };
        layers.over(&self.mesh.default_config)
    }

    /// The oldest ConfigMap with the defaults of a class.
    fn defaults(&self, class: &str) -> Option<(&str, &Parameters)> {
        let root: Key = (self.options.namespace.clone(), Arc::default());
        let of_root = self.parameters.range(root.clone()..).take_while(|(key, _)| key.0 == root.0);
        let of_class = of_root.filter(|(_, one)| one.class.as_deref() == Some(class));
        let oldest = of_class.min_by_key(|(key, one)| (one.created, *key));
        oldest.map(|(key, one)| (&*key.1, one))
    }
}

/// Whether no later version of the controller manages a Gateway. A text that is no number is of a later one.
///
/// The annotation is not written: istiod writes it with the status, which has no effect on custom resources in newer versions of
/// Kubernetes, and versions before 5 are out of use.
fn may_manage(meta: &Meta) -> bool {
    meta.annotation(VERSION).is_none_or(|text| text.parse::<i64>().is_ok_and(|version| version <= OWN_VERSION))
}

fn name((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}
