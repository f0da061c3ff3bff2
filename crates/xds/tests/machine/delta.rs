use model::proxy::ProxyKind;
use xds::Variant::Delta;

use crate::client::Client;
use crate::harness::*;
use crate::world::plain;

#[test]
fn first_requests_are_answered_even_with_nothing() {
    let mut h = Harness::new();
    let mut client = Client::new(&mut h, Delta);
    client.ask(&mut h, CDS, &[]);
    assert_eq!(client.take(&mut h), ["CDS"]);
    client.ack(&mut h, CDS);
    h.request(client.id, subscribe(LDS, &["*"], &["*"])).unwrap();
    assert_eq!(client.take(&mut h), ["LDS"], "a subscription to nothing");
    client.ack(&mut h, LDS);
    h.change(&[(LDS, "r", 1)]);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn only_what_changed_is_sent_removals_included() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "a", 2), (CDS, "c", 1), (CDS, "b", 0), (EDS, "c", 1)]);
    assert_eq!(client.take(&mut h), ["CDS a=2 c=1 -b", "EDS a=1"]);
    client.ack(&mut h, CDS);
    client.ack(&mut h, EDS);
    h.change(&[(LDS, "r", 0), (LDS, "s", 1)]);
    h.change(&[(LDS, "s", 2)]);
    client.ask(&mut h, EDS, &["c"]);
    assert_eq!(client.drain(&mut h), ["EDS c=1", "LDS s=2 -r"]);
}

#[test]
fn what_came_and_went_between_two_responses_is_not_mentioned_twice() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "x", 1)]);
    h.change(&[(CDS, "x", 0)]);
    h.change(&[(CDS, "b", 0)]);
    h.change(&[(CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS b=2 -x", "EDS b=1"]);
}

#[test]
fn names_are_answered_whenever_they_are_subscribed_to() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    client.ask(&mut h, EDS, &["a"]);
    assert_eq!(client.take(&mut h), ["EDS a=1"], "the client may have forgotten it");
    // Subscribing does not depend on nonces, and merges while an answer is outstanding.
    client.ask(&mut h, EDS, &["b"]);
    client.ask(&mut h, EDS, &["new"]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS b=1 new=0"]);
    client.ack(&mut h, EDS);
    client.unsubscribe(&mut h, EDS, &["a", "new"]);
    h.change(&[(EDS, "a", 2), (EDS, "b", 2), (EDS, "new", 2)]);
    assert_eq!(client.take(&mut h), ["EDS b=2"]);
}

#[test]
fn a_stale_nonce_answers_nothing_but_its_subscriptions_count() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(EDS, "a", 2)]);
    client.take(&mut h);
    h.change(&[(EDS, "b", 2)]);
    let late = xds::Request {
        nonce: "of another time".to_owned(),
        ..subscribe(EDS, &["c"], &[])
    };
    h.request(client.id, late).unwrap();
    assert_eq!(client.take(&mut h), [""; 0]);
    assert_eq!(h.hub.stats().of(EDS).stale, 1);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS b=2 c=0"]);
}

#[test]
fn names_beside_a_wildcard_are_answered_and_change_nothing() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    client.ask(&mut h, CDS, &["*", "a", "x"]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1 -x"]);
    client.ack(&mut h, CDS);
    client.ask(&mut h, CDS, &["b", "y"]);
    assert_eq!(client.take(&mut h), ["CDS b=1 -y"]);
    client.ack(&mut h, CDS);
    client.unsubscribe(&mut h, CDS, &["a", "x"]);
    assert_eq!(
        client.take(&mut h),
        ["CDS a=1 -x"],
        "still part of the wildcard, or gone"
    );
    client.ack(&mut h, CDS);
    client.unsubscribe(&mut h, CDS, &["*"]);
    h.change(&[(CDS, "a", 2), (CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS b=2"], "what was asked for by name remains");
    client.ack(&mut h, CDS);
    client.ask(&mut h, CDS, &["*"]);
    assert_eq!(client.take(&mut h), ["CDS a=2 b=2"]);
}

#[test]
fn a_root_type_can_be_subscribed_to_by_name() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    client.ask(&mut h, CDS, &["b", "x"]);
    assert_eq!(client.take(&mut h), ["CDS b=1 -x"]);
    client.ack(&mut h, CDS);
    h.change(&[(CDS, "a", 2), (CDS, "x", 1)]);
    assert_eq!(client.take(&mut h), ["CDS x=1"]);
    client.ack(&mut h, CDS);
    h.change(&[(CDS, "b", 0)]);
    assert_eq!(client.take(&mut h), ["CDS -b"]);
}

#[test]
fn what_is_gone_of_a_named_type_is_said_to_be() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(EDS, "b", 0), (RDS, "r", 0)]);
    assert_eq!(client.drain(&mut h), ["EDS -b", "RDS -r"]);
    h.change(&[(EDS, "b", 4)]);
    assert_eq!(client.drain(&mut h), ["EDS b=4"]);
    let mut gateway = Client::of(&mut h, ProxyKind::Router, Delta);
    gateway.ask(&mut h, RDS, &["r"]);
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
    client.ask(&mut h, EDS, &["unrelated"]);
    assert_eq!(client.take(&mut h), ["EDS unrelated=0"]);
    client.ack(&mut h, EDS);
    // With an answer outstanding, they are part of the next.
    h.change(&[(EDS, "a", 2)]);
    assert_eq!(client.take(&mut h), ["EDS a=2"]);
    h.change(&[(CDS, "a", 3)]);
    assert_eq!(client.take(&mut h), ["CDS a=3"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS a=2"]);
}

#[test]
fn streams_that_are_at_the_same_place_share_their_responses() {
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
        client.ask(&mut h, EDS, &["z"]);
        assert_eq!(client.take(&mut h), ["EDS z=0"]);
        client.ack(&mut h, EDS);
    }
    assert_eq!(
        composed(&h),
        [2, 2 + 5, 1, 1],
        "an answer to one stream is composed for it"
    );
    assert_eq!(h.hub.sizes()[1], ("selections", 4));
    // Who lags behind gets what it missed; who does not, what changed.
    h.change(&[(EDS, "a", 9)]);
    clients[0].take(&mut h);
    h.change(&[(EDS, "b", 9)]);
    assert_eq!(clients[1].take(&mut h), ["EDS a=9 b=9"]);
    clients[0].ack(&mut h, EDS);
    assert_eq!(clients[0].take(&mut h), ["EDS b=9"]);
}

#[test]
fn responses_that_nobody_gets_any_more_are_forgotten() {
    let mut h = Harness::small();
    let kept = |h: &Harness| h.hub.sizes().iter().find(|(what, _)| *what == "responses").unwrap().1;
    let composed = |h: &Harness| composed(h).iter().sum::<u64>();
    Client::settled(&mut h, Delta);
    let (first, responses) = (composed(&h), kept(&h));
    assert!(responses > 0);
    // Those who come while it is new share it, and keep it for others.
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
fn when_the_last_stream_leaves_nothing_stays() {
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

/// Responses that were composed, of clusters, endpoints, listeners and routes.
fn composed(h: &Harness) -> [u64; 4] {
    [CDS, EDS, LDS, RDS].map(|kind| h.hub.stats().of(kind).composed)
}
