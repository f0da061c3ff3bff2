use model::proxy::ProxyKind;
use xds::Variant::Sotw;

use crate::client::Client;
use crate::harness::*;
use crate::world::plain;

#[test]
fn a_wildcard_is_answered_even_if_there_are_no_resources() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Sotw);
    client.subscribe(&mut h, CDS, &[]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1"]);
    let mut empty = Harness::new();
    let mut client = Client::new(&mut empty, Sotw);
    client.subscribe(&mut empty, CDS, &[]);
    assert_eq!(client.take(&mut empty), ["CDS"]);
    client.subscribe(&mut empty, LDS, &["*"]);
    client.ack(&mut empty, CDS);
    assert_eq!(client.take(&mut empty), ["LDS"]);
}

#[test]
fn root_types_are_sent_whole_and_others_by_changes() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(EDS, "b", 2)]);
    assert_eq!(client.drain(&mut h), ["EDS b=2"]);
    h.change(&[(CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=2"]);
}

#[test]
fn changes_merge_while_a_response_is_outstanding() {
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
    h.request(client.id, sotw(EDS, &["a", "b", "c"], &old.version, &old.nonce)).unwrap();
    assert_eq!(client.take(&mut h), [""; 0], "it neither answers nor changes names");
    assert_eq!(h.hub.stats().of(EDS).stale, 1);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS a=3"]);
}

#[test]
fn added_names_are_answered_and_removed_names_are_dropped() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.world.put(EDS, "a", "c", plain(1));
    h.commit();
    client.subscribe(&mut h, EDS, &["a", "c"]);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    client.ack(&mut h, EDS);
    h.change(&[(EDS, "b", 7), (EDS, "c", 2)]);
    assert_eq!(client.take(&mut h), ["EDS c=2"]);
    client.ack(&mut h, EDS);
    client.subscribe(&mut h, EDS, &[]);
    h.change(&[(EDS, "a", 8)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.subscribe(&mut h, EDS, &["a"]);
    assert_eq!(client.take(&mut h), ["EDS a=8"], "a new subscription is answered in full");
}

#[test]
fn an_empty_list_of_a_named_type_is_not_a_subscription() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Sotw);
    client.subscribe(&mut h, EDS, &[]);
    client.subscribe(&mut h, RDS, &[]);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn a_root_type_can_be_subscribed_to_by_name() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Sotw);
    client.subscribe(&mut h, CDS, &["b", "x"]);
    assert_eq!(client.take(&mut h), ["CDS b=1"]);
    client.ack(&mut h, CDS);
    h.change(&[(CDS, "a", 2)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    h.change(&[(CDS, "x", 1)]);
    assert_eq!(client.take(&mut h), ["CDS b=1 x=1"]);
    client.ack(&mut h, CDS);
    client.subscribe(&mut h, CDS, &["x"]);
    assert_eq!(client.take(&mut h), ["CDS x=1"], "a smaller set is sent, too");
    client.ack(&mut h, CDS);
    // The client has named resources, so that an empty list is not a wildcard.
    client.subscribe(&mut h, CDS, &[]);
    h.change(&[(CDS, "x", 2)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.subscribe(&mut h, CDS, &["*"]);
    assert_eq!(client.take(&mut h), ["CDS a=2 b=1 x=2"]);
}

#[test]
fn unknown_names_are_answered_with_empty_resources() {
    let mut h = Harness::small();
    let mut sidecar = Client::new(&mut h, Sotw);
    sidecar.subscribe(&mut h, EDS, &["a", "later", "never"]);
    assert_eq!(sidecar.take(&mut h), ["EDS a=1 later=0 never=0"]);
    sidecar.subscribe(&mut h, RDS, &["r", "later"]);
    sidecar.ack(&mut h, EDS);
    assert_eq!(sidecar.take(&mut h), ["RDS later=0 r=1"]);
    sidecar.ack(&mut h, RDS);
    h.change(&[(EDS, "later", 1), (RDS, "later", 1)]);
    assert_eq!(sidecar.drain(&mut h), ["EDS later=1", "RDS later=1"]);

    let mut gateway = Client::of(&mut h, ProxyKind::Router, Sotw);
    gateway.subscribe(&mut h, RDS, &["r", "missing"]);
    assert_eq!(gateway.take(&mut h), ["RDS r=1"], "a gateway keeps its table");
}

#[test]
fn removed_resources_of_named_types_are_not_announced() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(EDS, "b", 0), (RDS, "r", 0)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    h.change(&[(EDS, "b", 3)]);
    assert_eq!(client.take(&mut h), ["EDS b=3"]);
}

#[test]
fn endpoints_are_sent_again_when_the_client_repeats_its_subscription() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    client.repeat(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0], "nothing has changed");
    h.change(&[(CDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=2"]);
    client.repeat(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["EDS b=1"], "unchanged, but the cluster has dropped them");
    client.ack(&mut h, EDS);
    client.repeat(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), [""; 0], "once");
}

#[test]
fn endpoints_are_sent_again_when_the_client_accepts_the_cluster() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.change(&[(CDS, "b", 2)]);
    client.take(&mut h);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS b=1"]);
}

#[test]
fn a_request_without_a_nonce_starts_over() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.request(client.id, sotw(EDS, &["a"], "", "")).unwrap();
    assert_eq!(client.take(&mut h), ["EDS a=1"]);
    // Until that response is answered, a request without a nonce is one that crossed it.
    h.request(client.id, sotw(EDS, &["b"], "", "")).unwrap();
    assert_eq!(client.take(&mut h), [""; 0]);
}
