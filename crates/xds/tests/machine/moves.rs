//! Proxies whose audience changes.

use xds::Variant::{Delta, Sotw};

use crate::client::Client;
use crate::harness::*;
use crate::world::{leading_to, plain};

/// Audience `b`: cluster `a` is the same, `b` differs, `c` is there instead of nothing; the route differs.
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
fn only_the_difference_is_sent() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS b=5 c=5", "EDS b=5"]);
    client.ask(&mut h, EDS, &["c"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.drain(&mut h), ["EDS c=5", "RDS r=5", "CDS -only"]);
    assert_eq!(h.hub.sizes()[0], ("ledgers", 4), "the old ones are closed");
    h.change(&[(CDS, "a", 9)]);
    assert_eq!(client.drain(&mut h), [""; 0]);
}

#[test]
fn in_state_of_the_world_too() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Sotw);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS a=1 b=5 c=5 only=1", "EDS b=5"]);
    client.ask(&mut h, EDS, &["a", "b", "c"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.drain(&mut h), ["EDS b=5 c=5", "RDS r=5", "CDS a=1 b=5 c=5"]);
}

#[test]
fn with_a_response_outstanding_the_move_waits() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    client.drain(&mut h);
    client.ask(&mut h, EDS, &["c"]);
    assert_eq!(client.drain(&mut h), ["EDS c=5"], "the route is not answered yet");
    client.ack(&mut h, RDS);
    assert_eq!(client.drain(&mut h), ["RDS r=5", "CDS -only"]);
}

#[test]
fn a_move_before_the_first_answer_is_no_move() {
    let mut h = two_audiences();
    let mut client = Client::new(&mut h, Delta);
    client.ask(&mut h, CDS, &[]);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.drain(&mut h), ["CDS a=1 b=5 c=5"]);
}

#[test]
fn to_and_fro_is_the_difference_of_the_ends() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    h.world.relocate(token, "a");
    h.commit();
    // What might have been sent is sent again; what went and came back is not.
    assert_eq!(client.drain(&mut h), ["CDS b=1", "EDS b=1", "RDS r=1", "CDS -c"]);
}

#[test]
fn what_came_back_meanwhile_counts_as_new() {
    let mut h = two_audiences();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.change(&[(LDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["LDS r=2"]);
    h.world.relocate(token, "b");
    h.commit();
    // The new audience gets `only`, too, but another one; that it was to go is forgotten.
    h.world.put(CDS, "b", "only", plain(9));
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS b=5 c=5 only=9", "EDS b=5"]);
    client.ask(&mut h, EDS, &["c", "only"]);
    client.ack(&mut h, EDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS c=5 only=0"]);
    client.ack(&mut h, EDS);
    h.world.relocate(token, "a");
    h.commit();
    assert_eq!(client.take(&mut h), ["CDS b=1 only=1", "EDS b=1 only=0 -c"]);
}
