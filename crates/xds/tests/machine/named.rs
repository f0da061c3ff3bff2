//! Clients that ask for listeners and clusters by name, as gRPC does.

use model::proxy::ProxyKind;
use xds::Variant::{Delta, Sotw};

use crate::client::Client;
use crate::harness::*;
use crate::world::{BY_NAME, plain};

/// A world in which clients ask by name: clusters, endpoints and listeners `a` and `b`.
fn world() -> Harness {
    let mut h = Harness::new();
    h.world.newcomers = Some(BY_NAME);
    for name in ["a", "b"] {
        set(&mut h, name, 1);
    }
    h.world.put(RDS, BY_NAME, "a", plain(1));
    h.commit();
    h
}

fn set(h: &mut Harness, name: &str, number: u32) {
    for kind in [CDS, EDS, LDS] {
        h.world.put(kind, BY_NAME, name, plain(number));
    }
}

#[test]
fn a_client_gets_what_it_names_and_nothing_else() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.ask(&mut h, LDS, &["a"]);
    assert_eq!(client.take(&mut h), ["LDS a=1"]);
    client.ack(&mut h, LDS);
    client.ask(&mut h, CDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"]);

    let mut other = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    other.ask(&mut h, CDS, &["b"]);
    assert_eq!(other.drain(&mut h), ["CDS b=1"]);
    set(&mut h, "b", 2);
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0], "it never named it");
    assert_eq!(other.drain(&mut h), ["CDS b=2"]);
}

#[test]
fn a_name_that_does_not_exist_is_absent_from_the_answer() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.ask(&mut h, LDS, &["nobody"]);
    assert_eq!(client.drain(&mut h), ["LDS"], "said at once: the whole set is empty");
    client.ask(&mut h, LDS, &["a", "nobody"]);
    assert_eq!(client.drain(&mut h), ["LDS a=1"]);
    set(&mut h, "nobody", 7);
    h.commit();
    assert_eq!(client.drain(&mut h), ["LDS a=1 nobody=7"], "it came to life");
    h.world.remove(LDS, BY_NAME, "nobody");
    h.commit();
    assert_eq!(client.drain(&mut h), ["LDS a=1"], "and went");
}

#[test]
fn names_come_and_go_on_one_stream() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.ask(&mut h, CDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"]);
    client.ask(&mut h, CDS, &["a", "b"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1 b=1"]);
    client.ask(&mut h, CDS, &["b"]);
    assert_eq!(client.drain(&mut h), ["CDS b=1"]);
    client.ask(&mut h, CDS, &[]);
    assert_eq!(client.drain(&mut h), [""; 0], "it has no use for any");
    set(&mut h, "b", 2);
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0]);
    client.ask(&mut h, CDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"], "again from the start");
    h.disconnect(client.id);
    assert_eq!(h.world.open_cells(), 0);
}

#[test]
fn what_went_and_came_back_while_nobody_asked_is_there() {
    let mut h = world();
    let mut one = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    one.ask(&mut h, CDS, &["a", "b"]);
    one.drain(&mut h);
    h.world.remove(CDS, BY_NAME, "b");
    h.commit();
    assert_eq!(one.drain(&mut h), ["CDS a=1"]);
    one.ask(&mut h, CDS, &["a"]);
    one.drain(&mut h);
    set(&mut h, "b", 3);
    h.commit();
    one.ask(&mut h, CDS, &["a", "b"]);
    assert_eq!(one.drain(&mut h), ["CDS a=1 b=3"]);
    h.commit();
    assert_eq!(one.drain(&mut h), [""; 0], "nothing is due");
}

#[test]
fn no_names_at_all_are_none_and_end_in_silence() {
    let mut h = world();
    let mut named = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    named.ask(&mut h, CDS, &["a"]);
    named.drain(&mut h);
    let mut all = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    all.ask(&mut h, CDS, &[]);
    assert_eq!(all.drain(&mut h), ["CDS"], "what others name is no list");
    set(&mut h, "a", 2);
    h.commit();
    assert_eq!(all.drain(&mut h), [""; 0]);
    all.ask(&mut h, CDS, &["b"]);
    assert_eq!(all.drain(&mut h), ["CDS b=1"]);
}

#[test]
fn a_route_that_means_nothing_is_no_empty_table() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.ask(&mut h, RDS, &["a", "missing"]);
    assert_eq!(client.drain(&mut h), ["RDS a=1"]);
    client.ask(&mut h, EDS, &["a", "missing"]);
    assert_eq!(
        client.drain(&mut h),
        ["EDS a=1 missing=0"],
        "without endpoints calls fail at once"
    );
}

#[test]
fn a_client_that_returns_with_what_it_has_is_sent_nothing() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.ask(&mut h, CDS, &["a", "nobody"]);
    client.drain(&mut h);
    let version = client.last(CDS).version.clone();
    h.disconnect(client.id);
    let mut again = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    h.request(again.id, sotw(CDS, &["a", "nobody"], &version, "")).unwrap();
    assert_eq!(again.take(&mut h), [""; 0]);
    let mut more = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    h.request(more.id, sotw(CDS, &["a", "b"], &version, "")).unwrap();
    assert_eq!(more.take(&mut h), ["CDS a=1 b=1"]);
}

#[test]
fn clusters_go_after_the_routes_that_led_to_them() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    for kind in [LDS, RDS, CDS, EDS] {
        client.ask(&mut h, kind, &["a"]);
        assert_eq!(client.drain(&mut h).len(), 1, "{kind:?}");
    }
    h.world.remove(CDS, BY_NAME, "a");
    h.world.put(RDS, BY_NAME, "a", plain(2));
    h.commit();
    assert_eq!(client.drain(&mut h), ["RDS a=2", "CDS"]);
}

#[test]
fn delta_says_what_is_missing_and_what_went() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Delta);
    client.ask(&mut h, CDS, &["a", "nobody"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1 -nobody"]);
    client.ask(&mut h, CDS, &["b"]);
    assert_eq!(client.drain(&mut h), ["CDS b=1"]);
    h.world.remove(CDS, BY_NAME, "a");
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS -a"]);
    client.unsubscribe(&mut h, CDS, &["b"]);
    set(&mut h, "b", 2);
    set(&mut h, "nobody", 2);
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS nobody=2"]);
}
