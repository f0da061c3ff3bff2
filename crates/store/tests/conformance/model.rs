//! Random operations, compared to a model: a map with the same operations.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use store::{At, LabelSelector};

use super::*;

/// A step. There are few objects, so that steps interact.
#[derive(Clone, Debug)]
pub enum Step {
    Commit(Vec<(Verb, u8, Wanted)>),
    List { namespace: Option<u8>, label: Option<u8>, limit: usize, back: usize },
    Get(u8),
    Compact(usize),
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub enum Verb {
    Put(u8),
    Delete,
    Check,
}

#[derive(Clone, Copy, Debug)]
pub enum Wanted {
    Anything,
    Absent,
    Present,
    /// The object's revision, this many writes ago.
    Revision(usize),
}

/// The expected objects at a revision: number and revision of each.
type Objects = BTreeMap<u8, (u8, Revision)>;

struct Model {
    past: Vec<(Revision, Objects)>,
    compacted: Revision,
}

/// Compares fresh backends with the model over random steps.
pub fn agrees_with_a_model<Fut: Future<Output = Backend>>(fresh: impl Fn() -> Fut) {
    run(48, step(false), &fresh, |backend| async { backend });
}

/// Does the same for backends that survive a restart: `again` reopens a closed backend.
pub fn agrees_with_a_model_over_restarts<Fut, Again>(fresh: impl Fn() -> Fut, again: impl Fn(Backend) -> Again)
where
    Fut: Future<Output = Backend>,
    Again: Future<Output = Backend>,
{
    run(24, step(true), &fresh, again);
}

fn run<Fut, Again>(cases: u32, step: BoxedStrategy<Step>, fresh: &impl Fn() -> Fut, again: impl Fn(Backend) -> Again)
where
    Fut: Future<Output = Backend>,
    Again: Future<Output = Backend>,
{
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let mut runner = TestRunner::new(config);
    let result = runner.run(&prop::collection::vec(step, 1..40), |steps| {
        runtime.block_on(async {
            let mut backend = fresh().await;
            let start = backend.store.revision().await.expect("a revision");
            let mut model = Model { past: vec![(start, Objects::new())], compacted: 0 };
            for step in &steps {
                if matches!(step, Step::Restart) {
                    backend.store.close().await;
                    backend = again(backend).await;
                } else {
                    model.step(&backend.store, step).await;
                }
            }
            model.finish(&backend.store).await;
        });
        Ok(())
    });
    result.unwrap_or_else(|error| panic!("{error}"));
}

fn step(restarts: bool) -> BoxedStrategy<Step> {
    let wanted = prop_oneof![
        4 => Just(Wanted::Anything),
        1 => Just(Wanted::Absent),
        1 => Just(Wanted::Present),
        1 => (0usize..3).prop_map(Wanted::Revision),
    ];
    let verb = prop_oneof![4 => any::<u8>().prop_map(Verb::Put), 2 => Just(Verb::Delete), 1 => Just(Verb::Check)];
    let commit = prop::collection::btree_map(0u8..6, (verb, wanted), 1..4);
    let commit = commit.prop_map(|map| map.into_iter().map(|(key, (verb, wanted))| (verb, key, wanted)).collect());
    let list = (prop::option::of(0u8..2), prop::option::of(0u8..2), 0usize..4, 0usize..12)
        .prop_map(|(namespace, label, limit, back)| Step::List { namespace, label, limit, back });
    prop_oneof![
        8 => commit.prop_map(Step::Commit),
        4 => list,
        1 => (0u8..6).prop_map(Step::Get),
        1 => (0usize..6).prop_map(Step::Compact),
        u32::from(restarts) => Just(Step::Restart),
    ]
    .boxed()
}

fn key_of(id: u8) -> Key {
    key(["one", "two"][usize::from(id % 2)], &format!("n{id}"))
}

fn value_of(number: u8) -> Value {
    object(["a", "b"][usize::from(number % 2)], number.into())
}

impl Model {
    fn now(&self) -> &(Revision, Objects) {
        self.past.last().expect("never empty")
    }

    /// An earlier revision, this many writes ago.
    fn back(&self, back: usize) -> &(Revision, Objects) {
        &self.past[self.past.len() - 1 - back.min(self.past.len() - 1)]
    }

    async fn step(&mut self, store: &Arc<dyn Store>, step: &Step) {
        match step {
            Step::Commit(writes) => self.commit(store, writes).await,
            Step::List { namespace, label, limit, back } => self.list(store, *namespace, *label, *limit, *back).await,
            Step::Get(id) => {
                let object = store.get(&key_of(*id)).await.expect("read");
                let expected = self.now().1.get(id).map(|(number, revision)| (u64::from(*number), *revision));
                assert_eq!(object.map(|object| (number(&object), object.revision)), expected);
            }
            Step::Compact(back) => {
                self.compacted = self.compacted.max(self.back(*back).0);
                store.compact(self.compacted).await.expect("compacted");
            }
            Step::Restart => {}
        }
    }

    async fn commit(&mut self, store: &Arc<dyn Store>, writes: &[(Verb, u8, Wanted)]) {
        let mut objects = self.now().1.clone();
        let (mut operations, mut refused, mut changed) = (Vec::new(), false, false);
        for (verb, id, wanted) in writes {
            let now = objects.get(id).map(|(_, revision)| *revision);
            let expect = match wanted {
                Wanted::Anything => Expect::Anything,
                Wanted::Absent => Expect::Absent,
                Wanted::Present => Expect::Present,
                Wanted::Revision(back) => Expect::Revision(self.back(*back).1.get(id).map_or(1, |object| object.1)),
            };
            refused |= expect.check(&key_of(*id), now).is_err();
            let key = key_of(*id);
            operations.push(match verb {
                Verb::Put(number) => {
                    objects.insert(*id, (*number, 0));
                    changed = true;
                    put(key, value_of(*number), expect)
                }
                Verb::Delete => {
                    changed |= objects.remove(id).is_some();
                    delete(key, expect)
                }
                Verb::Check => Operation::Check { key, expect },
            });
        }
        match store.commit(Transaction { operations }).await {
            Err(error) => assert!(refused, "{error}"),
            Ok(_) if refused => panic!("a precondition was not checked: {writes:?}"),
            Ok(_) if !changed => {}
            Ok(committed) => {
                assert!(committed.revision > self.now().0);
                for (verb, id, _) in writes {
                    if let (Verb::Put(_), Some(object)) = (verb, objects.get_mut(id)) {
                        object.1 = committed.revision;
                    }
                }
                self.past.push((committed.revision, objects));
            }
        }
    }

    async fn list(&self, store: &Arc<dyn Store>, namespace: Option<u8>, label: Option<u8>, limit: usize, back: usize) {
        let (revision, objects) = self.back(back);
        let app = label.map(|label| ["a", "b"][usize::from(label)]);
        let mut query = Query {
            namespace: namespace.map(|namespace| ["one", "two"][usize::from(namespace)].into()),
            labels: app.map(|app| LabelSelector::equal("app", app).expect("valid")).unwrap_or_default(),
            limit,
            at: if back == 0 { At::Latest } else { At::Exactly(*revision) },
            ..Query::of(services())
        };
        if back > 0 && *revision < self.compacted {
            let error = store.list(&query).await.expect_err("compacted");
            assert!(matches!(error, Error::Compacted { .. }), "{error}");
            return;
        }
        let mut expected: Vec<_> = objects
            .iter()
            .filter(|(id, (number, _))| {
                namespace.is_none_or(|namespace| **id % 2 == namespace) && label.is_none_or(|label| number % 2 == label)
            })
            .map(|(id, (number, revision))| (key_of(*id), u64::from(*number), *revision))
            .collect();
        expected.sort();
        let mut seen = Vec::new();
        loop {
            let list = store.list(&query).await.expect("a list");
            assert!(limit == 0 || list.items.len() <= limit);
            seen.extend(list.items.iter().map(|object| (object.key.clone(), number(object), object.revision)));
            if let Some(remaining) = list.remaining {
                assert_eq!(remaining, (expected.len() - seen.len()) as u64);
            }
            match list.next {
                None => break,
                next => query.after = next,
            }
        }
        assert_eq!(seen, expected, "as of {revision}");
    }

    /// A watch over the retained history must lead to the current objects.
    async fn finish(&self, store: &Arc<dyn Store>) {
        let Some((start, objects)) = self.past.iter().find(|(revision, _)| *revision >= self.compacted) else {
            return;
        };
        let mut rebuilt: BTreeMap<Key, u64> = objects.iter().map(|(id, (n, _))| (key_of(*id), u64::from(*n))).collect();
        let mut watch = store.watch(&scope_of(services()), *start).await.expect("a watch");
        let mut last = *start;
        while last < self.now().0 {
            match event(&mut watch).await.expect("an event") {
                WatchEvent::Bookmark(revision) => assert!(revision >= last),
                WatchEvent::Changes(changes) => {
                    for change in changes {
                        assert!(change.revision >= last);
                        last = change.revision;
                        assert_eq!(change.before.as_ref().map(number), rebuilt.get(&change.key).copied());
                        match &change.after {
                            Some(object) => rebuilt.insert(change.key.clone(), number(object)),
                            None => rebuilt.remove(&change.key),
                        };
                    }
                }
            }
        }
        let expected: BTreeMap<Key, u64> =
            self.now().1.iter().map(|(id, (n, _))| (key_of(*id), u64::from(*n))).collect();
        assert_eq!(rebuilt, expected);
    }
}
