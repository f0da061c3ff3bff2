//! Several sources as one. Of sources that define the same object the first in order holds; the others are told so, and
//! the next one takes over when the object goes there.
//!
//! It reads nothing and waits for nothing: changes of single sources go in, changes of the whole come out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::{AnyObject, Diagnostic, FieldPath, ObjectKey, Severity};

use crate::Change;

/// The joined sources.
#[derive(Default)]
pub struct Aggregate {
    sources: Vec<Source>,
    /// What was said last to be in force.
    whole: BTreeMap<ObjectKey, AnyObject>,
}

#[derive(Default)]
struct Source {
    name: Arc<str>,
    objects: BTreeMap<ObjectKey, AnyObject>,
    /// Of which of its objects it was said last that another source holds, and which.
    shadowed: BTreeMap<ObjectKey, usize>,
}

impl Aggregate {
    /// Sources of these names, the first one winning.
    pub fn new(names: impl IntoIterator<Item = impl Into<Arc<str>>>) -> Aggregate {
        let source = |name: Arc<str>| Source {
            name,
            ..Source::default()
        };
        Aggregate {
            sources: names.into_iter().map(|name| source(name.into())).collect(),
            whole: BTreeMap::new(),
        }
    }

    /// Takes in a change of one source, by its place in the order; returns what changes in the whole. A place that no
    /// source has changes nothing.
    ///
    /// Diagnostics of the source pass through. Those about objects that another source holds are listed below the
    /// source's own name.
    pub fn apply(&mut self, place: usize, change: Change) -> Change {
        let mut whole = Change {
            diagnostics: change.diagnostics,
            ..Change::default()
        };
        let Some(source) = self.sources.get_mut(place) else {
            return Change::default();
        };
        let mut touched = BTreeSet::new();
        for key in change.deletes {
            if source.objects.remove(&key).is_some() {
                touched.insert(key);
            }
        }
        for object in change.upserts {
            touched.insert(object.key());
            source.objects.insert(object.key(), object);
        }
        let mut spoken = BTreeSet::new();
        for key in touched {
            self.settle(&key, &mut whole, &mut spoken);
        }
        for place in spoken {
            let source = &self.sources[place];
            whole.diagnostics.insert(source.name.clone(), self.said(source));
        }
        whole
    }

    /// Replaces everything that a source has of a cluster: what the change does not name is gone.
    pub fn replace(&mut self, place: usize, cluster: &str, mut change: Change) -> Change {
        let named: BTreeSet<ObjectKey> = change.upserts.iter().map(AnyObject::key).collect();
        if let Some(source) = self.sources.get(place) {
            let of_cluster = source.objects.keys().filter(|key| *key.cluster == *cluster);
            change
                .deletes
                .extend(of_cluster.filter(|key| !named.contains(*key)).cloned());
        }
        self.apply(place, change)
    }

    /// All objects that are in force.
    pub fn objects(&self) -> &BTreeMap<ObjectKey, AnyObject> {
        &self.whole
    }

    /// The names of the sources, in order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.sources.iter().map(|source| &source.name)
    }

    /// Which source holds an object.
    pub fn holder(&self, key: &ObjectKey) -> Option<&Arc<str>> {
        self.sources
            .iter()
            .find(|source| source.objects.contains_key(key))
            .map(|source| &source.name)
    }

    /// After the object of a source changed: what that does to the whole, and who has something else to say.
    fn settle(&mut self, key: &ObjectKey, whole: &mut Change, spoken: &mut BTreeSet<usize>) {
        let holder = self.sources.iter().position(|source| source.objects.contains_key(key));
        match holder.and_then(|holder| self.sources[holder].objects.get(key)) {
            Some(object) if self.whole.get(key) == Some(object) => {}
            Some(object) => {
                self.whole.insert(key.clone(), object.clone());
                whole.upserts.push(object.clone());
            }
            None => {
                if self.whole.remove(key).is_some() {
                    whole.deletes.push(key.clone());
                }
            }
        }
        for (index, source) in self.sources.iter_mut().enumerate() {
            let shadow = holder.filter(|holder| *holder < index && source.objects.contains_key(key));
            let before = match shadow {
                Some(holder) => source.shadowed.insert(key.clone(), holder),
                None => source.shadowed.remove(key),
            };
            if before != shadow {
                spoken.insert(index);
            }
        }
    }

    fn said(&self, source: &Source) -> Vec<Diagnostic> {
        let one = |(key, holder): (&ObjectKey, &usize)| {
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
                    "{} and {} define this object; that of {0} holds",
                    self.sources[*holder].name, source.name
                ),
                hint: Some("keep one of them".into()),
            }
        };
        source.shadowed.iter().map(one).collect()
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

    fn put(object: &AnyObject) -> Change {
        Change {
            upserts: vec![object.clone()],
            ..Change::default()
        }
    }

    fn remove(object: &AnyObject) -> Change {
        Change {
            deletes: vec![object.key()],
            ..Change::default()
        }
    }

    #[test]
    fn the_first_source_holds_and_the_next_takes_over() {
        let mut all = Aggregate::new(["first", "second"]);
        let (one, two) = (entry("a", 1), entry("a", 2));
        assert_eq!(all.apply(1, put(&two)).upserts, vec![two.clone()]);
        let change = all.apply(0, put(&one));
        assert_eq!(change.upserts, vec![one.clone()]);
        let said = &change.diagnostics["second"][0];
        assert!(
            said.message.contains("first") && said.message.contains("second"),
            "{}",
            said.message
        );
        assert_eq!(all.holder(&one.key()).map(|name| &**name), Some("first"));
        // What is shadowed changes nothing.
        assert!(all.apply(1, put(&entry("a", 3))).is_empty());
        let change = all.apply(0, remove(&one));
        assert_eq!((change.upserts, change.deletes.len()), (vec![entry("a", 3)], 0));
        assert!(change.diagnostics["second"].is_empty(), "it is taken back");
        assert_eq!(all.apply(1, remove(&two)).deletes, vec![one.key()]);
        assert!(all.apply(1, remove(&two)).is_empty(), "it is gone already");
        assert!(all.apply(7, put(&one)).is_empty(), "there is no such source");
    }

    #[test]
    fn replacing_a_cluster_deletes_what_it_no_longer_names() {
        let mut all = Aggregate::new(["only"]);
        all.apply(0, put(&entry("a", 1)));
        all.apply(0, put(&entry("b", 1)));
        let change = all.replace(0, "west", put(&entry("b", 2)));
        assert_eq!(change.upserts, vec![entry("b", 2)]);
        assert!(change.deletes.is_empty(), "what is there is of another cluster");
        let change = all.replace(0, "", put(&entry("b", 2)));
        assert_eq!(change.deletes, vec![entry("a", 1).key()]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn it_is_what_a_look_at_all_sources_finds(steps in proptest::collection::vec((0..3usize, 0..4u8, proptest::option::of(0..3u8)), 1..40)) {
            let names = ["x", "y", "z"];
            let mut all = Aggregate::new(names);
            let mut sources: [BTreeMap<u8, u8>; 3] = Default::default();
            let mut seen = BTreeMap::new();
            let mut said: BTreeMap<Arc<str>, usize> = BTreeMap::new();
            for (place, name, host) in steps {
                let change = match host {
                    Some(host) => { sources[place].insert(name, host); put(&entry(&format!("n{name}"), host)) }
                    None => { sources[place].remove(&name); remove(&entry(&format!("n{name}"), 0)) }
                };
                let change = all.apply(place, change);
                for object in change.upserts {
                    prop_assert_ne!(seen.insert(object.key(), object.clone()), Some(object), "an upsert that changes nothing");
                }
                for key in change.deletes {
                    prop_assert!(seen.remove(&key).is_some());
                }
                said.extend(change.diagnostics.into_iter().map(|(name, list)| (name, list.len())));
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
                    prop_assert_eq!(said.get(name).copied().unwrap_or(0), shadows[place]);
                }
            }
        }
    }
}
