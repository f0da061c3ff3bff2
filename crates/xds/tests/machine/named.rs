//! Clients that subscribe to listeners and clusters by name, as gRPC does.

use model::proxy::ProxyKind;
use xds::Variant::{Delta, Sotw};

use crate::client::Client;
use crate::harness::*;
use crate::world::{BY_NAME, plain};

/// A world in which clients subscribe by name: clusters, endpoints and listeners `a` and `b`.
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
fn a_client_receives_only_named_resources() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.subscribe(&mut h, LDS, &["a"]);
    assert_eq!(client.take(&mut h), ["LDS a=1"]);
    client.ack(&mut h, LDS);
    client.subscribe(&mut h, CDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"]);

    let mut other = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    other.subscribe(&mut h, CDS, &["b"]);
    assert_eq!(other.drain(&mut h), ["CDS b=1"]);
    set(&mut h, "b", 2);
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0], "it never subscribed to it");
    assert_eq!(other.drain(&mut h), ["CDS b=2"]);
}

#[test]
fn an_unknown_name_is_absent_from_the_response() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.subscribe(&mut h, LDS, &["nobody"]);
    assert_eq!(client.drain(&mut h), ["LDS"], "answered at once with an empty set");
    client.subscribe(&mut h, LDS, &["a", "nobody"]);
    assert_eq!(client.drain(&mut h), ["LDS a=1"]);
    set(&mut h, "nobody", 7);
    h.commit();
    assert_eq!(client.drain(&mut h), ["LDS a=1 nobody=7"], "added");
    h.world.remove(LDS, BY_NAME, "nobody");
    h.commit();
    assert_eq!(client.drain(&mut h), ["LDS a=1"], "removed");
}

#[test]
fn a_subscription_by_name_can_change() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.subscribe(&mut h, CDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"]);
    client.subscribe(&mut h, CDS, &["a", "b"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1 b=1"]);
    client.subscribe(&mut h, CDS, &["b"]);
    assert_eq!(client.drain(&mut h), ["CDS b=1"]);
    client.subscribe(&mut h, CDS, &[]);
    assert_eq!(client.drain(&mut h), [""; 0], "there is no subscription");
    set(&mut h, "b", 2);
    h.commit();
    assert_eq!(client.drain(&mut h), [""; 0]);
    client.subscribe(&mut h, CDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"], "a new subscription is answered in full");
    h.disconnect(client.id);
    assert_eq!(h.world.open_cells(), 0);
}

#[test]
fn a_resource_removed_and_added_without_subscribers_is_sent() {
    let mut h = world();
    let mut one = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    one.subscribe(&mut h, CDS, &["a", "b"]);
    one.drain(&mut h);
    h.world.remove(CDS, BY_NAME, "b");
    h.commit();
    assert_eq!(one.drain(&mut h), ["CDS a=1"]);
    one.subscribe(&mut h, CDS, &["a"]);
    one.drain(&mut h);
    set(&mut h, "b", 3);
    h.commit();
    one.subscribe(&mut h, CDS, &["a", "b"]);
    assert_eq!(one.drain(&mut h), ["CDS a=1 b=3"]);
    h.commit();
    assert_eq!(one.drain(&mut h), [""; 0], "nothing is pending");
}

#[test]
fn an_empty_list_of_names_is_not_a_wildcard() {
    let mut h = world();
    let mut named = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    named.subscribe(&mut h, CDS, &["a"]);
    named.drain(&mut h);
    let mut all = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    all.subscribe(&mut h, CDS, &[]);
    assert_eq!(all.drain(&mut h), ["CDS"], "the names of other clients are not a catalogue");
    set(&mut h, "a", 2);
    h.commit();
    assert_eq!(all.drain(&mut h), [""; 0]);
    all.subscribe(&mut h, CDS, &["b"]);
    assert_eq!(all.drain(&mut h), ["CDS b=1"]);
}

#[test]
fn an_unknown_route_is_not_answered_with_an_empty_table() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.subscribe(&mut h, RDS, &["a", "missing"]);
    assert_eq!(client.drain(&mut h), ["RDS a=1"]);
    client.subscribe(&mut h, EDS, &["a", "missing"]);
    assert_eq!(client.drain(&mut h), ["EDS a=1 missing=0"], "without endpoints, calls fail at once");
}

#[test]
fn a_reconnecting_client_with_the_current_version_is_sent_nothing() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    client.subscribe(&mut h, CDS, &["a", "nobody"]);
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
fn clusters_are_removed_after_the_routes_that_use_them() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Sotw);
    for kind in [LDS, RDS, CDS, EDS] {
        client.subscribe(&mut h, kind, &["a"]);
        assert_eq!(client.drain(&mut h).len(), 1, "{kind:?}");
    }
    h.world.remove(CDS, BY_NAME, "a");
    h.world.put(RDS, BY_NAME, "a", plain(2));
    h.commit();
    assert_eq!(client.drain(&mut h), ["RDS a=2", "CDS"]);
}

#[test]
fn delta_reports_unknown_and_removed_names() {
    let mut h = world();
    let mut client = Client::of(&mut h, ProxyKind::Grpc, Delta);
    client.subscribe(&mut h, CDS, &["a", "nobody"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1 -nobody"]);
    client.subscribe(&mut h, CDS, &["b"]);
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
