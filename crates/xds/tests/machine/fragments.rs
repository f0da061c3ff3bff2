//! Long delta responses in fragments.

use xds::Limits;
use xds::Variant::Delta;

use crate::client::Client;
use crate::harness::*;

/// A world whose changes are sent one resource at a time, and a client that has everything.
fn fragmented() -> (Harness, Client) {
    let mut h = Harness::small_with(Limits { response_bytes: 1, ..Harness::limits() });
    let client = Client::settled(&mut h, Delta);
    (h, client)
}

#[test]
fn other_types_are_sent_between_fragments() {
    let (mut h, mut client) = fragmented();
    h.change(&[(CDS, "a", 2), (CDS, "b", 2), (RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=2", "EDS a=1"], "a cluster that is sent again needs its endpoints");
    client.ack(&mut h, EDS);
    h.change(&[(EDS, "b", 5)]);
    assert_eq!(client.take(&mut h), ["EDS b=5"], "endpoints do not wait for the rest of the clusters");
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0], "the route waits for all clusters");
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["CDS b=2", "EDS b=5"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), [""; 0], "and for their endpoints");
    client.ack(&mut h, EDS);
    assert_eq!(client.drain(&mut h), ["RDS r=2"]);
    let clusters = h.hub.stats().of(CDS);
    assert_eq!((clusters.responses, clusters.accepted, clusters.rejected, clusters.stale), (3, 3, 0, 0));
    assert!(h.quiet());
}

#[test]
fn a_client_that_answers_slowly_is_waited_for() {
    let (mut h, mut client) = fragmented();
    h.change(&[(CDS, "a", 2), (CDS, "b", 2), (RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=2", "EDS a=1"]);
    h.after(3);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["CDS b=2", "EDS b=1"]);
    h.after(3);
    assert_eq!(client.take(&mut h), [""; 0], "the wait began again with the answer");
    h.after(3);
    assert_eq!(client.take(&mut h), ["RDS r=2"], "but it has an end");
    assert_eq!(h.hub.stats().of(RDS).overdue, 1);
}

#[test]
fn changes_during_a_response_follow_it() {
    let (mut h, mut client) = fragmented();
    h.change(&[(CDS, "a", 2), (CDS, "b", 2)]);
    assert_eq!(client.take(&mut h)[0], "CDS a=2");
    h.change(&[(CDS, "a", 3), (CDS, "b", 3), (CDS, "c", 1)]);
    let sent: Vec<String> = client.drain(&mut h).into_iter().filter(|one| one.starts_with("CDS")).collect();
    assert_eq!(sent, [""; 0], "the first fragment was not answered");
    client.ack(&mut h, CDS);
    client.ack(&mut h, EDS);
    let sent: Vec<String> = client.drain(&mut h).into_iter().filter(|one| one.starts_with("CDS")).collect();
    assert_eq!(sent, ["CDS b=2", "CDS a=3", "CDS b=3", "CDS c=1"]);
}

#[test]
fn the_first_response_and_types_that_belong_together_are_sent_whole() {
    let (mut h, mut client) = fragmented();
    let mut other = Client::new(&mut h, Delta);
    other.subscribe(&mut h, CDS, &[]);
    assert_eq!(other.take(&mut h), ["CDS a=1 b=1"]);
    h.change(&[(LDS, "r", 2), (LDS, "s", 1)]);
    assert_eq!(client.take(&mut h), ["LDS r=2 s=1"]);
}

#[test]
fn removals_are_in_the_last_fragment() {
    let (mut h, mut client) = fragmented();
    h.change(&[(CDS, "a", 2), (CDS, "b", 0), (CDS, "c", 1)]);
    let sent: Vec<String> = client.drain(&mut h).into_iter().filter(|one| one.starts_with("CDS")).collect();
    assert_eq!(sent, ["CDS a=2", "CDS c=1 -b"]);
}

#[test]
fn a_rejected_fragment_rejects_the_response_when_all_are_answered() {
    let (mut h, mut client) = fragmented();
    h.change(&[(CDS, "a", 2), (CDS, "b", 2), (CDS, "c", 1)]);
    assert_eq!(client.take(&mut h)[0], "CDS a=2");
    client.nack(&mut h, CDS, "a is bad");
    assert_eq!(client.take(&mut h), ["CDS b=2"]);
    let error = |h: &Harness| {
        let status = h.hub.status(client.id).unwrap();
        let watch = status.watches.into_iter().find(|watch| watch.kind == CDS).unwrap();
        watch.error.map(|error| error.message.to_string())
    };
    assert_eq!(error(&h), None);
    let mut client = client;
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["CDS c=1"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h)[..0], [""; 0]);
    let status = h.hub.status(client.id).unwrap();
    let watch = status.watches.iter().find(|watch| watch.kind == CDS).unwrap();
    assert_eq!(watch.error.as_ref().map(|error| &*error.message), Some("a is bad"));
    let clusters = h.hub.stats().of(CDS);
    assert_eq!((clusters.responses, clusters.accepted, clusters.rejected), (4, 3, 1));
    // The client may not have accepted the others: all are sent again after the next change.
    h.change(&[(CDS, "a", 3)]);
    assert_eq!(client.take(&mut h).first().map(String::as_str), Some("CDS a=3"));
}
