//! Proxies with clusters and endpoints of their own beside those of their audience.

use model::proxy::ProxyKind;
use xds::Limits;
use xds::Variant::{Delta, Sotw};

use crate::client::{Client, borrow, resume, versions};
use crate::harness::*;
use crate::world::{Audience, plain};

/// [`Harness::small`], in which proxies that connect have their own cluster `own` of audience `x`. Audience `y` has
/// another one.
fn with_own() -> Harness {
    let mut h = Harness::small();
    h.world.put(CDS, "x", "own", plain(1));
    h.world.put(CDS, "y", "own", plain(2));
    h.world.own_of_newcomers = Some("x");
    h.commit();
    h
}

/// A client that has its clusters.
fn settled(h: &mut Harness, variant: xds::Variant) -> Client {
    let mut client = Client::new(h, variant);
    client.subscribe(h, CDS, &[]);
    assert_eq!(client.drain(h), ["CDS a=1 b=1 own=1"]);
    client
}

#[test]
fn a_client_gets_both_and_their_changes() {
    let mut h = with_own();
    let mut client = settled(&mut h, Delta);
    h.world.put(CDS, "x", "own", plain(2));
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS own=2"]);
    h.change(&[(CDS, "a", 3)]);
    assert_eq!(client.drain(&mut h), ["CDS a=3"]);
    h.world.put(CDS, "x", "own", plain(4));
    h.change(&[(CDS, "b", 4)]);
    assert_eq!(client.drain(&mut h), ["CDS b=4 own=4"]);
    h.world.remove(CDS, "x", "own");
    h.change(&[(CDS, "b", 0)]);
    assert_eq!(client.drain(&mut h), ["CDS -b -own"]);
}

#[test]
fn sotw_responses_have_both() {
    let mut h = with_own();
    let mut client = settled(&mut h, Sotw);
    h.change(&[(CDS, "a", 3)]);
    assert_eq!(client.drain(&mut h), ["CDS a=3 b=1 own=1"]);
    h.world.remove(CDS, "x", "own");
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS a=3 b=1"]);
}

#[test]
fn an_own_catalogue_is_opened_after_the_shared_one() {
    let mut h = with_own();
    let mut first = settled(&mut h, Delta);
    assert_eq!(h.world.catalogues, ["a", "x"]);
    // A move opens it again.
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.world.give(token, Some("y"));
    h.commit();
    assert_eq!(first.drain(&mut h), ["CDS own=2 -a -b"]);
    assert_eq!(h.world.catalogues[2..], ["b", "y"]);
}

#[test]
fn a_change_of_shared_resources_is_composed_once() {
    let mut h = with_own();
    // They connect in different epochs, with own resources of different audiences.
    let mut clients: Vec<Client> = Vec::new();
    for (own, number) in [("x", 1), ("y", 2), ("x", 1)] {
        h.world.own_of_newcomers = Some(own);
        h.change(&[(EDS, "a", 10 + clients.len() as u32)]);
        let mut client = Client::new(&mut h, Delta);
        client.subscribe(&mut h, CDS, &[]);
        assert_eq!(client.drain(&mut h), [format!("CDS a=1 b=1 own={number}")]);
        clients.push(client);
    }
    let before = h.hub.stats().of(CDS).composed;
    h.change(&[(CDS, "a", 3)]);
    for client in &mut clients {
        assert_eq!(client.drain(&mut h), ["CDS a=3"]);
    }
    // One shared part, and for each of the two own audiences the knowledge that it contributes nothing.
    assert!(h.hub.stats().of(CDS).composed - before <= 3);
}

#[test]
fn a_move_of_own_resources_keeps_the_shared_ones() {
    let mut h = with_own();
    let mut client = settled(&mut h, Delta);
    // A pending change of a shared resource survives the move.
    h.change(&[(CDS, "a", 2)]);
    let token = h.world.last_token();
    h.world.give(token, Some("y"));
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS a=2 own=2"]);
    h.world.give(token, None);
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS -own"]);
    h.world.give(token, Some("x"));
    h.change(&[(CDS, "b", 0)]);
    assert_eq!(client.drain(&mut h), ["CDS own=1 -b"]);
}

#[test]
fn a_client_that_returns_is_sent_only_the_difference() {
    let mut h = with_own();
    let client = settled(&mut h, Delta);
    let had = versions(&h, client.id, CDS);
    assert_eq!(had.len(), 3);
    h.disconnect(client.id);
    h.world.put(CDS, "x", "own", plain(5));
    h.commit();
    let mut client = Client::new(&mut h, Delta);
    h.request(client.id, resume(CDS, &[], &borrow(&had))).unwrap();
    assert_eq!(client.drain(&mut h), ["CDS own=5"]);

    // In SotW the version covers both.
    let mut sotw_client = Client::new(&mut h, Sotw);
    sotw_client.subscribe(&mut h, CDS, &[]);
    assert_eq!(sotw_client.drain(&mut h), ["CDS a=1 b=1 own=5"]);
    let version = sotw_client.last(CDS).version.clone();
    let again = Client::new(&mut h, Sotw);
    h.request(again.id, sotw(CDS, &[], &version, "")).unwrap();
    assert!(h.poll(again.id).is_empty());
    h.world.put(CDS, "x", "own", plain(6));
    h.commit();
    let late = Client::new(&mut h, Sotw);
    h.request(late.id, sotw(CDS, &[], &version, "")).unwrap();
    assert_eq!(h.poll(late.id).len(), 1);
}

#[test]
fn ledgers_close_with_their_last_client() {
    let mut h = with_own();
    let (one, two) = (settled(&mut h, Delta), settled(&mut h, Delta));
    assert_eq!(h.hub.sizes()[0], ("ledgers", 2));
    h.disconnect(one.id);
    assert_eq!(h.hub.sizes()[0], ("ledgers", 2));
    h.disconnect(two.id);
    assert!(h.hub.sizes().iter().all(|(_, size)| *size == 0));
}

/// [`Harness::small`], in which clients have own endpoints of the cluster `o0`.
fn with_own_endpoints(limits: Limits) -> Harness {
    let mut h = Harness::small_with(limits);
    for (own, number) in [("x", 7), ("y", 8)] {
        h.world.put(EDS, own, "o0", plain(number));
    }
    // Nobody is sent the endpoints that the shared audience has for the cluster.
    h.world.put(EDS, "a", "o0", plain(99));
    h.commit();
    h
}

/// A client with these own endpoints that has all endpoints.
fn with_endpoints(h: &mut Harness, own: Audience, variant: xds::Variant) -> Client {
    h.world.own_of_newcomers = Some(own);
    let mut client = Client::new(h, variant);
    client.subscribe(h, EDS, &["a", "b", "o0"]);
    let number = if own == "x" { 7 } else { 8 };
    assert_eq!(client.drain(h), [format!("EDS a=1 b=1 o0={number}")]);
    client
}

#[test]
fn own_names_of_a_named_type_come_from_the_own_audience() {
    for variant in [Delta, Sotw] {
        let mut h = with_own_endpoints(Harness::limits());
        let mut client = with_endpoints(&mut h, "x", variant);
        h.world.put(EDS, "x", "o0", plain(10));
        h.change(&[(EDS, "o0", 100)]);
        assert_eq!(client.drain(&mut h), ["EDS o0=10"]);
        h.world.put(EDS, "x", "o0", plain(11));
        h.change(&[(EDS, "b", 2)]);
        assert_eq!(client.drain(&mut h), ["EDS b=2 o0=11"]);
        client.subscribe(&mut h, EDS, &["b", "o1"]);
        h.world.put(EDS, "x", "o1", plain(12));
        h.commit();
        assert!(client.drain(&mut h).iter().any(|response| response.contains("o1=12")));
    }
}

#[test]
fn a_change_of_shared_endpoints_is_composed_once_for_clients_with_other_own_ones() {
    let mut h = with_own_endpoints(Harness::limits());
    let mut clients = ["x", "y", "x", "y"].map(|own| with_endpoints(&mut h, own, Delta));
    // One shared ledger and one of each own audience, which have three names: the cells of the others are shared.
    let sizes = h.hub.sizes();
    assert_eq!((sizes[0], sizes[2], sizes[4]), (("ledgers", 3), ("names", 4), ("cells", 4)));
    let before = h.hub.stats().of(EDS).composed;
    h.change(&[(EDS, "a", 3)]);
    for client in &mut clients {
        assert_eq!(client.drain(&mut h), ["EDS a=3"]);
    }
    // One shared part, and for each of the two own audiences the knowledge that it contributes nothing.
    assert!(h.hub.stats().of(EDS).composed - before <= 3);
}

#[test]
fn own_endpoints_hide_shared_ones_or_are_not_selected_in_the_shared_ledger() {
    for (hidden_names, variant) in [0, 1].into_iter().flat_map(|hidden| [(hidden, Delta), (hidden, Sotw)]) {
        let mut h = with_own_endpoints(Limits { hidden_names, ..Harness::limits() });
        h.world.put(EDS, "x", "o1", plain(20));
        h.world.put(EDS, "a", "o1", plain(98));
        h.commit();
        // It has no endpoints of its own, and shares its selection with the other one as far as it may.
        let mut plain_client = Client::new(&mut h, Delta);
        plain_client.subscribe(&mut h, EDS, &["a", "b", "o0"]);
        assert_eq!(plain_client.drain(&mut h), ["EDS a=1 b=1 o0=99"]);
        let mut client = with_endpoints(&mut h, "x", variant);
        assert_eq!(h.hub.sizes()[1], ("selections", 3 - hidden_names));
        h.change(&[(EDS, "o0", 100)]);
        assert_eq!(client.drain(&mut h), [""; 0], "the client has its own");
        assert_eq!(plain_client.drain(&mut h), ["EDS o0=100"]);
        h.change(&[(EDS, "o0", 101), (EDS, "a", 5)]);
        assert_eq!(client.drain(&mut h), ["EDS a=5"]);
        // One more than may be hidden.
        match variant {
            Delta => client.subscribe(&mut h, EDS, &["o1"]),
            Sotw => client.subscribe(&mut h, EDS, &["a", "b", "o0", "o1"]),
        }
        assert_eq!(client.drain(&mut h), ["EDS o1=20"]);
        h.world.put(EDS, "x", "o1", plain(21));
        h.change(&[(EDS, "o0", 102), (EDS, "o1", 103), (EDS, "b", 6)]);
        assert_eq!(client.drain(&mut h), ["EDS b=6 o1=21"]);
        match variant {
            Delta => client.unsubscribe(&mut h, EDS, &["b", "o0"]),
            Sotw => client.subscribe(&mut h, EDS, &["a", "o1"]),
        }
        h.world.put(EDS, "x", "o0", plain(22));
        h.world.put(EDS, "x", "o1", plain(23));
        h.change(&[(EDS, "b", 7)]);
        assert_eq!(client.drain(&mut h), ["EDS o1=23"]);
        h.world.remove(EDS, "x", "o1");
        h.commit();
        let removed = client.drain(&mut h);
        assert!(variant == Sotw || removed == ["EDS -o1"], "{removed:?}");
    }
}

#[test]
fn the_version_of_endpoints_covers_own_ones_that_hide_shared_ones() {
    let mut h = with_own_endpoints(Harness::limits());
    let names = ["a", "b", "o0"];
    Client::new(&mut h, Delta).subscribe(&mut h, EDS, &names);
    h.world.own_of_newcomers = Some("x");
    let first = h.connect_as(ProxyKind::Sidecar, Sotw);
    h.request(first, sotw(EDS, &names, "", "")).unwrap();
    let received = h.poll(first).remove(0);
    h.request(first, sotw(EDS, &names, &received.version, &received.nonce)).unwrap();
    h.change(&[(EDS, "a", 9)]);
    let version = h.poll(first).remove(0).version;
    for (own, responses) in [(Some("x"), 0), (Some("y"), 1), (None, 1)] {
        h.world.own_of_newcomers = own;
        let again = h.connect_as(ProxyKind::Sidecar, Sotw);
        h.request(again, sotw(EDS, &names, &version, "")).unwrap();
        assert_eq!(h.poll(again).len(), responses, "{own:?}");
    }
}

#[test]
fn endpoints_that_become_own_ones_are_sent_only_if_they_differ() {
    let mut h = with_own_endpoints(Harness::limits());
    h.world.put(EDS, "y", "c5", plain(1));
    h.change(&[(EDS, "c5", 1)]);
    h.world.own_of_newcomers = Some("x");
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, EDS, &["a", "c5", "o0"]);
    assert_eq!(client.drain(&mut h), ["EDS a=1 c5=1 o0=7"]);
    // A pending change of a shared resource survives the move.
    h.change(&[(EDS, "a", 2)]);
    let token = h.world.last_token();
    h.world.give(token, Some("y"));
    h.commit();
    assert_eq!(client.drain(&mut h), ["EDS a=2 o0=8"]);
    h.world.put(EDS, "y", "c5", plain(4));
    h.commit();
    assert_eq!(client.drain(&mut h), ["EDS c5=4"]);
    h.world.give(token, None);
    h.commit();
    assert_eq!(client.drain(&mut h), ["EDS c5=1 o0=99"]);
}
