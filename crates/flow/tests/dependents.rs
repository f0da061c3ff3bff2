//! Finds the cells that were derived from a row.

mod common;
use common::*;

use flow::{Engine, Walk};

input!(Price, "price", &'static str, u32);
input!(Order, "order", u32, &'static str);
index!(Orders, "orders by item", &'static str, Order, |_key, row| vec![*row]);
rule!(Summary, "summary", &'static str, bool, |cx, key| Some(*cx.get::<Price>(key)? > 10));
rule!(Choice, "choice", (), usize, |cx, _key| Some(
    cx.keys::<Price>().iter().filter(|key| cx.get::<Summary>(key).is_some_and(|dear| *dear)).count()
));
rule!(Bill, "bill", u32, u32, |cx, key| Some(*cx.get::<Price>(&*cx.get::<Order>(key)?)?));
rule!(Page, "page", (), u32, |cx, _key| {
    let all = cx.get::<Choice>(&()).map_or(0, |choice| *choice as u32);
    let one = cx.get::<Bill>(&1).map_or(0, |bill| *bill);
    Some(all + one)
});

fn engine() -> Engine {
    let mut builder = Engine::builder();
    builder.input::<Price>().input::<Order>().index::<Orders>();
    builder.world::<Summary, Price>().view::<Choice>().world::<Bill, Order>();
    builder.view::<Page>();
    let mut engine = builder.build();
    let mut edits = batch::<Price>([("tea", Some(3)), ("pot", Some(20))]);
    edits.merge(batch::<Order>([(1, Some("tea")), (2, Some("pot"))]));
    engine.commit(edits);
    engine
}

fn names(engine: &Engine, item: &'static str, walk: &Walk) -> Vec<&'static str> {
    let found = engine.dependents::<Price>(&item, walk);
    assert!(found.complete);
    found.cells.into_iter().map(|(_, name)| name).collect()
}

#[test]
fn dependents_are_found_and_choices_can_be_excluded() {
    let mut engine = engine();
    let walk = Walk::within(100).to::<Page>().to::<Bill>();
    assert_eq!(names(&engine, "tea", &walk), ["bill"], "the page is not live");
    engine.subscribe::<Page>(());
    assert_eq!(names(&engine, "tea", &walk), ["bill", "page"]);
    assert_eq!(names(&engine, "pot", &walk), ["bill", "page"], "through the summary, which chose among the prices");
    let walk = walk.not_through::<Summary>();
    assert_eq!(names(&engine, "tea", &walk), ["bill", "page"]);
    assert_eq!(names(&engine, "pot", &walk), ["bill"]);
    assert_eq!(names(&engine, "cup", &walk), [""; 0], "it is never read");

    remove::<Order>(&mut engine, 1);
    assert_eq!(names(&engine, "tea", &walk), [""; 0]);
}

#[test]
fn a_walk_stops_at_its_limit() {
    let mut engine = engine();
    engine.subscribe::<Page>(());
    let found = engine.dependents::<Price>(&"tea", &Walk::within(1).to::<Page>());
    assert!(!found.complete);
    assert!(found.cells.is_empty());
}
