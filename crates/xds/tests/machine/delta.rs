use model::proxy::ProxyKind;
use xds::Variant::Delta;

use crate::client::Client;
use crate::harness::*;
use crate::world::plain;

#[test]
fn first_requests_are_answered_even_without_resources() {
    let mut h = Harness::new();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &[]);
    assert_eq!(client.take(&mut h), ["CDS"]);
    client.ack(&mut h, CDS);
    h.request(client.id, subscribe(LDS, &["*"], &["*"])).unwrap();
    assert_eq!(client.take(&mut h), ["LDS"], "a subscription to nothing");
    client.ack(&mut h, LDS);
    h.change(&[(LDS, "r", 1)]);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn only_changes_and_removals_are_sent() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "a", 2), (CDS, "c", 1), (CDS, "b", 0), (EDS, "c", 1)]);
    assert_eq!(client.take(&mut h), ["CDS a=2 c=1 -b", "EDS a=1"]);
    client.ack(&mut h, CDS);
    client.ack(&mut h, EDS);
    h.change(&[(LDS, "r", 0), (LDS, "s", 1)]);
    h.change(&[(LDS, "s", 2)]);
    client.subscribe(&mut h, EDS, &["c"]);
    assert_eq!(client.drain(&mut h), ["EDS c=1", "LDS s=2 -r"]);
}

#[test]
fn changes_between_two_responses_merge() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "x", 1)]);
    h.change(&[(CDS, "x", 0)]);
    h.change(&[(CDS, "b", 0)]);
    h.change(&[(CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS b=2 -x", "EDS b=1"]);
}

#[test]
fn every_subscription_to_a_name_is_answered() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, EDS, &["a"]);
    assert_eq!(client.take(&mut h), ["EDS a=1"], "the client may have dropped it");
    // Subscribing does not depend on nonces, and merges while a response is outstanding.
    client.subscribe(&mut h, EDS, &["b"]);
    client.subscribe(&mut h, EDS, &["new"]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS b=1 new=0"]);
    client.ack(&mut h, EDS);
    client.unsubscribe(&mut h, EDS, &["a", "new"]);
    h.change(&[(EDS, "a", 2), (EDS, "b", 2), (EDS, "new", 2)]);
    assert_eq!(client.take(&mut h), ["EDS b=2"]);
}

#[test]
fn a_request_with_a_stale_nonce_still_subscribes() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(EDS, "a", 2)]);
    client.take(&mut h);
    h.change(&[(EDS, "b", 2)]);
    let late = xds::Request { nonce: "of another time".to_owned(), ..subscribe(EDS, &["c"], &[]) };
    h.request(client.id, late).unwrap();
    assert_eq!(client.take(&mut h), [""; 0]);
    assert_eq!(h.hub.stats().of(EDS).stale, 1);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS b=2 c=0"]);
}

#[test]
fn names_in_addition_to_a_wildcard_are_answered() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &["*", "a", "x"]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1 -x"]);
    client.ack(&mut h, CDS);
    client.subscribe(&mut h, CDS, &["b", "y"]);
    assert_eq!(client.take(&mut h), ["CDS b=1 -y"]);
    client.ack(&mut h, CDS);
    client.unsubscribe(&mut h, CDS, &["a", "x"]);
    assert_eq!(client.take(&mut h), ["CDS a=1 -x"], "still part of the wildcard, or removed");
    client.ack(&mut h, CDS);
    client.unsubscribe(&mut h, CDS, &["*"]);
    h.change(&[(CDS, "a", 2), (CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS b=2"], "named resources remain");
    client.ack(&mut h, CDS);
    client.subscribe(&mut h, CDS, &["*"]);
    assert_eq!(client.take(&mut h), ["CDS a=2 b=2"]);
}

#[test]
fn a_root_type_can_be_subscribed_to_by_name() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &["b", "x"]);
    assert_eq!(client.take(&mut h), ["CDS b=1 -x"]);
    client.ack(&mut h, CDS);
    h.change(&[(CDS, "a", 2), (CDS, "x", 1)]);
    assert_eq!(client.take(&mut h), ["CDS x=1"]);
    client.ack(&mut h, CDS);
    h.change(&[(CDS, "b", 0)]);
    assert_eq!(client.take(&mut h), ["CDS -b"]);
}

#[test]
fn removed_resources_of_named_types_are_sent() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(EDS, "b", 0), (RDS, "r", 0)]);
    assert_eq!(client.drain(&mut h), ["EDS -b", "RDS -r"]);
    h.change(&[(EDS, "b", 4)]);
    assert_eq!(client.drain(&mut h), ["EDS b=4"]);
    let mut gateway = Client::of(&mut h, ProxyKind::Router, Delta);
    gateway.subscribe(&mut h, RDS, &["r"]);
    assert_eq!(gateway.take(&mut h), ["RDS -r"]);
}

#[test]
fn endpoints_follow_a_cluster_that_was_sent_again() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "b", 2), (CDS, "unrelated", 1)]);
    assert_eq!(client.take(&mut h), ["CDS b=2 unrelated=1", "EDS b=1"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    client.subscribe(&mut h, EDS, &["unrelated"]);
    assert_eq!(client.take(&mut h), ["EDS unrelated=0"]);
    client.ack(&mut h, EDS);
    // While a response is outstanding, they are added to the next one.
    h.change(&[(EDS, "a", 2)]);
    assert_eq!(client.take(&mut h), ["EDS a=2"]);
    h.change(&[(CDS, "a", 3)]);
    assert_eq!(client.take(&mut h), ["CDS a=3"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS a=2"]);
}

#[test]
fn streams_at_the_same_place_share_responses() {
    let mut h = Harness::small();
    let mut clients: Vec<Client> = (0..5).map(|_| Client::settled(&mut h, Delta)).collect();
    assert_eq!(composed(&h), [1, 1, 1, 1]);
    h.world.put(EDS, "a", "b", plain(2));
    h.world.put(CDS, "a", "z", plain(2));
    h.commit();
    for client in &mut clients {
        assert_eq!(client.take(&mut h), ["CDS z=2", "EDS b=2"]);
        client.ack(&mut h, CDS);
        client.ack(&mut h, EDS);
        client.subscribe(&mut h, EDS, &["z"]);
        assert_eq!(client.take(&mut h), ["EDS z=0"]);
        client.ack(&mut h, EDS);
    }
    assert_eq!(composed(&h), [2, 2 + 5, 1, 1], "an answer to one stream is composed only for it");
    assert_eq!(h.hub.sizes()[1], ("selections", 4));
    // A client that lags behind gets all changes since; the other gets the last one.
    h.change(&[(EDS, "a", 9)]);
    clients[0].take(&mut h);
    h.change(&[(EDS, "b", 9)]);
    assert_eq!(clients[1].take(&mut h), ["EDS a=9 b=9"]);
    clients[0].ack(&mut h, EDS);
    assert_eq!(clients[0].take(&mut h), ["EDS b=9"]);
}

#[test]
fn unused_cached_responses_are_dropped() {
    let mut h = Harness::small();
    let kept = |h: &Harness| h.hub.sizes().iter().find(|(what, _)| *what == "responses").unwrap().1;
    let composed = |h: &Harness| composed(h).iter().sum::<u64>();
    Client::settled(&mut h, Delta);
    let (first, responses) = (composed(&h), kept(&h));
    assert!(responses > 0);
    // Clients that connect meanwhile share the response and keep it cached.
    for _ in 0..3 {
        h.after(5);
        Client::settled(&mut h, Delta);
        assert_eq!((composed(&h), kept(&h)), (first, responses));
    }
    h.after(5);
    assert_eq!(kept(&h), responses);
    h.after(5);
    assert_eq!((kept(&h), h.hub.deadline()), (0, None));
    Client::settled(&mut h, Delta);
    assert_eq!((composed(&h), kept(&h)), (2 * first, responses));
}

#[test]
fn the_last_stream_frees_everything() {
    let mut h = Harness::small();
    let one = Client::settled(&mut h, Delta);
    let other = Client::settled(&mut h, xds::Variant::Sotw);
    h.disconnect(one.id);
    assert_eq!(h.hub.sizes()[0], ("ledgers", 4));
    h.disconnect(other.id);
    assert!(h.hub.sizes().iter().all(|(_, size)| *size == 0), "{:?}", h.hub.sizes());
    assert_eq!(h.world.open_cells(), 0);
    assert!(h.hub.is_empty() && h.hub.deadline().is_none());
}

/// The number of composed responses for clusters, endpoints, listeners and routes.
fn composed(h: &Harness) -> [u64; 4] {
    [CDS, EDS, LDS, RDS].map(|kind| h.hub.stats().of(kind).composed)
}
