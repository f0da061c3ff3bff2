//! Proxies with clusters of their own beside those of their audience.

use xds::Variant::{Delta, Sotw};

use crate::client::{Client, borrow, resume, versions};
use crate::harness::*;
use crate::world::plain;

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
