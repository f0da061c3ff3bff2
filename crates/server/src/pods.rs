//! The pods of all clusters by name and node, for node agents that ask for certificates of pods on their node.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ca::caller::{Pod, Pods};
use config::{AnyObject, ChangeSet, Kind, ObjectKey};

/// The pods that have not ended. Empty unless enabled, because only node agents need it. Cheap to clone.
#[derive(Clone, Default)]
pub struct PodIndex(Arc<Shared>);

#[derive(Default)]
struct Shared {
    enabled: AtomicBool,
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    pods: HashMap<ObjectKey, Facts>,
    /// The number of pods with a service account on a node.
    accounts: HashMap<OnNode, usize>,
}

struct Facts {
    uid: Arc<str>,
    service_account: Arc<str>,
    node: Arc<str>,
}

/// A service account on a node.
#[derive(PartialEq, Eq, Hash)]
struct OnNode {
    cluster: Arc<str>,
    node: Arc<str>,
    namespace: Arc<str>,
    service_account: Arc<str>,
}

impl OnNode {
    fn of(key: &ObjectKey, facts: &Facts) -> Option<OnNode> {
        (!facts.node.is_empty()).then(|| OnNode {
            cluster: key.cluster.clone(),
            node: facts.node.clone(),
            namespace: key.namespace.clone(),
            service_account: facts.service_account.clone(),
        })
    }
}

impl PodIndex {
    /// Begins to record pods. Call it before the first commit.
    pub fn enable(&self) {
        self.0.enabled.store(true, Ordering::Release);
    }

    /// Applies a committed change.
    pub(crate) fn apply(&self, change: &ChangeSet) {
        if !self.0.enabled.load(Ordering::Acquire) {
            return;
        }
        let mut tables = self.tables();
        for key in change.deletes.iter().filter(|key| key.kind == Kind::Pod) {
            tables.remove(key);
        }
        for (key, object) in &change.upserts {
            let AnyObject::Pod(pod) = object else { continue };
            tables.remove(key);
            if !pod.spec.is_terminal() {
                let facts = Facts {
                    uid: pod.meta.uid.clone(),
                    service_account: pod.spec.service_account(),
                    node: pod.spec.node_name.clone(),
                };
                tables.add(key.clone(), facts);
            }
        }
    }

    /// The pods of a cluster; empty is the configuration cluster.
    pub(crate) fn of_cluster(&self, cluster: &str) -> ClusterPods {
        ClusterPods { index: self.clone(), cluster: cluster.into() }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        // Each change of the tables is complete even if a holder panicked later.
        self.0.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tables {
    fn add(&mut self, key: ObjectKey, facts: Facts) {
        if let Some(place) = OnNode::of(&key, &facts) {
            *self.accounts.entry(place).or_default() += 1;
        }
        self.pods.insert(key, facts);
    }

    fn remove(&mut self, key: &ObjectKey) {
        let place = self.pods.remove(key).and_then(|facts| OnNode::of(key, &facts));
        if let Some(place) = place
            && let Some(count) = self.accounts.get_mut(&place)
        {
            *count -= 1;
            if *count == 0 {
                self.accounts.remove(&place);
            }
        }
    }
}

/// The pods of one cluster.
pub(crate) struct ClusterPods {
    index: PodIndex,
    cluster: Arc<str>,
}

impl Pods for ClusterPods {
    fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        let key = ObjectKey {
            kind: Kind::Pod,
            namespace: namespace.into(),
            name: name.into(),
            cluster: self.cluster.clone(),
        };
        let tables = self.index.tables();
        let facts = tables.pods.get(&key)?;
        Some(Pod {
            uid: facts.uid.to_string(),
            service_account: facts.service_account.to_string(),
            node: facts.node.to_string(),
        })
    }

    fn has_account_on_node(&self, node: &str, namespace: &str, service_account: &str) -> bool {
        let place = OnNode {
            cluster: self.cluster.clone(),
            node: node.into(),
            namespace: namespace.into(),
            service_account: service_account.into(),
        };
        self.index.tables().accounts.contains_key(&place)
    }
}

#[cfg(test)]
mod tests {
    use config::core::{Pod as Spec, PodPhase};
    use config::{Object, Resource as _};

    use super::*;

    fn pod(name: &str, account: &str, node: &str, phase: PodPhase) -> AnyObject {
        let mut spec = Spec { service_account_name: account.into(), node_name: node.into(), ..Spec::default() };
        spec.status.phase = phase;
        let mut object = Object::new("shop", name, spec);
        object.meta.uid = format!("uid-{name}").into();
        Spec::into_any(Arc::new(object))
    }

    fn change(objects: impl IntoIterator<Item = AnyObject>) -> ChangeSet {
        objects.into_iter().collect()
    }

    #[test]
    fn pods_are_found_by_name_and_by_node_until_they_end() {
        let index = PodIndex::default();
        index.apply(&change([pod("early", "cart", "n1", PodPhase::Running)]));
        let home = index.of_cluster("");
        assert!(home.pod("shop", "early").is_none(), "the index is not enabled");
        index.enable();
        let two = ["a", "b"].map(|name| pod(name, "cart", "n1", PodPhase::Running));
        index.apply(&change(two));
        index.apply(&change([pod("c", "", "n2", PodPhase::Pending), pod("d", "cart", "", PodPhase::Pending)]));
        index.apply(&change([pod("far", "cart", "n9", PodPhase::Running).in_cluster("east")]));
        assert_eq!(home.pod("shop", "a").map(|pod| pod.uid).as_deref(), Some("uid-a"));
        let on = |node: &str, account: &str| home.has_account_on_node(node, "shop", account);
        assert!(on("n1", "cart") && on("n2", "default"));
        assert!(!on("n2", "cart") && !on("n9", "cart") && !on("", "cart"));
        assert!(index.of_cluster("east").has_account_on_node("n9", "shop", "cart"));
        index.apply(&change([pod("a", "cart", "n1", PodPhase::Failed)]));
        assert!(home.pod("shop", "a").is_none() && on("n1", "cart"));
        let mut gone = ChangeSet::default();
        gone.delete(pod("b", "", "", PodPhase::Running).key());
        index.apply(&gone);
        assert!(!on("n1", "cart"));
        index.apply(&change([pod("c", "cart", "n3", PodPhase::Running)]));
        assert!(on("n3", "cart") && !on("n2", "default"));
    }
}
