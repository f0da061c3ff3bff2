//! The objects of one kind: what was seen of each, and what that changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use resources::schema::Definition;
use resources::{AnyObject, Diagnostic, Kind, ObjectKey, ParseOptions};
use serde_json::Value;

use super::event::Raw;
use super::revision::Revision;
use super::trim::Texts;
use super::{News, Seen};
use crate::Change;

/// Fields of a status that control planes write about an object, and that mean nothing to a mesh.
const TOLD: [&str; 4] = ["observedGeneration", "conditions", "proxies", "validationMessages"];

/// What reading an object needs.
pub(crate) struct Reading<'a> {
    pub(crate) options: &'a ParseOptions,
    pub(crate) revision: Option<&'a Revision>,
    pub(crate) texts: &'a mut Texts,
    pub(crate) cluster: &'a Arc<str>,
}

/// What is to be said.
#[derive(Default, Debug)]
pub(crate) struct Gathered {
    /// What became of each object last: it is so, or it is gone.
    changed: BTreeMap<ObjectKey, Option<AnyObject>>,
    /// What was last seen of each object that has a status; none: it is gone.
    seen: BTreeMap<ObjectKey, Option<Seen>>,
    diagnostics: BTreeMap<Arc<str>, Vec<Diagnostic>>,
}

impl Gathered {
    /// Adds what came later.
    pub(crate) fn add(&mut self, later: Gathered) {
        self.changed.extend(later.changed);
        self.seen.extend(later.seen);
        self.diagnostics.extend(later.diagnostics);
    }

    /// Adds an object that is made here and not read from one of its kind.
    pub(crate) fn put(&mut self, object: AnyObject) {
        self.changed.insert(object.key(), Some(object));
    }

    /// Adds that such an object is gone.
    pub(crate) fn remove(&mut self, key: ObjectKey) {
        self.changed.insert(key, None);
    }

    /// Adds what is wrong in a text; nothing takes it back.
    pub(crate) fn say(&mut self, file: Arc<str>, diagnostics: Vec<Diagnostic>) {
        self.diagnostics.insert(file, diagnostics);
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.seen.is_empty() && self.diagnostics.is_empty()
    }

    /// As those who listen get it.
    pub(crate) fn into_news(self) -> News {
        let mut change = Change {
            diagnostics: self.diagnostics,
            ..Change::default()
        };
        for (key, object) in self.changed {
            match object {
                Some(object) => change.upserts.push(object),
                None => change.deletes.push(key),
            }
        }
        let mut news = News {
            change,
            ..News::default()
        };
        for (key, seen) in self.seen {
            match seen {
                Some(seen) => news.seen.push(seen),
                None => news.gone.push(key),
            }
        }
        news
    }
}

/// What is known of one object.
#[derive(Clone, Debug)]
struct Known {
    /// Of what it means, as the server has it.
    hash: u128,
    /// Its last good version; none: there was none, or it is not for us.
    object: Option<AnyObject>,
    /// What is wrong with it; boxed, for it is rare.
    problems: Option<Box<Vec<Diagnostic>>>,
    chosen: bool,
    /// The list in which it was seen last.
    round: u32,
}

/// The objects of a kind.
#[derive(Debug)]
pub(crate) struct Table {
    kind: Kind,
    definition: &'static Definition,
    known: BTreeMap<ObjectKey, Known>,
    /// Counts lists.
    round: u32,
    pending: Gathered,
    /// Whether any object ever chose a revision.
    labelled: bool,
}

impl Table {
    /// No objects yet.
    pub(crate) fn new(kind: Kind, definition: &'static Definition) -> Table {
        Table {
            kind,
            definition,
            known: BTreeMap::new(),
            round: 0,
            pending: Gathered::default(),
            labelled: false,
        }
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether any object ever chose a revision.
    pub(crate) fn is_labelled(&self) -> bool {
        self.labelled
    }

    /// What is to be said by now.
    pub(crate) fn take(&mut self) -> Gathered {
        std::mem::take(&mut self.pending)
    }

    /// The objects that are in force, each with the hash of what the server had.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (u128, &AnyObject)> {
        self.known
            .values()
            .filter_map(|known| Some((known.hash, known.object.as_ref()?)))
    }

    /// Begins with an object from an earlier life, which counts until the server says otherwise.
    pub(crate) fn seed(&mut self, hash: u128, object: AnyObject) {
        let key = object.key();
        let known = Known {
            hash,
            object: Some(object),
            problems: None,
            chosen: true,
            round: self.round,
        };
        self.known.insert(key, known);
    }

    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.round = self.round.wrapping_add(1);
    }

    /// A list is complete: what was not in it is gone.
    pub(crate) fn listed(&mut self) {
        let gone = self.known.iter().filter(|(_, known)| known.round != self.round);
        let gone: Vec<ObjectKey> = gone.map(|(key, _)| key.clone()).collect();
        gone.into_iter().for_each(|key| self.remove(&key));
    }

    /// Everything is gone.
    pub(crate) fn clear(&mut self) {
        self.begin();
        self.listed();
    }

    /// The object of an event is gone.
    pub(crate) fn gone(&mut self, raw: &Raw, reading: &Reading<'_>) {
        let key = self.key(raw, reading);
        self.remove(&key);
    }

    fn key(&self, raw: &Raw, reading: &Reading<'_>) -> ObjectKey {
        ObjectKey::new(self.kind, raw.namespace.clone(), raw.name.clone()).in_cluster(reading.cluster.clone())
    }

    fn remove(&mut self, key: &ObjectKey) {
        let Some(known) = self.known.remove(key) else { return };
        if known.object.is_some() {
            self.pending.remove(key.clone());
        } else {
            // What was to be said of it is over; nobody else ever heard of it.
            self.pending.changed.remove(key);
        }
        if known.problems.is_some() {
            self.pending.say(file(key), Vec::new());
        }
        self.pending.seen.insert(key.clone(), None);
    }

    /// The object of an event is so now.
    pub(crate) fn put(&mut self, raw: Raw, reading: &mut Reading<'_>) {
        let key = self.key(&raw, reading);
        let labels = &raw.value["metadata"]["labels"];
        let mut chosen = true;
        if Revision::chooses(self.kind) {
            self.labelled |= labels.get("istio.io/rev").is_some();
            chosen = reading.revision.is_none_or(|revision| revision.admits(labels));
        }
        let (value, hash) = self.meaning(raw);
        if let Some(known) = self.known.get_mut(&key)
            && known.hash == hash
            && known.chosen == chosen
        {
            known.round = self.round;
            if chosen {
                let problems = known.problems.as_deref().cloned().unwrap_or_default();
                self.see(&key, &value, problems);
            }
            return;
        }
        match chosen {
            true => self.read(key, value, hash, reading),
            false => self.pass_over(key, hash),
        }
    }

    /// An object that is meant for another control plane.
    fn pass_over(&mut self, key: ObjectKey, hash: u128) {
        self.remove(&key);
        let known = Known {
            hash,
            object: None,
            problems: None,
            chosen: false,
            round: self.round,
        };
        self.known.insert(key, known);
    }

    fn read(&mut self, key: ObjectKey, value: Value, hash: u128, reading: &mut Reading<'_>) {
        let read = resources::read_object(&value, reading.options);
        let before = self.known.remove(&key);
        let had_problems = before.as_ref().is_some_and(|known| known.problems.is_some());
        // One that became invalid keeps its last good version in force, as a file does.
        let mut object = before.and_then(|known| known.object);
        let mut key = key;
        if let Some(new) = read.object {
            let new = reading.texts.trim(new, reading.cluster);
            key = new.key();
            if object.as_ref() != Some(&new) {
                self.pending.put(new.clone());
            }
            object = Some(new);
        }
        let mut problems = read.diagnostics;
        problems.shrink_to_fit();
        if had_problems || !problems.is_empty() {
            self.pending.say(file(&key), problems.clone());
        }
        self.see(&key, &value, problems.clone());
        let known = Known {
            hash,
            object,
            problems: (!problems.is_empty()).then(|| Box::new(problems)),
            chosen: true,
            round: self.round,
        };
        self.known.insert(key, known);
    }

    /// Notes the object for whoever writes its status.
    fn see(&mut self, key: &ObjectKey, value: &Value, diagnostics: Vec<Diagnostic>) {
        if !self.definition.status || !self.kind.is_complete() {
            return;
        }
        let meta = &value["metadata"];
        let seen = Seen {
            key: key.clone(),
            uid: meta["uid"].as_str().unwrap_or_default().into(),
            generation: meta["generation"].as_i64().unwrap_or_default(),
            diagnostics,
            status: value.get("status").cloned(),
        };
        self.pending.seen.insert(key.clone(), Some(seen));
    }

    /// The object as it is read, and the hash of what it means: without its version, and without what control planes say of
    /// it in its status.
    fn meaning(&self, raw: Raw) -> (Value, u128) {
        let mut value = raw.value;
        let Some(fields) = value.as_object_mut() else {
            return (value, 0);
        };
        let status = match self.kind.is_complete() {
            true => fields.remove("status"),
            false => None,
        };
        let version = fields
            .get_mut("metadata")
            .and_then(Value::as_object_mut)
            .and_then(|meta| meta.remove("resourceVersion"));
        // Items of a list do not say what they are.
        fields.insert("apiVersion".into(), self.definition.api_version().into());
        fields.insert("kind".into(), self.definition.kind.into());
        let mut text = value.to_string();
        if self.kind.is_istio()
            && let Some(Value::Object(status)) = &status
        {
            let mut others = status
                .iter()
                .filter(|(field, _)| !TOLD.contains(&field.as_str()))
                .peekable();
            if others.peek().is_some() {
                others.for_each(|(field, value)| text.push_str(&format!("{field}:{value}")));
            }
        }
        let hash = xxhash_rust::xxh3::xxh3_128(text.as_bytes());
        if let Some(fields) = value.as_object_mut() {
            fields.extend(status.map(|status| ("status".to_owned(), status)));
        }
        if self.kind.is_complete()
            && let (Some(version), Some(meta)) = (version, value["metadata"].as_object_mut())
        {
            meta.insert("resourceVersion".into(), version);
        }
        (value, hash)
    }
}

/// What diagnostics of an object stand below.
fn file(key: &ObjectKey) -> Arc<str> {
    format!("kubernetes: {key}").into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use resources::schema::find;
    use serde_json::json;

    use super::*;

    fn table() -> Table {
        Table::new(
            Kind::ServiceEntry,
            find("networking.istio.io", "serviceentries").unwrap(),
        )
    }

    fn raw(name: &str, host: &str, version: u64, labels: Value) -> Raw {
        Raw::of(json!({
            "metadata": {"name": name, "namespace": "x", "uid": name, "generation": 1, "resourceVersion": version.to_string(), "labels": labels},
            "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
        }))
        .unwrap()
    }

    struct World {
        table: Table,
        texts: Texts,
        revision: Revision,
    }

    impl World {
        fn new() -> World {
            World {
                table: table(),
                texts: Texts::default(),
                revision: Revision::new(""),
            }
        }

        fn with(&mut self, run: impl FnOnce(&mut Table, &mut Reading<'_>)) -> News {
            let (options, cluster) = (ParseOptions::default(), Arc::default());
            let mut reading = Reading {
                options: &options,
                revision: Some(&self.revision),
                texts: &mut self.texts,
                cluster: &cluster,
            };
            run(&mut self.table, &mut reading);
            self.table.take().into_news()
        }

        fn put(&mut self, raw: Raw) -> News {
            self.with(|table, reading| table.put(raw, reading))
        }
    }

    #[test]
    fn an_object_that_became_invalid_keeps_its_last_good_version() {
        let mut world = World::new();
        assert_eq!(world.put(raw("a", "a.com", 1, Value::Null)).change.upserts.len(), 1);
        let news = world.put(raw("a", "", 2, Value::Null));
        assert!(news.change.upserts.is_empty() && news.change.deletes.is_empty());
        assert!(news.seen[0].diagnostics.iter().any(Diagnostic::is_error));
        assert_eq!(news.change.diagnostics.len(), 1);
        // Valid as before: nothing changes but that it is said no longer.
        let news = world.put(raw("a", "a.com", 3, Value::Null));
        assert!(news.seen[0].diagnostics.is_empty());
        assert!(news.change.diagnostics.values().all(Vec::is_empty), "{news:?}");
    }

    #[test]
    fn a_status_of_ours_changes_nothing_and_is_seen() {
        let mut world = World::new();
        world.put(raw("a", "a.com", 1, Value::Null));
        let mut told = raw("a", "a.com", 2, Value::Null);
        told.value["status"] = json!({"conditions": [{"type": "Accepted"}], "observedGeneration": 1});
        let news = world.put(told);
        assert!(news.change.is_empty());
        assert_eq!(news.seen[0].status.as_ref().unwrap()["observedGeneration"], 1);
        let mut addressed = raw("a", "a.com", 3, Value::Null);
        addressed.value["status"] = json!({"addresses": [{"value": "240.0.0.1"}]});
        let hash = |world: &World| world.table.known.values().next().unwrap().hash;
        let before = hash(&world);
        world.put(addressed);
        assert_ne!(before, hash(&world), "what others say counts");
    }

    #[test]
    fn an_object_that_goes_to_another_revision_is_gone() {
        let mut world = World::new();
        world.put(raw("a", "a.com", 1, Value::Null));
        let news = world.put(raw("a", "a.com", 2, json!({"istio.io/rev": "other"})));
        assert_eq!((news.change.deletes.len(), news.gone.len()), (1, 1));
        assert!(
            world
                .put(raw("a", "b.com", 3, json!({"istio.io/rev": "other"})))
                .change
                .is_empty()
        );
        let news = world.put(raw("a", "b.com", 4, json!({"istio.io/rev": "default"})));
        assert_eq!(news.change.upserts.len(), 1);
    }

    #[test]
    fn what_a_list_does_not_name_is_gone_and_what_is_equal_is_not_said() {
        let mut world = World::new();
        world.with(|table, reading| {
            table.begin();
            table.put(raw("a", "a.com", 1, Value::Null), reading);
            table.put(raw("b", "b.com", 2, Value::Null), reading);
            table.listed();
        });
        let news = world.with(|table, reading| {
            table.begin();
            // The server was put back: versions are lower.
            table.put(raw("b", "b.com", 1, Value::Null), reading);
            table.listed();
        });
        assert!(news.change.upserts.is_empty());
        assert_eq!(news.change.deletes.len(), 1);
        let news = world.with(|table, _| table.clear());
        assert_eq!(news.change.deletes.len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// However events, cuts and lists follow one another: after a list the objects are those of the list.
        #[test]
        fn after_a_list_it_is_what_the_list_says(steps in proptest::collection::vec((0..5u8, 0..4u8, any::<bool>(), any::<bool>()), 1..60)) {
            let mut world = World::new();
            let mut server: BTreeMap<u8, (u8, bool)> = BTreeMap::new();
            let mut heard: BTreeMap<ObjectKey, AnyObject> = BTreeMap::new();
            let make = |name: &u8, host: &u8, ours: bool| {
                let labels = if ours { Value::Null } else { json!({"istio.io/rev": "other"}) };
                raw(&format!("n{name}"), &format!("h{host}.com"), 1, labels)
            };
            for (name, host, lost, ours) in steps {
                let gone = host == 3;
                if gone { server.remove(&name); } else { server.insert(name, (host, ours)); }
                // A lost event is made up for by a list.
                let news = world.with(|table, reading| match (lost, gone) {
                    (true, _) => {
                        table.begin();
                        server.iter().for_each(|(name, (host, ours))| table.put(make(name, host, *ours), reading));
                        table.listed();
                    }
                    (false, true) => table.gone(&make(&name, &0, true), reading),
                    (false, false) => table.put(make(&name, &host, ours), reading),
                });
                for object in news.change.upserts {
                    prop_assert_ne!(heard.insert(object.key(), object.clone()), Some(object), "said twice");
                }
                for key in news.change.deletes {
                    prop_assert!(heard.remove(&key).is_some(), "{} was never said", key);
                }
                let mut fresh = World::new();
                let all = fresh.with(|table, reading| {
                    server.iter().for_each(|(name, (host, ours))| table.put(make(name, host, *ours), reading));
                });
                let fresh: BTreeMap<ObjectKey, AnyObject> = all.change.upserts.into_iter().map(|object| (object.key(), object)).collect();
                prop_assert_eq!(&heard, &fresh);
            }
        }
    }
}
