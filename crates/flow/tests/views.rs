//! Views live while they are subscribed to or read, and leave nothing behind.

mod common;
use common::*;

use flow::{Engine, Stats};

input!(Number, "number", u32, i64);
rule!(Double, "double", u32, i64, |cx, key| cx.get::<Number>(key).map(|row| *row * 2));
rule!(Pair, "pair", (u32, u32), i64, |cx, key| Some(
    *cx.get::<Double>(&key.0)? + cx.get::<Double>(&key.1).map_or(0, |row| *row)
));
rule!(Switch, "switch", u32, i64, |cx, key| {
    // Its further reads depend on the sign of the first.
    let number = *cx.get::<Number>(key)?;
    if number < 0 {
        cx.get::<Pair>(&(0, 1)).map(|row| *row)
    } else {
        cx.get::<Double>(&(number as u32)).map(|row| *row)
    }
});

fn engine() -> Engine {
    let mut builder = Engine::builder();
    builder.input::<Number>().view::<Double>().view::<Pair>().view::<Switch>();
    let mut engine = builder.build();
    engine.commit(batch::<Number>((0..10).map(|key| (key, Some(i64::from(key))))));
    engine
}

fn held(stats: &Stats) -> Vec<(&'static str, usize, usize)> {
    stats.relations.iter().map(|relation| (relation.name, relation.cells, relation.edges)).collect()
}

#[test]
fn a_view_is_derived_for_subscribers_only() {
    let mut engine = engine();
    assert_eq!(engine.get::<Double>(&3), None, "it is neither subscribed to nor read");
    assert_eq!(put::<Number>(&mut engine, 3, 33).runs_of::<Double>().runs, 0);
    let cell = engine.subscribe::<Double>(3);
    assert_eq!(engine.row::<Double>(cell).as_deref(), Some(&66));
    assert_eq!((engine.key::<Double>(cell), engine.relation(cell)), (Some(3), Some("double")));
    assert_eq!(engine.key::<Pair>(cell), None, "the cell is not one of pair");
    let delta = put::<Number>(&mut engine, 3, 4);
    assert_eq!(
        delta.changed::<Double>().map(|(key, row)| (key, row.map(|row| *row))).collect::<Vec<_>>(),
        [(3, Some(8))]
    );
    assert!(delta.cells().contains(&cell));
}

#[test]
fn subscriptions_are_counted_and_dropped_views_free_their_memory() {
    let mut engine = engine();
    let base = held(&engine.stats());
    let first = engine.subscribe::<Pair>((1, 2));
    let second = engine.subscribe::<Pair>((1, 2));
    assert_eq!(first, second);
    assert_eq!(
        engine.stats().relation("double").map(|double| double.cells),
        Some(2),
        "the views that it reads are live, too"
    );
    assert!(engine.unsubscribe(first));
    assert_eq!(engine.row::<Pair>(second).as_deref(), Some(&6));
    sound(&engine);
    assert!(engine.unsubscribe(second));
    assert_eq!(held(&engine.stats()), base);
    assert!(!engine.unsubscribe(second), "there is no subscription left");
    assert_eq!(engine.row::<Pair>(second), None);
    sound(&engine);
}

#[test]
fn a_view_lives_while_another_cell_reads_it() {
    let mut engine = engine();
    let double = engine.subscribe::<Double>(1);
    let pair = engine.subscribe::<Pair>((1, 20));
    engine.unsubscribe(double);
    assert_eq!(engine.row::<Double>(double).as_deref(), Some(&2), "pair reads it");
    assert_eq!(engine.stats().relation("number").map(|number| number.cells), Some(11), "the absent key 20 is read");
    put::<Number>(&mut engine, 20, 100);
    assert_eq!(engine.row::<Pair>(pair).as_deref(), Some(&202));
    sound(&engine);
}

#[test]
fn views_are_live_only_while_a_rule_reads_them() {
    let mut engine = engine();
    let switch = engine.subscribe::<Switch>(5);
    let delta = put::<Number>(&mut engine, 5, -1);
    assert_eq!(engine.row::<Switch>(switch).as_deref(), Some(&2));
    assert_eq!(delta.runs_of::<Pair>().runs, 1, "it is read for the first time");
    assert_eq!(delta.changed::<Pair>().count(), 0, "a view that was not live before is not in the delta");
    assert_eq!(engine.stats().relation("double").map(|double| double.cells), Some(2), "0 and 1, no longer 5");

    // A view that changes in the commit in which it loses its last reader is not in the delta.
    let delta = engine.commit(batch::<Number>([(0, Some(50)), (5, Some(7))]));
    assert_eq!(delta.changed::<Pair>().count(), 0);
    assert_eq!(delta.changed::<Double>().count(), 0);
    assert_eq!(delta.changed::<Switch>().map(|(_, row)| row.map(|row| *row)).collect::<Vec<_>>(), [Some(14)]);
    assert_eq!(engine.stats().relation("pair").map(|pair| pair.cells), Some(0));
    sound(&engine);
}

#[test]
fn dropping_many_views_frees_their_memory() {
    let mut engine = engine();
    let (base, bytes) = (held(&engine.stats()), engine.footprint());
    let mut random = Random::new(7);
    for round in 0..5 {
        let keys: Vec<_> = (0..3_000).map(|_| (random.below(300) as u32, random.below(300) as u32)).collect();
        let mut cells = engine.subscribe_all::<Pair>(&keys);
        assert_eq!(engine.stats().relation("pair").map(|pair| pair.subscriptions), Some(3_000));
        put::<Number>(&mut engine, round, 1_000 + i64::from(round));
        sound(&engine);
        while !cells.is_empty() {
            let cell = cells.swap_remove(random.below(cells.len()));
            assert!(engine.unsubscribe(cell));
        }
        assert_eq!(held(&engine.stats()), base);
    }
    let left = engine.footprint();
    assert_eq!((left.edge_bytes, left.row_bytes), (bytes.edge_bytes, bytes.row_bytes));
    assert!(left.cell_bytes < bytes.cell_bytes + 10_000, "pages were not freed: {left:?} after {bytes:?}");
}

#[test]
fn a_subscription_without_a_row_reports_the_row_when_it_appears() {
    let mut engine = engine();
    let cell = engine.subscribe::<Double>(77);
    assert_eq!(engine.row::<Double>(cell), None);
    let delta = put::<Number>(&mut engine, 77, 7);
    assert_eq!(delta.cells().last(), Some(&cell));
    assert_eq!(engine.row::<Double>(cell).as_deref(), Some(&14));
    let rows: Vec<_> = engine.iter::<Double>().map(|(key, row)| (*key, *row)).collect();
    assert_eq!(rows, [(77, 14)]);
}
