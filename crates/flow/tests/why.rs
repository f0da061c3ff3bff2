//! The tree of reads from a row to its inputs.

mod common;
use common::*;

use flow::{Engine, WhyState};

input!(Service, "service", &'static str, u32);
input!(Endpoint, "endpoint", u32, &'static str);
index!(Endpoints, "endpoints by service", &'static str, Endpoint, |_key, row| vec![*row]);
rule!(Load, "load", &'static str, usize, |cx, key| {
    let port = *cx.get::<Service>(key)?;
    Some(cx.get::<Endpoints>(key).map_or(0, |list| list.len()) + port as usize)
});
rule!(Page, "page", (), usize, |cx, _key| {
    let names = cx.keys::<Service>();
    Some(names.iter().chain(&["missing"]).filter_map(|name| cx.get::<Load>(name)).map(|load| *load).sum())
});

fn engine() -> Engine {
    let mut builder = Engine::builder();
    builder.input::<Service>().input::<Endpoint>().index::<Endpoints>();
    builder.world::<Load, Service>().view::<Page>();
    let mut engine = builder.build();
    let mut edits = batch::<Service>([("web", Some(80)), ("db", Some(5))]);
    edits.merge(batch::<Endpoint>([(1, Some("web")), (2, Some("web"))]));
    engine.commit(edits);
    engine
}

#[test]
fn the_tree_reaches_the_inputs() {
    let mut engine = engine();
    engine.subscribe::<Page>(());
    let expected = "\
page ()
  service (all keys)
  load \"db\"
    service \"db\"
    endpoints by service \"db\" (absent)
  load \"web\"
    service \"web\"
    endpoints by service \"web\"
      endpoint 1
      endpoint 2
  load \"missing\" (absent)
";
    assert_eq!(engine.why::<Page>(&()).to_string(), expected);
}

#[test]
fn views_that_are_not_live_are_not_derived() {
    let engine = engine();
    assert_eq!(engine.why::<Page>(&()).state, WhyState::NotDerived);
    assert_eq!(engine.why::<Service>(&"nope").state, WhyState::Absent);
    assert_eq!(engine.why::<Service>(&"nope").to_string(), "service \"nope\" (absent)\n");
}

rule!(Twice, "twice", &'static str, usize, |cx, key| {
    let other = cx.get::<Load>(&"web").map_or(0, |load| *load);
    Some(other + *cx.get::<Load>(key)?)
});
rule!(Top, "top", (), usize, |cx, _key| Some(["web", "db"].iter().filter_map(|key| cx.get::<Twice>(key)).count()));

#[test]
fn shared_subtrees_are_shown_once_and_the_tree_is_bounded() {
    let mut builder = Engine::builder();
    builder.input::<Service>().input::<Endpoint>().index::<Endpoints>();
    builder.world::<Load, Service>().world::<Twice, Service>().view::<Top>();
    let mut engine = builder.build();
    engine.commit(batch::<Service>([("web", Some(80)), ("db", Some(5))]));
    engine.subscribe::<Top>(());
    let why = engine.why::<Top>(&());
    let load_of_web: Vec<_> =
        why.nodes().into_iter().filter(|node| node.relation == "load" && node.key.contains("web")).collect();
    assert_eq!(load_of_web.len(), 2);
    assert_eq!(load_of_web.iter().filter(|node| node.repeated && node.reads.is_empty()).count(), 1);
    assert_eq!(load_of_web.iter().filter(|node| !node.repeated && node.reads.len() == 2).count(), 1);

    let small = engine.why_within::<Top>(&(), 4);
    assert_eq!(small.nodes().len(), 4);
    assert_eq!(small.reads.len(), 2, "nodes near the root take precedence");
    assert!(small.nodes().iter().any(|node| node.omitted > 0));
    assert!(small.to_string().contains("more\n"));
}
