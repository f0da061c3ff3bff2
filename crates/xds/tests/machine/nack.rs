use xds::Variant::{Delta, Sotw};

use crate::client::Client;
use crate::harness::*;

#[test]
fn a_nack_is_reported_and_not_answered_until_a_change() {
    for variant in [Delta, Sotw] {
        let mut h = Harness::small();
        let mut client = Client::settled(&mut h, variant);
        h.change(&[(RDS, "r", 2)]);
        assert_eq!(client.take(&mut h), ["RDS r=2"]);
        client.nack(&mut h, RDS, "no such filter");
        assert_eq!(client.take(&mut h), [""; 0]);
        client.nack(&mut h, RDS, "again");
        assert_eq!(client.take(&mut h), [""; 0]);

        let status = h.hub.status(client.id).unwrap();
        let watch = status.watches.iter().find(|watch| watch.kind == RDS).unwrap();
        let error = watch.error.as_ref().unwrap();
        assert_eq!((&*error.message, &*error.nonce), ("no such filter", &*client.last(RDS).nonce));
        assert!(!watch.synced);
        assert_ne!(watch.acked.as_ref().unwrap().nonce, watch.sent.as_ref().unwrap().nonce);

        h.change(&[(RDS, "r", 3)]);
        assert_eq!(client.take(&mut h), ["RDS r=3"]);
        client.ack(&mut h, RDS);
        let status = h.hub.status(client.id).unwrap();
        let watch = status.watches.iter().find(|watch| watch.kind == RDS).unwrap();
        assert!(watch.error.is_none() && watch.synced);
        assert_eq!([CDS, EDS, LDS, RDS].map(|kind| h.hub.stats().of(kind).rejected), [0, 0, 0, 1]);
    }
}

#[test]
fn resources_rejected_together_are_sent_again_with_changes_first() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(EDS, "a", 2), (EDS, "b", 2)]);
    assert_eq!(client.take(&mut h), ["EDS a=2 b=2"]);
    client.nack(&mut h, EDS, "b is bad");
    h.change(&[(EDS, "b", 3)]);
    assert_eq!(client.take(&mut h), ["EDS b=3 a=2"], "the client may not have accepted a");
    client.ack(&mut h, EDS);
    h.change(&[(EDS, "b", 4)]);
    assert_eq!(client.take(&mut h), ["EDS b=4"]);
}

#[test]
fn a_nack_ends_the_wait_of_later_types() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "c", 1), (RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["CDS c=1"]);
    client.nack(&mut h, CDS, "bad cluster");
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    client.ack(&mut h, RDS);
    h.change(&[(CDS, "c", 2), (CDS, "b", 0)]);
    assert_eq!(client.take(&mut h), ["CDS c=2 -b"]);
}

#[test]
fn a_rejected_removal_and_a_rejected_first_response_are_sent_again() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "b", 0)]);
    assert_eq!(client.take(&mut h), ["CDS -b"]);
    client.nack(&mut h, CDS, "why");
    assert_eq!(client.take(&mut h), [""; 0]);
    h.change(&[(CDS, "a", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=2 -b", "EDS a=1"]);

    let mut other = Client::new(&mut h, Delta);
    other.subscribe(&mut h, CDS, &[]);
    assert_eq!(other.take(&mut h), ["CDS a=2"]);
    other.nack(&mut h, CDS, "no");
    h.change(&[(CDS, "c", 1)]);
    assert_eq!(other.take(&mut h), ["CDS c=1 a=2"]);
}

#[test]
fn a_name_subscribed_to_after_a_nack_is_answered() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, EDS, &["new"]);
    client.take(&mut h);
    client.nack(&mut h, EDS, "no");
    assert_eq!(client.take(&mut h), [""; 0]);
    client.subscribe(&mut h, EDS, &["newer"]);
    assert_eq!(client.take(&mut h), ["EDS new=0 newer=0"]);
}
