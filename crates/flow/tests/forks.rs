//! A fork and its original are isolated from each other.

mod common;
use common::*;

use flow::{Engine, Members};

input!(Number, "number", u32, i64);
index!(Parity, "parity", bool, Number, |_key, row| vec![row % 2 == 0]);
rule!(Next, "next", u32, i64, |cx, key| cx.get::<Number>(key).map(|row| *row + 1));
rule!(Sum, "sum", bool, i64, |cx, even| {
    let members: Option<_> = cx.get::<Parity>(even);
    Some(members?.iter().filter_map(|key| cx.get::<Next>(key)).map(|row| *row).sum())
});

fn engine() -> Engine {
    let mut builder = Engine::builder();
    builder.input::<Number>().index::<Parity>().world::<Next, Number>().view::<Sum>();
    let mut engine = builder.build();
    engine.commit(batch::<Number>((0..500).map(|key| (key, Some(i64::from(key))))));
    engine
}

#[test]
fn a_fork_and_its_original_are_isolated() {
    let mut engine = engine();
    let even = engine.subscribe::<Sum>(true);
    let before = engine.row::<Sum>(even);
    let mut fork = engine.fork();
    let delta = fork.commit(batch::<Number>([(0, Some(1_000)), (1, None), (900, Some(0))]));
    assert_eq!(delta.changed::<Sum>().count(), 1);
    assert_ne!(fork.row::<Sum>(even), before);
    let odd = fork.subscribe::<Sum>(false);
    fork.unsubscribe(even);
    assert_eq!(engine.row::<Sum>(even), before);
    assert_eq!(engine.get::<Number>(&1).as_deref(), Some(&1));
    assert_eq!(engine.keys::<Number>(), (0..500).collect::<Members<u32>>());
    assert_eq!(engine.row::<Sum>(odd), None);
    sound(&engine);
    sound(&fork);

    // And in the other direction.
    put::<Number>(&mut engine, 2, -8);
    assert_eq!(fork.get::<Next>(&2).as_deref(), Some(&3));
    sound(&fork);
    drop(fork);
    sound(&engine);
}

#[test]
fn a_fork_predicts_the_delta_of_a_change() {
    let mut engine = engine();
    engine.subscribe::<Sum>(true);
    let edit = || batch::<Number>([(3, Some(30)), (4, Some(4))]);
    let changes = |delta: &flow::Delta| format!("{:?}", delta.changes::<Sum>().collect::<Vec<_>>());
    let planned = engine.fork().commit(edit());
    let done = engine.commit(edit());
    assert_eq!(changes(&planned), changes(&done));
    assert_eq!(planned.cells(), done.cells());
    assert_eq!((planned.epoch(), done.epoch()), (2, 2));
}

#[test]
fn a_fork_can_be_forked() {
    let mut engine = engine();
    let cell = engine.subscribe::<Sum>(false);
    let mut generations = vec![engine];
    for step in 0..10 {
        let mut next = generations[step].fork();
        put::<Number>(&mut next, 600 + step as u32, 1);
        generations.push(next);
    }
    let sums: Vec<i64> = generations.iter().map(|engine| engine.row::<Sum>(cell).map_or(0, |row| *row)).collect();
    assert!(sums.windows(2).all(|pair| pair[1] == pair[0] + 2), "{sums:?}");
    generations.iter().for_each(sound);
    generations.truncate(1);
    sound(&generations[0]);
}
