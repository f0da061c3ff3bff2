//! Rules run only when their reads change, and a commit reports its exact changes.

mod common;
use common::*;

use flow::{Engine, Members};

input!(Number, "number", u32, i64);
rule!(Left, "left", u32, i64, |cx, key| Some(*cx.get::<Number>(key)? / 10));
rule!(Right, "right", u32, i64, |cx, key| Some(*cx.get::<Number>(key)? % 10));
rule!(Join, "join", u32, i64, |cx, key| Some(*cx.get::<Left>(key)? * 100 + *cx.get::<Right>(key)?));
rule!(Last, "last", u32, bool, |cx, key| Some(*cx.get::<Join>(key)? > 500));

fn diamond() -> Engine {
    let mut builder = Engine::builder();
    builder.input::<Number>().world::<Left, Number>().world::<Right, Number>();
    builder.world::<Join, Left>().world::<Last, Join>();
    builder.build()
}

#[test]
fn a_cell_with_two_changed_reads_runs_once() {
    let mut engine = diamond();
    put::<Number>(&mut engine, 1, 12);
    let delta = put::<Number>(&mut engine, 1, 47);
    assert_eq!((delta.runs_of::<Left>().runs, delta.runs_of::<Right>().runs), (1, 1));
    assert_eq!(delta.runs_of::<Join>().runs, 1, "both sides changed, it ran once");
    let changes: Vec<_> = delta.changes::<Join>().collect();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].before.as_deref(), changes[0].after.as_deref()), (Some(&102), Some(&407)));
    sound(&engine);
}

#[test]
fn equal_rows_stop_propagation() {
    let mut engine = diamond();
    put::<Number>(&mut engine, 1, 12);
    let delta = put::<Number>(&mut engine, 1, 12);
    assert!(delta.is_empty());
    assert_eq!(delta.runs().collect::<Vec<_>>().len(), 1, "only the input was compared");

    // The left row is equal, the right one is not, and the row derived from both is equal.
    let delta = put::<Number>(&mut engine, 1, 13);
    assert_eq!((delta.runs_of::<Left>().runs, delta.runs_of::<Left>().cut_offs), (1, 1));
    assert_eq!(delta.runs_of::<Join>().changed, 1);
    assert_eq!((delta.runs_of::<Last>().runs, delta.runs_of::<Last>().cut_offs), (1, 1));
    assert_eq!(delta.changed::<Last>().count(), 0);
    assert_eq!(delta.cells().len(), 3, "number, right and join");
    assert_eq!(engine.stats().relation("last").map(|last| last.cut_offs), Some(1));
}

#[test]
fn the_last_write_of_a_batch_wins_and_unaffected_keys_do_not_run() {
    let mut engine = diamond();
    engine.commit(batch::<Number>((0..100).map(|key| (key, Some(7)))));
    let mut edits = batch::<Number>([(3, Some(1)), (3, None), (4, None), (4, Some(70))]);
    edits.merge(batch::<Number>([(4, Some(80)), (200, None)]));
    assert_eq!(edits.len(), 3);
    let delta = engine.commit(edits);
    let rows: Vec<_> = delta.changed::<Number>().map(|(key, row)| (key, row.map(|row| *row))).collect();
    assert_eq!(rows, [(3, None), (4, Some(80))]);
    assert_eq!(delta.runs_of::<Left>().runs, 1);
    assert_eq!(delta.epoch(), 2);
    assert_eq!(engine.get::<Last>(&3), None);
    assert_eq!(engine.keys::<Join>().len(), 99);
    sound(&engine);
}

#[test]
fn the_delta_contains_added_and_removed_cells() {
    let mut engine = diamond();
    let delta = put::<Number>(&mut engine, 1, 90);
    assert_eq!(delta.cells().len(), 5);
    assert!(delta.changes::<Last>().all(|change| change.before.is_none()));
    let delta = remove::<Number>(&mut engine, 1);
    assert_eq!(delta.cells().len(), 5);
    assert_eq!(delta.changed::<Last>().collect::<Vec<_>>(), [(1, None)]);
    assert_eq!(delta.changes::<Last>().next().and_then(|change| change.before).as_deref(), Some(&true));
    assert_eq!((engine.stats().cells(), engine.stats().edges()), (0, 0));
    assert!(remove::<Number>(&mut engine, 1).is_empty());
}

input!(Alias, "alias", &'static str, &'static str);
input!(Value, "value", &'static str, i64);
rule!(Resolved, "resolved", &'static str, i64, |cx, key| {
    let target = cx.get::<Alias>(key)?;
    cx.get::<Value>(&target).map(|value| *value)
});

fn aliases() -> Engine {
    let mut builder = Engine::builder();
    builder.input::<Alias>().input::<Value>().world::<Resolved, Alias>();
    builder.build()
}

#[test]
fn a_read_of_an_absent_key_is_a_dependency() {
    let mut engine = aliases();
    put::<Alias>(&mut engine, "a", "x");
    assert_eq!(engine.get::<Resolved>(&"a"), None);
    assert_eq!(engine.stats().relation("value").map(|value| (value.cells, value.rows)), Some((1, 0)));
    let delta = put::<Value>(&mut engine, "x", 5);
    assert_eq!(delta.runs_of::<Resolved>().runs, 1);
    assert_eq!(engine.get::<Resolved>(&"a").as_deref(), Some(&5));
    remove::<Value>(&mut engine, "x");
    assert_eq!(engine.get::<Resolved>(&"a"), None);
    remove::<Alias>(&mut engine, "a");
    assert_eq!(engine.stats().cells(), 0, "the absent value is no longer read");
    sound(&engine);
}

#[test]
fn dependencies_follow_the_last_run() {
    let mut engine = aliases();
    engine.commit(batch::<Value>([("x", Some(1)), ("y", Some(2))]));
    put::<Alias>(&mut engine, "a", "x");
    put::<Alias>(&mut engine, "a", "y");
    let delta = put::<Value>(&mut engine, "x", 10);
    assert_eq!(delta.runs_of::<Resolved>().runs, 0, "it reads y now");
    let delta = put::<Value>(&mut engine, "y", 20);
    assert_eq!(delta.runs_of::<Resolved>().runs, 1);
    assert_eq!(engine.get::<Resolved>(&"a").as_deref(), Some(&20));
    assert_eq!(engine.stats().edges(), 2);
    sound(&engine);
}

#[test]
fn reads_are_updated_even_if_the_row_is_equal() {
    let mut engine = aliases();
    engine.commit(batch::<Value>([("x", Some(1)), ("y", Some(1))]));
    put::<Alias>(&mut engine, "a", "x");
    let delta = put::<Alias>(&mut engine, "a", "y");
    assert_eq!(delta.runs_of::<Resolved>().cut_offs, 1);
    put::<Value>(&mut engine, "y", 9);
    assert_eq!(engine.get::<Resolved>(&"a").as_deref(), Some(&9));
}

index!(ByTens, "by tens", i64, Number, |_key, row| vec![row / 10, row / 10, -1]);
rule!(Tens, "tens", i64, usize, |cx, key| cx.get::<ByTens>(key).map(|members| members.len()));

#[test]
fn an_index_is_updated_with_its_members() {
    let mut builder = Engine::builder();
    builder.input::<Number>().index::<ByTens>().world::<Tens, ByTens>();
    let mut engine = builder.build();
    let delta = engine.commit(batch::<Number>((0..1_000).map(|key| (key, Some(i64::from(key % 20))))));
    assert_eq!(delta.runs_of::<ByTens>().runs, 3, "each list is rebuilt once, however many members are added");
    assert_eq!(engine.get::<Tens>(&0).as_deref(), Some(&500));
    assert_eq!(engine.get::<Tens>(&-1).as_deref(), Some(&1_000));

    let delta = put::<Number>(&mut engine, 5, 6);
    assert_eq!(delta.runs_of::<ByTens>().runs, 0, "a changed row in the same group does not change the group");
    let delta = engine.commit(batch::<Number>([(0, Some(15)), (1, Some(16)), (2, Some(55))]));
    assert_eq!(delta.runs_of::<ByTens>().runs, 3);
    let members: Members<u32> = (3..10).chain(20..30).collect();
    assert_eq!(engine.get::<ByTens>(&0).map(|row| row.iter().take(17).copied().collect()), Some(members.to_vec()));
    assert_eq!(engine.get::<ByTens>(&5).map(|row| row.to_vec()), Some(vec![2]));
    let delta = remove::<Number>(&mut engine, 2);
    assert_eq!(
        delta.changed::<ByTens>().find(|(key, _)| *key == 5),
        Some((5, None)),
        "a group without members has no row"
    );
    assert_eq!(engine.get::<Tens>(&5), None);
    sound(&engine);
}

rule!(Census, "census", (), Vec<u32>, |cx, _key| Some(
    cx.keys::<Left>().iter().filter(|key| *key % 2 == 0).copied().collect()
));

#[test]
fn a_key_set_is_read_like_a_cell() {
    let mut builder = Engine::builder();
    builder.input::<Number>().world::<Left, Number>().view::<Census>();
    let mut engine = builder.build();
    engine.commit(batch::<Number>((0..6).map(|key| (key, Some(1)))));
    let census = engine.subscribe::<Census>(());
    assert_eq!(engine.row::<Census>(census).as_deref(), Some(&vec![0, 2, 4]));
    assert_eq!(put::<Number>(&mut engine, 2, 88).runs_of::<Census>().runs, 0, "rows changed, keys did not");
    let delta = engine.commit(batch::<Number>([(2, None), (9, Some(0)), (8, Some(0))]));
    assert_eq!(delta.runs_of::<Census>().runs, 1);
    assert_eq!(engine.row::<Census>(census).as_deref(), Some(&vec![0, 4, 8]));
    let delta = put::<Number>(&mut engine, 11, 1);
    assert_eq!(delta.runs_of::<Census>().cut_offs, 1);
    assert_eq!(engine.keys::<Left>().to_vec(), [0, 1, 3, 4, 5, 8, 9, 11]);
    sound(&engine);
    engine.unsubscribe(census);
    put::<Number>(&mut engine, 12, 1);
    assert_eq!(engine.keys::<Left>().len(), 9);
}

rule!(Sum, "sum", u32, i64, |cx, count| (0..*count).map(|key| cx.get::<Number>(&key).map(|row| *row)).sum());
rule!(Offset, "offset", u32, i64, |cx, key| Some(*cx.get::<Number>(&0)? + i64::from(*key)));

#[test]
fn wide_reads_and_wide_tables_take_linear_time() {
    const WIDE: u32 = 20_000;
    let mut builder = Engine::builder();
    builder.input::<Number>().view::<Sum>().view::<Offset>();
    let mut engine = builder.build();
    engine.commit(batch::<Number>((0..WIDE).map(|key| (key, Some(1)))));
    // One cell that reads many, and many cells that read one. If any of it were quadratic, this test would take
    // minutes.
    let wide = engine.subscribe::<Sum>(WIDE);
    let mut narrow = engine.subscribe_all::<Offset>(&(0..WIDE).collect::<Vec<_>>());
    assert_eq!(put::<Number>(&mut engine, WIDE / 2, 5).runs_of::<Sum>().runs, 1);
    assert_eq!(engine.row::<Sum>(wide).as_deref(), Some(&(i64::from(WIDE) + 4)));
    let delta = put::<Number>(&mut engine, 0, 2);
    assert_eq!(delta.changed::<Offset>().count(), WIDE as usize);
    sound(&engine);
    let last = narrow.pop();
    narrow.into_iter().for_each(|cell| assert!(engine.unsubscribe(cell)));
    assert!(engine.unsubscribe(wide));
    assert_eq!(engine.stats().edges(), 1);
    put::<Number>(&mut engine, 0, 3);
    assert_eq!(last.and_then(|cell| engine.row::<Offset>(cell)).as_deref(), Some(&(i64::from(WIDE) + 2)));
}

rule!(Shuffled, "shuffled", (), Vec<i64>, |cx, _key| {
    // The order of its reads, including duplicates, depends on the first.
    let first = *cx.get::<Number>(&0)?;
    let order = (0..40).map(|at| ((at * first) % 41).unsigned_abs() as u32);
    Some(order.chain([0, 1, 1, 0]).filter_map(|key| cx.get::<Number>(&key)).map(|row| *row).collect())
});

#[test]
fn reads_may_repeat_and_change_order() {
    let mut builder = Engine::builder();
    builder.input::<Number>().view::<Shuffled>();
    let mut engine = builder.build();
    engine.commit(batch::<Number>((0..41).map(|key| (key, Some(1)))));
    engine.subscribe::<Shuffled>(());
    for first in [1, 3, 3, 7, 0, 40, 5, 1] {
        put::<Number>(&mut engine, 0, first);
        sound(&engine);
    }
    assert_eq!(engine.stats().edges(), 40);
}

#[test]
fn unregistered_and_duplicate_relations_panic() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let text = |panic: Box<dyn std::any::Any + Send>| panic.downcast_ref::<String>().cloned().unwrap_or_default();
    let mut engine = diamond();
    let commit = catch_unwind(AssertUnwindSafe(|| drop(put::<Alias>(&mut engine, "a", "b"))));
    assert!(text(commit.unwrap_err()).contains("alias is not registered as an input"));
    let build = catch_unwind(|| _ = Engine::builder().world::<Left, Number>());
    assert!(text(build.unwrap_err()).contains("left is over number, which is not registered"));
    let twice = catch_unwind(|| _ = Engine::builder().input::<Number>().input::<Number>());
    assert!(text(twice.unwrap_err()).contains("number is registered twice"));
}

#[test]
fn engines_can_be_sent_and_shared() {
    fn check<T: Send + Sync>() {}
    check::<Engine>();
    check::<flow::Batch>();
    check::<flow::Delta>();
}

#[test]
fn a_wrong_order_of_registration_is_found_before_the_first_read() {
    let mut builder = Engine::builder();
    builder.input::<Number>().world::<Left, Number>();
    assert_eq!(builder.check_order([("left", "number"), ("unknown", "right")]), Ok(()));
    let error = builder.check_order([("left", "right")]).unwrap_err();
    assert_eq!(error.to_string(), "left reads right, which is not registered before it");
    assert!(builder.check_order([("number", "left")]).is_err());
}

#[test]
fn relations_that_read_each_other_are_reported() {
    let mut engine = diamond();
    put::<Number>(&mut engine, 1, 12);
    let reads: Vec<_> = engine.relation_reads().into_iter().collect();
    let expected = [("join", "left"), ("join", "right"), ("last", "join"), ("left", "number"), ("right", "number")];
    assert_eq!(reads, expected);
}
