//! Proxies whose audience changes.

use xds::Variant::{Delta, Sotw};

use crate::client::Client;
use crate::harness::*;
use crate::world::{leading_to, plain};

/// Audience `b`: cluster `a` is equal, `b` and the route differ, `c` is new, and `only` is missing.
fn two_audiences() -> Harness {
    let mut h = Harness::small();
    for (name, number) in [("a", 1), ("b", 5), ("c", 5)] {
        h.world.put(CDS, "b", name, plain(number));
        h.world.put(EDS, "b", name, plain(number));
    }
    h.world.put(LDS, "b", "r", plain(1));
    h.world.put(RDS, "b", "r", leading_to("c", 5));
    h.world.put(CDS, "a", "only", plain(1));
    h.commit();
    h
}

#[test]
fn a_move_sends_only_the_difference() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS b=5 c=5", "EDS b=5"]);
    client.subscribe(&mut h, EDS, &["c"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.drain(&mut h), ["EDS c=5", "RDS r=5", "CDS -only"]);
    assert_eq!(h.hub.sizes()[0], ("ledgers", 4), "the old ones are closed");
    h.change(&[(CDS, "a", 9)]);
    assert_eq!(client.drain(&mut h), [""; 0]);
}

#[test]
fn a_move_sends_only_the_difference_in_sotw() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Sotw);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS a=1 b=5 c=5 only=1", "EDS b=5"]);
    client.subscribe(&mut h, EDS, &["a", "b", "c"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.drain(&mut h), ["EDS b=5 c=5", "RDS r=5", "CDS a=1 b=5 c=5"]);
}

#[test]
fn a_move_waits_for_the_outstanding_response() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    client.drain(&mut h);
    client.subscribe(&mut h, EDS, &["c"]);
    assert_eq!(client.drain(&mut h), ["EDS c=5"], "the route has not been answered yet");
    client.ack(&mut h, RDS);
    assert_eq!(client.drain(&mut h), ["RDS r=5", "CDS -only"]);
}

#[test]
fn a_move_before_the_first_response_has_no_effect() {
    let mut h = two_audiences();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &[]);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS a=1 b=5 c=5"]);
}

#[test]
fn moving_back_sends_the_difference_of_the_ends() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    h.world.relocate(token, "a");
    h.commit();
    // Resources that might have been sent are sent again; resources that were removed and added again are not.
    assert_eq!(client.drain(&mut h), ["CDS b=1", "EDS b=1", "RDS r=1", "CDS -c"]);
}

#[test]
fn a_resource_added_again_during_a_move_counts_as_new() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.change(&[(LDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["LDS r=2"]);
    h.world.relocate(token, "b");
    h.commit();
    // The new audience also has `only`, but another one. The pending removal is dropped.
    h.world.put(CDS, "b", "only", plain(9));
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS b=5 c=5 only=9", "EDS b=5"]);
    client.subscribe(&mut h, EDS, &["c", "only"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS c=5 only=0"]);
    client.ack(&mut h, EDS);
    h.world.relocate(token, "a");
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS b=1 only=1", "EDS b=1 only=0 -c"]);
}
