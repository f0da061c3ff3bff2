//! The observed objects, and the Gateways that they concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::gateway_api::{Gateway, ListenerSet};
use config::mesh::NamespaceProxyConfigs;
use config::{MeshConfig, Object, istio};
use inject::Injector;
use serde_json::Value;

use super::drift::{self, Seen};
use super::overlay::Parameters;
use super::{GatewayDeployments, Key, Options, Problem, driver, wanted};
use crate::{Body, Target, put};

impl GatewayDeployments {
    /// Without objects, and without an injection configuration: nothing is planned yet.
    pub fn new(options: Options) -> GatewayDeployments {
        GatewayDeployments { options, ..GatewayDeployments::default() }
    }

    /// The Gateways whose objects cannot be made, by namespace and name.
    pub fn problems(&self) -> &BTreeMap<Key, Problem> {
        &self.problems
    }

    pub(super) fn all(&mut self) {
        self.dirty.extend(self.gateways.keys().cloned());
    }

    fn some(&mut self, concerned: impl Fn(&GatewayDeployments, &Key, &Object<Gateway>) -> bool) {
        let this = &*self;
        let concerned = this.gateways.iter().filter(|(key, gateway)| concerned(this, key, gateway));
        let keys: Vec<Key> = concerned.map(|(key, _)| key.clone()).collect();
        self.dirty.extend(keys);
    }

    /// Sets the injection configuration. Without one, nothing is planned.
    pub fn injector(&mut self, injector: Option<&Arc<Injector>>) {
        let same = match (&self.injector, injector) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if !same {
            self.injector = injector.cloned();
            self.all();
        }
    }

    /// Sets the mesh configuration.
    pub fn mesh(&mut self, mesh: &MeshConfig) {
        self.namespaces.select_by(&mesh.discovery_selectors);
        self.mesh = mesh.clone();
        self.all();
    }

    /// Sets the names of this revision, and whether objects without a revision belong to it.
    pub fn revisions(&mut self, names: &BTreeSet<Arc<str>>, is_default: bool) {
        if (&self.revisions.0, self.revisions.1) != (names, is_default) {
            self.revisions = (names.clone(), is_default);
            self.all();
        }
    }

    /// Sets all Gateways.
    pub fn gateways(&mut self, all: impl Iterator<Item = Arc<Object<Gateway>>>) {
        let all: BTreeMap<Key, Arc<Object<Gateway>>> = all.map(|one| (key(&one.meta), one)).collect();
        let gone = self.gateways.keys().filter(|key| !all.contains_key(*key)).cloned();
        let differs = |key: &Key, now: &Object<Gateway>| self.gateways.get(key).is_none_or(|was| !is_same(was, now));
        let changed = all.iter().filter(|(key, now)| differs(key, now)).map(|(key, _)| key.clone());
        let dirty: Vec<Key> = gone.chain(changed).collect();
        self.dirty.extend(dirty);
        self.gateways = all;
    }

    /// Sets all ListenerSets.
    pub fn listener_sets(&mut self, all: impl Iterator<Item = Arc<Object<ListenerSet>>>) {
        let all: BTreeMap<Key, Arc<Object<ListenerSet>>> = all.map(|one| (key(&one.meta), one)).collect();
        let differs = |(key, set): &(&Key, &Arc<Object<ListenerSet>>)| {
            all.get(*key).is_none_or(|one| one.spec != set.spec)
                || self.sets.get(*key).is_none_or(|one| one.spec != set.spec)
        };
        let parents: Vec<Key> = self.sets.iter().chain(&all).filter(differs).map(|(_, set)| parent(set)).collect();
        self.dirty.extend(parents);
        self.sets = all;
    }

    /// Sets the controllers of all GatewayClasses.
    pub fn classes(&mut self, all: BTreeMap<Arc<str>, Arc<str>>) {
        let before = std::mem::replace(&mut self.classes, all);
        self.some(|this, _, gateway| {
            let class = &gateway.spec.gateway_class_name;
            before.get(class) != this.classes.get(class)
        });
    }

    /// Sets all ProxyConfigs.
    pub fn proxy_configs(&mut self, all: impl Iterator<Item = Arc<Object<istio::ProxyConfig>>>) {
        let mut sorted: BTreeMap<Arc<str>, Vec<Arc<Object<istio::ProxyConfig>>>> = BTreeMap::new();
        all.for_each(|one| sorted.entry(one.meta.namespace.clone()).or_default().push(one));
        self.proxy_configs =
            sorted.into_iter().map(|(namespace, all)| (namespace, NamespaceProxyConfigs::of(all))).collect();
        self.all();
    }

    /// Handles an added, changed or deleted Namespace.
    pub fn namespace(&mut self, object: &Value, there: bool) {
        let name = crate::id(object).1;
        let before = self.namespaces.labels(name).cloned();
        self.namespaces.see(object, there);
        let users = driver::users(object).filter(|_| there);
        let users_before = put(&mut self.users, name, users);
        if before.as_ref() != self.namespaces.labels(name) || users_before.as_ref() != self.users.get(name) {
            // ListenerSets of a namespace may belong to Gateways of others.
            match self.sets.is_empty() {
                true => self.some(|_, (namespace, _), _| **namespace == *name),
                false => self.all(),
            }
        }
    }

    /// Sets a ConfigMap; `None` if it was deleted.
    pub fn parameters(&mut self, namespace: &str, name: &str, found: Option<Parameters>) {
        let key: Key = (namespace.into(), name.into());
        let before = put(&mut self.parameters, key.clone(), found.clone());
        if before == found {
            return;
        }
        let classes: Vec<Arc<str>> = [before, found].into_iter().flatten().filter_map(|one| one.class).collect();
        let is_root = *self.options.namespace == *namespace;
        self.some(|_, (namespace, _), gateway| {
            let named = wanted::parameters_name(&gateway.spec).ok().flatten();
            (*namespace == key.0 && named == Some(&key.1))
                || (is_root && classes.contains(&gateway.spec.gateway_class_name))
        });
    }

    /// Sets an object with the label of the controller; `None` if it was deleted or lost the label.
    pub fn object(&mut self, target: &Target, object: Option<&Value>) {
        let seen = object.map(Seen::of);
        if seen.as_ref() == self.seen.get(target) {
            return;
        }
        let wanted = match self.ledger.given(target).map(|write| &write.body) {
            Some(Body::Apply { fields, .. }) => Some(fields),
            _ => None,
        };
        let reached = object.zip(wanted).is_some_and(|(object, wanted)| drift::covers(object, wanted));
        if !reached {
            self.ledger.forget(target);
            self.dirty.extend(self.owners.get(target).cloned());
        }
        match seen {
            Some(seen) => drop(self.seen.insert(target.clone(), seen)),
            None => drop(self.seen.remove(target)),
        }
    }
}

/// The namespace and name of an object.
fn key(meta: &config::Meta) -> Key {
    (meta.namespace.clone(), meta.name.clone())
}

/// Whether two versions of a Gateway have the same objects.
fn is_same(was: &Object<Gateway>, now: &Object<Gateway>) -> bool {
    let (a, b) = (&was.meta, &now.meta);
    was.spec == now.spec
        && (&a.uid, &a.labels, &a.annotations, a.deletion_timestamp)
            == (&b.uid, &b.labels, &b.annotations, b.deletion_timestamp)
}

/// The Gateway that a ListenerSet adds to.
pub(super) fn parent(set: &Object<ListenerSet>) -> Key {
    let parent = &set.spec.parent_ref;
    (parent.namespace.clone().unwrap_or_else(|| set.meta.namespace.clone()), parent.name.clone())
}
