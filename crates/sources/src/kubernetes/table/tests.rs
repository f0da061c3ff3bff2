//! Objects that come, change, become invalid, choose others and go; and any order of these against a fresh list.

use config::schema::find;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::kubernetes::News;

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
