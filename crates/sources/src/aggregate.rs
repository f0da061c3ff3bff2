//! Merges several sources. If several define the same object, the one with the lowest rank takes precedence. The others
//! get a diagnostic, and the next one takes over when the object is deleted.
//!
//! Pure: changes of single sources in, changes of the merged configuration out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, Diagnostic, FieldPath, ObjectKey, Severity};

use config::ChangeSet;

/// The merged sources, by rank. Objects are shared with the sources and the world: this holds keys and pointers.
#[derive(Default)]
pub struct Aggregate {
    sources: Vec<Source>,
}

#[derive(Default)]
struct Source {
    name: Arc<str>,
    objects: BTreeMap<ObjectKey, AnyObject>,
    /// The overridden objects, with the rank of the overriding source.
    overridden: BTreeMap<ObjectKey, usize>,
}

impl Aggregate {
    /// Sources of these names, by rank.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Aggregate {
        let source = |name: Arc<str>| Source {
            name,
            ..Source::default()
        };
        Aggregate {
            sources: names.into_iter().map(|name| source(name.into())).collect(),
        }
    }

    /// Applies a change of one source and returns the change of the merged configuration. An unknown rank has no effect.
    ///
    /// Diagnostics of the source are passed on. Diagnostics about overridden objects are reported under the source's
    /// name.
    pub fn apply(&mut self, rank: usize, change: ChangeSet) -> ChangeSet {
        let mut merged = ChangeSet {
            diagnostics: change.diagnostics,
            ..ChangeSet::default()
        };
        if rank >= self.sources.len() {
            return ChangeSet::default();
        }
        let mut reporting = BTreeSet::new();
        let deletes = change.deletes.into_iter().map(|key| (key, None));
        let upserts = change.upserts.into_iter().map(|(key, object)| (key, Some(object)));
        for (key, object) in deletes.chain(upserts) {
            self.set(rank, key, object, &mut merged, &mut reporting);
        }
        for rank in reporting {
            let source = &self.sources[rank];
            merged.diagnostics.insert(source.name.clone(), self.conflicts(source));
        }
        merged
    }

    /// Replaces all objects of a source in a cluster.
    pub fn replace(&mut self, rank: usize, cluster: &str, mut change: ChangeSet) -> ChangeSet {
        if let Some(source) = self.sources.get(rank) {
            let of_cluster = source.objects.keys().filter(|key| *key.cluster == *cluster);
            let absent = of_cluster.filter(|key| !change.upserts.contains_key(*key));
            change.deletes.extend(absent.cloned());
        }
        self.apply(rank, change)
    }

    /// The version of an object that is in effect.
    pub fn get(&self, key: &ObjectKey) -> Option<&AnyObject> {
        self.sources.iter().find_map(|source| source.objects.get(key))
    }

    /// All objects in effect.
    pub fn objects(&self) -> impl Iterator<Item = (&ObjectKey, &AnyObject)> {
        self.sources.iter().flat_map(|source| {
            let objects = source.objects.iter();
            objects.filter(|(key, _)| !source.overridden.contains_key(*key))
        })
    }

    /// The source whose version of an object is in effect.
    pub fn holder(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.rank_in_effect(key).map(|rank| &self.sources[rank].name)
    }

    fn rank_in_effect(&self, key: &ObjectKey) -> Option<usize> {
        self.sources.iter().position(|source| source.objects.contains_key(key))
    }

    /// Sets or deletes an object of one source: updates its version in effect and the overridden sources.
    fn set(
        &mut self,
        rank: usize,
        key: ObjectKey,
        object: Option<AnyObject>,
        merged: &mut ChangeSet,
        reporting: &mut BTreeSet<usize>,
    ) {
        let before = self.get(&key).cloned();
        match object {
            Some(object) => drop(self.sources[rank].objects.insert(key.clone(), object)),
            None => drop(self.sources[rank].objects.remove(&key)),
        }
        match (before, self.get(&key)) {
            (Some(before), Some(now)) if before == *now => {}
            (_, Some(now)) => merged.upsert(now.clone()),
            (Some(_), None) => merged.delete(key.clone()),
            (None, None) => {}
        }
        let in_effect = self.rank_in_effect(&key);
        for (index, source) in self.sources.iter_mut().enumerate() {
            let overriding = in_effect.filter(|rank| *rank < index && source.objects.contains_key(&key));
            let before = match overriding {
                Some(rank) => source.overridden.insert(key.clone(), rank),
                None => source.overridden.remove(&key),
            };
            if before != overriding {
                reporting.insert(index);
            }
        }
    }

    fn conflicts(&self, source: &Source) -> Vec<Diagnostic> {
        let conflict = |(key, rank): (&ObjectKey, &usize)| {
            let object = source.objects.get(key);
            let origin = object.and_then(|object| object.meta().origin.as_ref());
            Diagnostic {
                file: Some(origin.map_or_else(|| source.name.clone(), |origin| origin.file.clone())),
                line: origin.map_or(0, |origin| origin.line),
                column: u32::from(origin.is_some()),
                object: Some(key.clone()),
                path: FieldPath::root(),
                severity: Severity::Warning,
                code: "defined-in-two-sources",
                message: format!(
                    "{0} and {1} define this object; {0} takes precedence",
                    self.sources[*rank].name, source.name
                ),
                hint: Some("keep one of them".into()),
            }
        };
        source.overridden.iter().map(conflict).collect()
    }
}

#[cfg(test)]
mod tests {
    use config::ParseOptions;
    use proptest::prelude::*;

    use super::*;

    fn entry(name: &str, host: u8) -> AnyObject {
        let text = format!(
            "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  hosts: [h{host}.com]\n  ports: [{{number: 80, name: http, protocol: HTTP}}]\n  resolution: DNS\n"
        );
        let parsed = config::parse_documents(text.as_bytes(), "test", &ParseOptions::default());
        parsed.objects.into_iter().next().expect("a valid object")
    }

    fn put(object: &AnyObject) -> ChangeSet {
        ChangeSet {
            upserts: [(object.key(), object.clone())].into(),
            ..ChangeSet::default()
        }
    }

    fn objects(change: &ChangeSet) -> Vec<AnyObject> {
        change.upserts.values().cloned().collect()
    }

    fn remove(object: &AnyObject) -> ChangeSet {
        ChangeSet {
            deletes: [object.key()].into(),
            ..ChangeSet::default()
        }
    }

    #[test]
    fn the_first_source_takes_precedence_and_the_next_takes_over() {
        let mut all = Aggregate::new(["first", "second"]);
        let (one, two) = (entry("a", 1), entry("a", 2));
        assert_eq!(objects(&all.apply(1, put(&two))), vec![two.clone()]);
        let change = all.apply(0, put(&one));
        assert_eq!(objects(&change), vec![one.clone()]);
        let reported = &change.diagnostics["second"][0];
        assert!(
            reported.message.contains("first") && reported.message.contains("second"),
            "{}",
            reported.message
        );
        assert_eq!(all.holder(&one.key()).map(|name| &**name), Some("first"));
        // Changes of an overridden object have no effect.
        assert!(all.apply(1, put(&entry("a", 3))).is_empty());
        let change = all.apply(0, remove(&one));
        assert_eq!((objects(&change), change.deletes.len()), (vec![entry("a", 3)], 0));
        assert!(change.diagnostics["second"].is_empty(), "the diagnostic is cleared");
        assert_eq!(all.apply(1, remove(&two)).deletes, [one.key()].into());
        assert!(all.apply(1, remove(&two)).is_empty(), "it was deleted already");
        assert!(all.apply(7, put(&one)).is_empty(), "there is no such source");
    }

    #[test]
    fn replacing_a_cluster_deletes_absent_objects() {
        let mut all = Aggregate::new(["only"]);
        all.apply(0, put(&entry("a", 1)));
        all.apply(0, put(&entry("b", 1)));
        let change = all.replace(0, "west", put(&entry("b", 2)));
        assert_eq!(objects(&change), vec![entry("b", 2)]);
        assert!(
            change.deletes.is_empty(),
            "the existing object belongs to another cluster"
        );
        let change = all.replace(0, "", put(&entry("b", 2)));
        assert_eq!(change.deletes, [entry("a", 1).key()].into());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn the_result_equals_a_fresh_merge_of_all_sources(steps in proptest::collection::vec((0..3usize, 0..4u8, proptest::option::of(0..3u8)), 1..40)) {
            let names = ["x", "y", "z"];
            let mut all = Aggregate::new(names);
            let mut sources: [BTreeMap<u8, u8>; 3] = Default::default();
            let mut seen = BTreeMap::new();
            let mut reported: BTreeMap<Arc<str>, usize> = BTreeMap::new();
            for (place, name, host) in steps {
                let change = match host {
                    Some(host) => { sources[place].insert(name, host); put(&entry(&format!("n{name}"), host)) }
                    None => { sources[place].remove(&name); remove(&entry(&format!("n{name}"), 0)) }
                };
                let change = all.apply(place, change);
                for object in change.upserts.into_values() {
                    prop_assert_ne!(seen.insert(object.key(), object.clone()), Some(object), "an upsert that changes nothing");
                }
                for key in change.deletes {
                    prop_assert!(seen.remove(&key).is_some());
                }
                reported.extend(change.diagnostics.into_iter().map(|(name, list)| (name, list.len())));
                let mut expected = BTreeMap::new();
                let mut shadows = [0; 3];
                for name in 0..4 {
                    let holders: Vec<usize> = (0..3).filter(|place| sources[*place].contains_key(&name)).collect();
                    if let Some(first) = holders.first() {
                        let object = entry(&format!("n{name}"), sources[*first][&name]);
                        expected.insert(object.key(), object);
                    }
                    holders.iter().skip(1).for_each(|place| shadows[*place] += 1);
                }
                prop_assert_eq!(&seen, &expected);
                for (place, name) in names.into_iter().enumerate() {
                    prop_assert_eq!(reported.get(name).copied().unwrap_or(0), shadows[place]);
                }
            }
        }
    }
}
