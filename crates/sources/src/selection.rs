//! Selection of namespaces (`MeshConfig.discoverySelectors`).
//!
//! Filters the merged changes before they reach the world. Does no I/O and stores no objects. When the labels of a
//! namespace or the selectors change, all objects of the namespace are added or removed together. Namespaces themselves
//! and cluster-scoped objects are always selected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::mesh::LabelSelector;
use config::{AnyObject, ChangeSet, Kind, MeshConfig, ObjectKey, StringMap};

use crate::aggregate::Aggregate;

/// The label that Kubernetes sets on every namespace. Namespaces of other sources have it implicitly.
const NAME: &str = "kubernetes.io/metadata.name";

/// A namespace: cluster and name.
type Namespace = (Arc<str>, Arc<str>);

/// The selected namespaces.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// A namespace is selected if any selector matches. Without selectors, all namespaces are.
    selectors: Vec<LabelSelector>,
    /// If there are selectors: the namespaces that were evaluated.
    decided: BTreeMap<Namespace, bool>,
}

impl Selection {
    /// Filters a change. `all` contains all objects after the change.
    pub fn apply(&mut self, change: ChangeSet, all: &Aggregate) -> ChangeSet {
        let selectors = self.selectors_after(&change);
        if self.selectors.is_empty() && selectors.is_empty() {
            return change;
        }
        let turned = self.turn(selectors, &change, all);
        let mut out = ChangeSet {
            diagnostics: change.diagnostics,
            ..ChangeSet::default()
        };
        for key in change.deletes {
            // Objects of a namespace that was not selected were never emitted.
            let before = match turned.get(&of(&key)) {
                Some(now) => !now,
                None => self.sees(&key, all),
            };
            if before {
                out.delete(key);
            }
        }
        for (key, object) in change.upserts {
            if !turned.contains_key(&of(&key)) && self.sees(&key, all) {
                out.upsert(object);
            }
        }
        if !turned.is_empty() {
            for (key, object) in all.objects().filter(|(key, _)| key.kind.is_namespaced()) {
                match turned.get(&of(key)) {
                    Some(true) => out.upsert(object.clone()),
                    Some(false) => out.delete(key.clone()),
                    None => {}
                }
            }
        }
        if self.selectors.is_empty() {
            self.decided.clear();
        }
        out
    }

    fn selectors_after(&self, change: &ChangeSet) -> Vec<LabelSelector> {
        let mut configs = change.upserts.values().filter_map(|object| match object {
            AnyObject::MeshConfig(config) => Some(config.spec.discovery_selectors.clone()),
            _ => None,
        });
        configs
            .next_back()
            .unwrap_or_else(|| match change.deletes.contains(&MeshConfig::key()) {
                true => Vec::new(),
                false => self.selectors.clone(),
            })
    }

    /// Updates selectors and labels. Returns the namespaces whose selection changed.
    fn turn(
        &mut self,
        selectors: Vec<LabelSelector>,
        change: &ChangeSet,
        all: &Aggregate,
    ) -> BTreeMap<Namespace, bool> {
        let mut asked: BTreeSet<Namespace> = BTreeSet::new();
        if selectors != self.selectors {
            if self.selectors.is_empty() {
                // Objects deleted by this change were selected, too.
                let inside = all
                    .objects()
                    .map(|(key, _)| key)
                    .chain(&change.deletes)
                    .filter(|key| key.kind.is_namespaced());
                self.decided = inside.map(|key| (of(key), true)).collect();
            }
            asked.extend(self.decided.keys().cloned());
            self.selectors = selectors;
        }
        let named = change.upserts.keys().chain(&change.deletes).cloned();
        asked.extend(
            named
                .filter(|key| key.kind == Kind::Namespace)
                .map(|key| (key.cluster, key.name)),
        );
        let mut turned = BTreeMap::new();
        for namespace in asked {
            let now = self.decide(&namespace, all);
            // A namespace that was never evaluated has no emitted objects.
            if let Some(before) = self.decided.get_mut(&namespace)
                && std::mem::replace(before, now) != now
            {
                turned.insert(namespace, now);
            }
        }
        turned
    }

    fn sees(&mut self, key: &ObjectKey, all: &Aggregate) -> bool {
        if !key.kind.is_namespaced() {
            return true;
        }
        let namespace = of(key);
        if let Some(decided) = self.decided.get(&namespace) {
            return *decided;
        }
        let decided = self.decide(&namespace, all);
        self.decided.insert(namespace, decided);
        decided
    }

    fn decide(&self, (cluster, name): &Namespace, all: &Aggregate) -> bool {
        if self.selectors.is_empty() {
            return true;
        }
        let key = ObjectKey::new(Kind::Namespace, "", name.clone()).in_cluster(cluster.clone());
        let mut labels: StringMap = all
            .get(&key)
            .map(|object| object.meta().labels.clone())
            .unwrap_or_default();
        labels.insert(NAME.into(), name.clone());
        self.selectors.iter().any(|selector| selector.matches(&labels))
    }
}

fn of(key: &ObjectKey) -> Namespace {
    (key.cluster.clone(), key.namespace.clone())
}

#[cfg(test)]
mod tests {
    use config::ParseOptions;
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> AnyObject {
        let parsed = config::parse_documents(text.as_bytes(), "test", &ParseOptions::default());
        parsed.objects.into_iter().next().unwrap()
    }

    fn entry(namespace: &str, name: u8, host: u8) -> AnyObject {
        parse(&format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: e{name}, namespace: {namespace}}}\nspec:\n  hosts: [h{host}.com]\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n  resolution: DNS\n"
        ))
    }

    fn namespace(name: &str, label: u8) -> AnyObject {
        parse(&format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}, labels: {{seen: l{label}}}}}\n"
        ))
    }

    fn mesh(selectors: &[u8]) -> AnyObject {
        let label = |value: &u8| LabelSelector {
            match_labels: [("seen".into(), format!("l{value}").into())].into(),
            ..LabelSelector::default()
        };
        let config = MeshConfig {
            discovery_selectors: selectors.iter().map(label).collect(),
            ..MeshConfig::default()
        };
        config::Object::new("", MeshConfig::NAME, config).into()
    }

    #[test]
    fn a_label_selects_and_deselects_all_objects_of_a_namespace() {
        let (mut selection, mut all) = (Selection::default(), Aggregate::new(["only"]));
        let mut put = |object: AnyObject| {
            let change = all.apply(0, [object].into_iter().collect());
            selection.apply(change, &all)
        };
        put(mesh(&[1]));
        assert!(put(entry("a", 1, 1)).is_empty() && put(entry("a", 2, 1)).is_empty());
        assert_eq!(put(namespace("a", 1)).upserts.len(), 3, "the namespace and its objects");
        assert_eq!(put(namespace("a", 2)).deletes.len(), 2);
        assert_eq!(put(mesh(&[1, 2])).upserts.len(), 3);
        assert!(put(entry("b", 1, 1)).is_empty());
        assert_eq!(
            put(mesh(&[])).upserts.len(),
            2,
            "all objects are selected without selectors"
        );
    }

    /// The objects that a mesh should see, computed from all objects.
    fn seen(all: &BTreeMap<ObjectKey, AnyObject>) -> BTreeMap<ObjectKey, AnyObject> {
        let selectors = match all.get(&MeshConfig::key()) {
            Some(AnyObject::MeshConfig(config)) => config.spec.discovery_selectors.clone(),
            _ => Vec::new(),
        };
        let sees = |key: &&ObjectKey| {
            let of = all.get(&ObjectKey::new(Kind::Namespace, "", key.namespace.clone()));
            let labels = of.map(|object| object.meta().labels.clone()).unwrap_or_default();
            !key.kind.is_namespaced()
                || selectors.is_empty()
                || selectors.iter().any(|selector| selector.matches(&labels))
        };
        all.keys()
            .filter(sees)
            .map(|key| (key.clone(), all[key].clone()))
            .collect()
    }

    fn step() -> impl Strategy<Value = Result<AnyObject, ObjectKey>> {
        let names = prop_oneof![Just("a"), Just("b"), Just("c")];
        prop_oneof![
            4 => (names.clone(), 0..3u8, 0..3u8).prop_map(|(space, name, host)| Ok(entry(space, name, host))),
            2 => (names.clone(), 0..3u8).prop_map(|(space, name)| Err(entry(space, name, 0).key())),
            2 => (names.clone(), 0..3u8).prop_map(|(space, label)| Ok(namespace(space, label))),
            1 => names.prop_map(|space| Err(namespace(space, 0).key())),
            1 => proptest::collection::vec(0..3u8, 0..3).prop_map(|selectors| Ok(mesh(&selectors))),
            1 => Just(Err(MeshConfig::key())),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn the_result_equals_a_fresh_selection(changes in proptest::collection::vec(proptest::collection::vec(step(), 1..4), 1..25)) {
            let mut selection = Selection::default();
            let mut merged = Aggregate::new(["only"]);
            let (mut all, mut emitted) = (BTreeMap::new(), BTreeMap::new());
            for steps in changes {
                // Each object changes once per change, as in merged changes.
                let steps: BTreeMap<ObjectKey, Option<AnyObject>> = steps.into_iter().map(|step| match step {
                    Ok(object) => (object.key(), Some(object)),
                    Err(key) => (key, None),
                }).collect();
                let mut change = ChangeSet::default();
                for (key, object) in steps {
                    match object {
                        Some(object) => {
                            all.insert(key, object.clone());
                            change.upsert(object);
                        }
                        None if all.remove(&key).is_some() => change.delete(key),
                        None => {}
                    }
                }
                let out = selection.apply(merged.apply(0, change), &merged);
                for key in out.deletes {
                    emitted.remove(&key);
                }
                emitted.extend(out.upserts);
                prop_assert_eq!(&emitted, &seen(&all));
            }
        }
    }
}
