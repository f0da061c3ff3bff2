//! A panic of a rule affects only its own cell, which recovers.

mod common;
use common::*;

use flow::{Engine, Panic};

input!(Number, "number", u32, i64);
index!(Thirds, "thirds", i64, Number, |_key, row| {
    assert!(*row != 99, "99 cannot be indexed");
    vec![row % 3]
});
rule!(Half, "half", u32, i64, |cx, key| {
    let row = *cx.get::<Number>(key)?;
    assert!(row % 2 == 0, "{row} is odd");
    Some(row / 2)
});
rule!(Total, "total", (), i64, |cx, _key| {
    Some(cx.keys::<Half>().iter().filter_map(|key| cx.get::<Half>(key)).map(|row| *row).sum())
});
rule!(Early, "early", u32, i64, |cx, key| {
    if cx.contains::<Number>(key) {
        std::panic::panic_any(7_u8);
    }
    cx.get::<Number>(&1_000).map(|row| *row)
});

fn engine() -> Engine {
    quiet();
    let mut builder = Engine::builder();
    builder.input::<Number>().index::<Thirds>().world::<Half, Number>().view::<Total>().view::<Early>();
    builder.build()
}

/// Silences intentional panics.
fn quiet() {
    std::panic::set_hook(Box::new(|panic| {
        if panic.location().is_some_and(|at| at.file().contains("panics.rs") && at.line() > 60) {
            eprintln!("{panic}");
        }
    }));
}

fn panic(rule: &'static str, key: &str, message: &str) -> Panic {
    Panic { rule, key: key.to_owned(), message: message.to_owned() }
}

#[test]
fn a_panic_keeps_the_last_good_row_until_the_rule_succeeds() {
    let mut engine = engine();
    engine.commit(batch::<Number>([(1, Some(10)), (2, Some(20))]));
    let total = engine.subscribe::<Total>(());
    let delta = engine.commit(batch::<Number>([(1, Some(11)), (2, Some(40))]));
    assert_eq!(delta.panics(), [panic("half", "1", "11 is odd")]);
    assert_eq!(delta.runs_of::<Half>().panics, 1);
    assert_eq!(engine.get::<Half>(&1).as_deref(), Some(&5), "the last good row");
    assert_eq!(engine.row::<Total>(total).as_deref(), Some(&25), "other rules run");
    assert_eq!(engine.stats().relation("half").map(|half| (half.panics, half.poisoned)), Some((1, 1)));
    assert!(engine.why::<Half>(&1).panicked);
    sound(&engine);

    assert_eq!(put::<Number>(&mut engine, 1, 13).panics().len(), 1, "it runs again when a row that it read changes");
    assert_eq!(put::<Number>(&mut engine, 3, 2).panics().len(), 0, "it does not run otherwise");
    let delta = put::<Number>(&mut engine, 1, 12);
    assert!(delta.panics().is_empty());
    assert_eq!(engine.row::<Total>(total).as_deref(), Some(&27));
    assert_eq!(engine.stats().relation("half").map(|half| (half.panics, half.poisoned)), Some((2, 0)));
    sound(&engine);
}

#[test]
fn a_new_cell_that_panics_has_no_row() {
    let mut engine = engine();
    let delta = put::<Number>(&mut engine, 1, 3);
    assert_eq!(delta.panics(), [panic("half", "1", "3 is odd")]);
    assert_eq!(engine.get::<Half>(&1), None);
    sound(&engine);
    remove::<Number>(&mut engine, 1);
    assert_eq!((engine.stats().cells(), engine.stats().relation("half").map(|half| half.poisoned)), (0, Some(0)));
}

#[test]
fn panics_of_subscriptions_are_in_the_next_delta() {
    let mut engine = engine();
    put::<Number>(&mut engine, 1, 2);
    let cell = engine.subscribe::<Early>(1);
    assert_eq!(engine.row::<Early>(cell), None);
    let delta = engine.commit(flow::Batch::new());
    assert_eq!(delta.panics(), [panic("early", "1", "a panic without a text")]);
    assert!(engine.commit(flow::Batch::new()).panics().is_empty());
    assert_eq!(engine.stats().relation("early").map(|early| early.edges), Some(1), "its reads before the panic");
    put::<Number>(&mut engine, 1_000, 4);
    remove::<Number>(&mut engine, 1);
    assert_eq!(engine.row::<Early>(cell).as_deref(), Some(&4));
    sound(&engine);
    assert!(engine.unsubscribe(cell));
}

rule!(Caller, "caller", u32, i64, |cx, key| Some(cx.get::<Early>(key).map_or(-1, |row| *row)));

#[test]
fn a_view_is_failed_until_what_it_reads_has_a_row() {
    quiet();
    let mut builder = Engine::builder();
    builder.input::<Number>().view::<Early>().view::<Caller>();
    let mut engine = builder.build();
    engine.commit(batch::<Number>([(1, Some(2)), (1_000, Some(5))]));
    let [caller, other] = [1, 2].map(|key| engine.subscribe::<Caller>(key));
    let early = engine.subscribe::<Early>(1);
    assert_eq!([caller, other, early].map(|cell| engine.is_failed(cell)), [true, false, true]);
    assert_eq!(engine.take_panics().len(), 1);
    assert!(engine.commit(flow::Batch::new()).panics().is_empty(), "they were taken");
    remove::<Number>(&mut engine, 1);
    assert_eq!((engine.row::<Caller>(caller).as_deref(), engine.is_failed(caller)), (Some(&5), false));
    // It has a row from before.
    put::<Number>(&mut engine, 1, 2);
    assert!(!engine.is_failed(early) && engine.row::<Early>(early).is_some());
    assert_eq!(engine.rebuilt().get::<Number>(&1_000).as_deref(), Some(&5));
    sound(&engine);
}

#[test]
fn a_row_whose_index_keys_panic_is_not_indexed() {
    let mut engine = engine();
    put::<Number>(&mut engine, 1, 6);
    let delta = put::<Number>(&mut engine, 1, 99);
    assert_eq!(delta.panics().first(), Some(&panic("thirds", "1", "99 cannot be indexed")));
    assert_eq!(engine.get::<Thirds>(&0), None);
    put::<Number>(&mut engine, 1, 8);
    assert_eq!(engine.get::<Thirds>(&2).map(|row| row.to_vec()), Some(vec![1]));
    sound(&engine);
}

rule!(Above, "above", u32, i64, |cx, key| cx.get::<Below>(key).map(|row| *row));
rule!(Below, "below", u32, i64, |cx, key| cx.get::<Number>(key).map(|row| *row));
rule!(Lost, "lost", u32, i64, |cx, key| cx.get::<Half>(key).map(|row| *row));

#[test]
fn a_read_of_a_later_relation_panics_with_both_names() {
    quiet();
    let mut builder = Engine::builder();
    builder.input::<Number>().view::<Above>().view::<Below>().view::<Lost>();
    let mut engine = builder.build();
    engine.subscribe::<Above>(1);
    engine.subscribe::<Lost>(1);
    let delta = engine.commit(flow::Batch::new());
    let messages: Vec<_> = delta.panics().iter().map(|panic| panic.message.as_str()).collect();
    assert!(messages[0].contains("above reads below, which is registered after it"), "{messages:?}");
    assert!(messages[1].contains("lost reads half, which is not registered"), "{messages:?}");
}

#[test]
fn random_panics_never_spread() {
    let mut engine = engine();
    let mut random = Random::new(3);
    let mut panics = 0;
    for _ in 0..3_000 {
        let edits = (0..1 + random.below(3)).map(|_| {
            let row = (!random.once_in(4)).then(|| [2, 3, 4, 7, 99, 100][random.below(6)]);
            (random.below(6) as u32, row)
        });
        panics += engine.commit(batch::<Number>(edits.collect::<Vec<_>>())).panics().len();
        if random.once_in(5) {
            let cell = engine.subscribe::<Early>(random.below(6) as u32);
            if random.once_in(2) {
                engine.unsubscribe(cell);
            }
        }
        let _ = engine.subscribe::<Total>(());
        sound(&engine);
    }
    assert!(panics > 1_000, "{panics} panics");
}

/// A difference next to a panic must be found.
#[test]
fn agree_finds_differences_next_to_panics() {
    let mut left = engine();
    left.commit(batch::<Number>([(1, Some(3)), (2, Some(2))]));
    let mut right = left.fork();
    assert_eq!(left.agree(&right), Ok(()));
    put::<Number>(&mut right, 2, 4);
    let mismatch = left.agree(&right).map_err(|mismatch| mismatch.to_string());
    assert_eq!(mismatch, Err("number 2: 2 is not 4".to_owned()));
    put::<Number>(&mut left, 2, 4);
    left.subscribe::<Early>(5);
    let mismatch = left.agree(&right).map_err(|mismatch| mismatch.to_string());
    assert_eq!(mismatch, Err("early 5: no row is not no cell".to_owned()));
}
