use model::proxy::ProxyKind;
use xds::Variant::Sotw;

use crate::client::Client;
use crate::harness::*;
use crate::world::plain;

#[test]
fn a_wildcard_is_answered_with_everything_even_if_that_is_nothing() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Sotw);
    client.ask(&mut h, CDS, &[]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1"]);
    let mut empty = Harness::new();
    let mut client = Client::new(&mut empty, Sotw);
    client.ask(&mut empty, CDS, &[]);
    assert_eq!(client.take(&mut empty), ["CDS"]);
    client.ask(&mut empty, LDS, &["*"]);
    client.ack(&mut empty, CDS);
    assert_eq!(client.take(&mut empty), ["LDS"]);
}

#[test]
fn root_types_are_sent_whole_and_the_others_in_part() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(EDS, "b", 2)]);
    assert_eq!(client.drain(&mut h), ["EDS b=2"]);
    h.change(&[(CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=2"]);
}

#[test]
fn a_response_that_is_not_answered_is_the_last_and_changes_merge() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(EDS, "a", 2)]);
    assert_eq!(client.take(&mut h), ["EDS a=2"]);
    h.change(&[(EDS, "a", 3)]);
    h.change(&[(EDS, "b", 2)]);
    h.change(&[(EDS, "a", 4)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS a=4 b=2"]);
}

#[test]
fn an_answer_to_an_older_response_is_ignored() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    let old = client.last(EDS).clone();
    h.change(&[(EDS, "a", 2)]);
    client.take(&mut h);
    h.change(&[(EDS, "a", 3)]);
    h.request(client.id, sotw(EDS, &["a", "b", "c"], &old.version, &old.nonce))
        .unwrap();
    assert_eq!(client.take(&mut h), [""; 0], "neither an answer nor new names");
    assert_eq!(h.hub.stats().of(EDS).stale, 1);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS a=3"]);
}

#[test]
fn names_that_come_are_answered_and_names_that_go_are_forgotten() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.world.put(EDS, "a", "c", plain(1));
    h.commit();
    client.ask(&mut h, EDS, &["a", "c"]);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    client.ack(&mut h, EDS);
    h.change(&[(EDS, "b", 7), (EDS, "c", 2)]);
    assert_eq!(client.take(&mut h), ["EDS c=2"]);
    client.ack(&mut h, EDS);
    client.ask(&mut h, EDS, &[]);
    h.change(&[(EDS, "a", 8)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ask(&mut h, EDS, &["a"]);
    assert_eq!(client.take(&mut h), ["EDS a=8"], "subscribing again begins anew");
}

#[test]
fn no_names_of_a_named_type_are_no_subscription() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Sotw);
    client.ask(&mut h, EDS, &[]);
    client.ask(&mut h, RDS, &[]);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn a_root_type_can_be_subscribed_to_by_name() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Sotw);
    client.ask(&mut h, CDS, &["b", "x"]);
    assert_eq!(client.take(&mut h), ["CDS b=1"]);
    client.ack(&mut h, CDS);
    h.change(&[(CDS, "a", 2)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    h.change(&[(CDS, "x", 1)]);
    assert_eq!(client.take(&mut h), ["CDS b=1 x=1"]);
    client.ack(&mut h, CDS);
    client.ask(&mut h, CDS, &["x"]);
    assert_eq!(client.take(&mut h), ["CDS x=1"], "a smaller set is said, too");
    client.ack(&mut h, CDS);
    // Names have been given, so none are none and not all.
    client.ask(&mut h, CDS, &[]);
    h.change(&[(CDS, "x", 2)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ask(&mut h, CDS, &["*"]);
    assert_eq!(client.take(&mut h), ["CDS a=2 b=1 x=2"]);
}

#[test]
fn unknown_names_are_answered_so_that_nobody_waits() {
    let mut h = Harness::small();
    let mut sidecar = Client::new(&mut h, Sotw);
    sidecar.ask(&mut h, EDS, &["a", "later", "never"]);
    assert_eq!(sidecar.take(&mut h), ["EDS a=1 later=0 never=0"]);
    sidecar.ask(&mut h, RDS, &["r", "later"]);
    sidecar.ack(&mut h, EDS);
    assert_eq!(sidecar.take(&mut h), ["RDS later=0 r=1"]);
    sidecar.ack(&mut h, RDS);
    h.change(&[(EDS, "later", 1), (RDS, "later", 1)]);
    assert_eq!(sidecar.drain(&mut h), ["EDS later=1", "RDS later=1"]);

    let mut gateway = Client::of(&mut h, ProxyKind::Router, Sotw);
    gateway.ask(&mut h, RDS, &["r", "missing"]);
    assert_eq!(gateway.take(&mut h), ["RDS r=1"], "a gateway keeps what it has");
}

#[test]
fn what_is_gone_of_a_named_type_stays_with_the_client() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(EDS, "b", 0), (RDS, "r", 0)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    h.change(&[(EDS, "b", 3)]);
    assert_eq!(client.take(&mut h), ["EDS b=3"]);
}

#[test]
fn endpoints_follow_a_cluster_that_was_sent_again_when_the_client_asks() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    client.repeat(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0], "nothing has happened");
    h.change(&[(CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=2"]);
    client.repeat(&mut h, EDS);
    assert_eq!(
        client.take(&mut h),
        ["EDS b=1"],
        "unchanged, but the cluster has dropped them"
    );
    client.ack(&mut h, EDS);
    client.repeat(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), [""; 0], "once");
}

#[test]
fn endpoints_follow_a_cluster_that_was_sent_again_when_the_client_does_not_ask() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(CDS, "b", 2)]);
    client.take(&mut h);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS b=1"]);
}

#[test]
fn a_client_that_forgets_its_nonce_begins_anew() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.request(client.id, sotw(EDS, &["a"], "", "")).unwrap();
    assert_eq!(client.take(&mut h), ["EDS a=1"]);
    // Before the first answer, though, a request without a nonce is one that crossed it.
    h.request(client.id, sotw(EDS, &["b"], "", "")).unwrap();
    assert_eq!(client.take(&mut h), [""; 0]);
}
