//! Objects that are added, changed, invalidated, relabelled and deleted; and any sequence of these compared with a fresh
//! list.

use config::schema::find;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn raw(name: &str, host: &str, version: u64, labels: Value) -> Raw {
    Raw::of(json!({
        "metadata": {"name": name, "namespace": "x", "uid": name, "generation": 1, "resourceVersion": version.to_string(), "labels": labels},
        "spec": {"hosts": [host], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}], "resolution": "DNS"},
    }))
    .unwrap()
}

fn other_revision() -> Value {
    json!({"istio.io/rev": "other"})
}

fn observed(change: &ChangeSet) -> &Observed {
    change.observed.values().flatten().next().unwrap()
}

/// A table with the context that it needs.
struct Bench {
    table: Table,
    texts: Texts,
    revision: Revision,
}

impl Bench {
    fn new() -> Bench {
        Bench {
            table: Table::new(Kind::ServiceEntry, find("networking.istio.io", "serviceentries").unwrap()),
            texts: Texts::default(),
            revision: Revision::new(""),
        }
    }

    /// Assigns the namespace of the objects to a revision.
    fn label_namespace(&mut self, revision: &str) {
        assert!(self.revision.namespace(&"x".into(), Some(&json!({"istio.io/rev": revision}))));
    }

    fn run(&mut self, steps: impl FnOnce(&mut Table, &mut ReadContext<'_>)) {
        let (options, cluster) = (ParseOptions::default(), Arc::default());
        let mut context = ReadContext {
            options: &options,
            revision: Some(&self.revision),
            texts: &mut self.texts,
            cluster: &cluster,
        };
        steps(&mut self.table, &mut context);
    }

    /// Runs steps and takes the changes.
    fn with(&mut self, steps: impl FnOnce(&mut Table, &mut ReadContext<'_>)) -> ChangeSet {
        self.run(steps);
        self.table.take()
    }

    fn upsert(&mut self, raw: Raw) -> ChangeSet {
        self.with(|table, context| table.upsert(raw, context))
    }
}

#[test]
fn an_invalid_update_keeps_the_last_valid_version() {
    let mut bench = Bench::new();
    assert_eq!(bench.upsert(raw("a", "a.com", 1, Value::Null)).upserts.len(), 1);
    let change = bench.upsert(raw("a", "", 2, Value::Null));
    assert!(!change.has_objects());
    assert!(observed(&change).diagnostics.iter().any(Diagnostic::is_error));
    assert_eq!(change.diagnostics.len(), 1);
    // Valid as before: only the diagnostics are cleared.
    let change = bench.upsert(raw("a", "a.com", 3, Value::Null));
    assert!(observed(&change).diagnostics.is_empty());
    assert!(change.diagnostics.values().all(Vec::is_empty), "{change:?}");
}

#[test]
fn a_status_written_by_a_control_plane_is_observed_and_changes_nothing() {
    let mut bench = Bench::new();
    bench.upsert(raw("a", "a.com", 1, Value::Null));
    let mut with_conditions = raw("a", "a.com", 2, Value::Null);
    with_conditions.value["status"] = json!({"conditions": [{"type": "Accepted"}], "observedGeneration": 1});
    let change = bench.upsert(with_conditions);
    assert!(!change.has_objects() && change.diagnostics.is_empty());
    assert_eq!(observed(&change).status.as_ref().unwrap()["observedGeneration"], 1);
    let mut with_addresses = raw("a", "a.com", 3, Value::Null);
    with_addresses.value["status"] = json!({"addresses": [{"value": "240.0.0.1"}]});
    let hash = |bench: &Bench| bench.table.entries.values().next().unwrap().hash;
    let before = hash(&bench);
    bench.upsert(with_addresses);
    assert_ne!(before, hash(&bench), "other status fields are part of the content");
}

#[test]
fn an_object_relabelled_to_another_revision_is_deleted() {
    let mut bench = Bench::new();
    bench.upsert(raw("a", "a.com", 1, Value::Null));
    let change = bench.upsert(raw("a", "a.com", 2, other_revision()));
    assert_eq!(change.deletes.len(), 1);
    assert!(change.observed.values().all(Option::is_none) && change.observed.len() == 1);
    assert!(!bench.upsert(raw("a", "b.com", 3, other_revision())).has_objects());
    let change = bench.upsert(raw("a", "b.com", 4, json!({"istio.io/rev": "default"})));
    assert_eq!(change.upserts.len(), 1);
}

#[test]
fn a_gateway_of_another_revision_is_used_and_its_status_left_to_that_revision() {
    let definition = find("gateway.networking.k8s.io", "gateways").unwrap();
    let mut bench = Bench { table: Table::new(Kind::KubeGateway, definition), ..Bench::new() };
    let gateway = |port: u16, labels: Value| {
        let mut raw = raw("edge", "a.com", port.into(), labels);
        let listener = json!({"name": "http", "port": port, "protocol": "HTTP"});
        raw.value["spec"] = json!({"gatewayClassName": "istio", "listeners": [listener]});
        raw
    };
    assert!(!observed(&bench.upsert(gateway(80, Value::Null))).assigned);
    let change = bench.upsert(gateway(81, other_revision()));
    assert_eq!((change.upserts.len(), change.deletes.len()), (1, 0), "its proxies are still connected");
    assert!(change.observed.len() == 1 && change.observed.values().all(Option::is_none));
    let change = bench.upsert(gateway(82, json!({"istio.io/rev": "default"})));
    assert!(change.upserts.len() == 1 && observed(&change).assigned);
    // Without a new generation, the status changes its writer.
    assert!(!observed(&bench.upsert(gateway(82, Value::Null))).assigned);
}

#[test]
fn a_pool_follows_the_label_of_its_namespace() {
    let definition = find("inference.networking.k8s.io", "inferencepools").unwrap();
    let mut bench = Bench { table: Table::new(Kind::InferencePool, definition), ..Bench::new() };
    let pool = |version: u64| {
        let mut raw = raw("llm", "a.com", version, Value::Null);
        raw.value["spec"] = json!({
            "selector": {"matchLabels": {"app": "llm"}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        });
        raw
    };
    let change = bench.upsert(pool(1));
    assert!(change.upserts.len() == 1 && !observed(&change).assigned);
    bench.label_namespace("default");
    assert!(observed(&bench.upsert(pool(2))).assigned);
    bench.label_namespace("other");
    let change = bench.upsert(pool(3));
    assert!(change.deletes.is_empty() && change.observed.values().all(Option::is_none), "used, without a status");
}

#[test]
fn a_rejected_route_is_observed_with_its_parents() {
    let definition = find("gateway.networking.k8s.io", "tcproutes").unwrap();
    let mut bench = Bench { table: Table::new(Kind::TcpRoute, definition), ..Bench::new() };
    let route = |version: u64, rules: Value| {
        let mut raw = raw("db", "a.com", version, Value::Null);
        raw.value["spec"] = json!({"parentRefs": [{"name": "edge"}], "rules": rules});
        raw
    };
    let parents =
        |change: &ChangeSet| observed(change).parents.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    let change = bench.upsert(route(1, json!(3)));
    assert_eq!((change.has_objects(), parents(&change)), (false, vec!["edge".to_owned()]));
    assert_eq!(parents(&bench.upsert(route(2, json!(3)))), ["edge"], "observed again");
    let change = bench.upsert(route(3, json!([{"backendRefs": [{"name": "db", "port": 80}]}])));
    assert_eq!((change.upserts.len(), parents(&change)), (1, Vec::new()));
}

#[test]
fn an_object_relabelled_and_deleted_between_two_takes_is_deleted() {
    let mut bench = Bench::new();
    assert_eq!(bench.upsert(raw("a", "a.com", 1, Value::Null)).upserts.len(), 1);
    let change = bench.with(|table, context| {
        table.upsert(raw("a", "a.com", 2, other_revision()), context);
        table.delete(&"x".into(), &"a".into(), context.cluster);
    });
    assert_eq!(change.deletes.len(), 1, "{change:?}");
}

#[test]
fn an_object_relabelled_in_an_interrupted_list_and_absent_in_the_next_is_deleted() {
    let mut bench = Bench::new();
    assert_eq!(bench.upsert(raw("a", "a.com", 1, Value::Null)).upserts.len(), 1);
    let change = bench.with(|table, context| {
        table.begin();
        table.upsert(raw("a", "a.com", 2, other_revision()), context);
        // The list is interrupted and starts again. The object was deleted meanwhile.
        table.begin();
        table.listed();
    });
    assert_eq!(change.deletes.len(), 1, "{change:?}");
}

#[test]
fn a_list_deletes_absent_objects_and_emits_no_unchanged_ones() {
    let mut bench = Bench::new();
    bench.with(|table, context| {
        table.begin();
        table.upsert(raw("a", "a.com", 1, Value::Null), context);
        table.upsert(raw("b", "b.com", 2, Value::Null), context);
        table.listed();
    });
    let change = bench.with(|table, context| {
        table.begin();
        // The server was restored from a backup: versions are lower.
        table.upsert(raw("b", "b.com", 1, Value::Null), context);
        table.listed();
    });
    assert!(change.upserts.is_empty());
    assert_eq!(change.deletes.len(), 1);
    let change = bench.with(|table, _| table.clear());
    assert_eq!(change.deletes.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    /// For any sequence of events, lost events and lists, taken one by one or several together, the emitted objects are
    /// those of a fresh list.
    #[test]
    fn emitted_objects_equal_a_fresh_list(
        steps in proptest::collection::vec((0..5u8, 0..4u8, any::<bool>(), any::<bool>(), any::<bool>()), 1..60)
    ) {
        let mut bench = Bench::new();
        let mut server: BTreeMap<u8, (u8, bool)> = BTreeMap::new();
        let mut emitted: BTreeMap<ObjectKey, AnyObject> = BTreeMap::new();
        let make = |name: &u8, host: &u8, ours: bool| {
            let labels = if ours { Value::Null } else { other_revision() };
            raw(&format!("n{name}"), &format!("h{host}.com"), 1, labels)
        };
        let mut untaken = 0;
        for (name, host, lost, ours, take) in steps {
            let deleted = host == 3;
            if deleted { server.remove(&name); } else { server.insert(name, (host, ours)); }
            // A list makes up for a lost event.
            bench.run(|table, context| match (lost, deleted) {
                (true, _) => {
                    table.begin();
                    server.iter().for_each(|(name, (host, ours))| table.upsert(make(name, host, *ours), context));
                    table.listed();
                }
                (false, true) => table.delete(&"x".into(), &format!("n{name}").into(), context.cluster),
                (false, false) => table.upsert(make(&name, &host, ours), context),
            });
            untaken += 1;
            if !take {
                continue;
            }
            let alone = std::mem::take(&mut untaken) == 1;
            let change = bench.table.take();
            for (key, object) in change.upserts {
                prop_assert!(emitted.insert(key, object.clone()) != Some(object) || !alone, "an unchanged object");
            }
            for key in change.deletes {
                prop_assert!(emitted.remove(&key).is_some() || !alone, "{} was never emitted", key);
            }
            let mut fresh = Bench::new();
            let all = fresh.with(|table, context| {
                server.iter().for_each(|(name, (host, ours))| table.upsert(make(name, host, *ours), context));
            });
            prop_assert_eq!(&emitted, &all.upserts);
        }
    }
}
