//! Make before break.

use xds::Variant::{Delta, Sotw};

use crate::client::{Client, resume};
use crate::harness::*;
use crate::world::{Content, leading_to, plain};

/// A new cluster `c` with endpoints, and a route to it, in one commit.
fn shift(h: &mut Harness) {
    h.world.put(RDS, "a", "r", leading_to("c", 2));
    h.change(&[(CDS, "c", 1), (EDS, "c", 1)]);
}

#[test]
fn a_route_waits_for_its_clusters_and_their_endpoints() {
    for variant in [Delta, Sotw] {
        let mut h = Harness::small();
        let mut client = Client::settled(&mut h, variant);
        shift(&mut h);
        let clusters = if variant == Delta { "CDS c=1" } else { "CDS a=1 b=1 c=1" };
        assert_eq!(client.take(&mut h), [clusters]);
        // Like Envoy: it subscribes to endpoints before it accepts the clusters.
        client.subscribe(&mut h, EDS, if variant == Delta { &["c"] } else { &["a", "b", "c"] });
        client.ack(&mut h, CDS);
        assert_eq!(client.take(&mut h), ["EDS c=1"]);
        client.ack(&mut h, EDS);
        assert_eq!(client.take(&mut h), ["RDS r=2"]);
    }
}

#[test]
fn endpoints_may_be_subscribed_to_after_the_clusters_were_accepted() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    shift(&mut h);
    client.take(&mut h);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.subscribe(&mut h, EDS, &["c"]);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
}

#[test]
fn clusters_without_discovered_endpoints_are_in_place_when_accepted() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.world.put(CDS, "a", "static", Content { discovers: false, ..plain(1) });
    h.change(&[(RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["CDS static=1"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
}

#[test]
fn types_without_subscription_are_not_waited_for() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, RDS, &["r"]);
    client.subscribe(&mut h, LDS, &[]);
    assert_eq!(client.take(&mut h), ["LDS r=1", "RDS r=1"]);
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &[]);
    client.subscribe(&mut h, LDS, &[]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["LDS r=1"], "without a subscription to endpoints, none are waited for");
}

#[test]
fn clusters_are_removed_after_the_routes_that_use_them() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.world.put(RDS, "a", "r", leading_to("b", 2));
    h.change(&[(CDS, "a", 0), (EDS, "a", 0)]);
    assert_eq!(client.take(&mut h), ["EDS -a"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["CDS -a"]);
}

#[test]
fn in_sotw_the_set_shrinks_last() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    h.world.put(RDS, "a", "r", leading_to("c", 2));
    h.change(&[(CDS, "a", 0), (CDS, "c", 1), (EDS, "c", 1)]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1 c=1"], "a is sent unchanged");
    client.subscribe(&mut h, EDS, &["a", "b", "c"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.drain(&mut h), ["EDS c=1", "RDS r=2", "CDS b=1 c=1"]);
}

#[test]
fn removals_that_need_not_wait_are_sent_with_updates() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "b", 0), (CDS, "a", 2)]);
    assert_eq!(client.take(&mut h), ["CDS a=2 -b", "EDS a=1"]);
}

#[test]
fn an_older_route_does_not_wait_for_a_newer_cluster() {
    let mut h = Harness::small();
    h.world.put(RDS, "a", "s", plain(1));
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, RDS, &["s"]);
    client.drain(&mut h);
    shift(&mut h);
    assert_eq!(client.take(&mut h), ["CDS c=1"]);
    client.subscribe(&mut h, EDS, &["c"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    // Meanwhile, another cluster and another route are added.
    h.change(&[(CDS, "d", 1), (RDS, "s", 2)]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["CDS d=1", "RDS r=2"], "the epoch of r is in place, that of s is not");
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.subscribe(&mut h, EDS, &["d"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.drain(&mut h), ["EDS d=0", "RDS s=2"]);
}

#[test]
fn a_client_that_never_answers_gets_the_rest_after_a_while() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    shift(&mut h);
    h.change(&[(CDS, "a", 0)]);
    assert_eq!(client.take(&mut h), ["CDS a=0".replace("a=0", "c=1")]);
    assert_eq!(h.hub.deadline(), Some(xds::Moment::from_secs(5)));
    h.after(4);
    assert_eq!(client.take(&mut h), [""; 0]);
    h.after(1);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    assert_eq!(overdue(&h), [0, 0, 0, 1]);
    // A client that accepts clusters but never subscribes to their endpoints.
    client.ack(&mut h, RDS);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), [""; 0], "the endpoints of c are waited for");
    h.after(5);
    assert_eq!(client.take(&mut h), ["CDS -a"]);
    client.ack(&mut h, CDS);
    assert_eq!((client.take(&mut h), h.quiet()), (vec![], true));
}

#[test]
fn extension_configurations_wait_for_nothing() {
    for variant in [Delta, Sotw] {
        let mut h = Harness::small();
        let mut client = Client::settled(&mut h, variant);
        shift(&mut h);
        h.change(&[(ECDS, "x", 1)]);
        client.subscribe(&mut h, ECDS, &["x"]);
        let clusters = if variant == Delta { "CDS c=1" } else { "CDS a=1 b=1 c=1" };
        assert_eq!(client.take(&mut h), [clusters, "ECDS x=1"]);
        client.ack(&mut h, ECDS);
        h.change(&[(ECDS, "x", 2)]);
        assert_eq!(client.take(&mut h), ["ECDS x=2"], "the clusters have not been answered yet");
    }
}

#[test]
fn a_client_that_never_accepts_routes_loses_its_clusters_after_a_while() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(RDS, "r", 2), (CDS, "b", 0)]);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    h.after(5);
    assert_eq!(client.take(&mut h), ["CDS -b"]);
    assert_eq!(overdue(&h), [1, 0, 0, 0]);
}

#[test]
fn constant_changes_do_not_starve_routes() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    let mut newest = 0;
    for round in 2..50 {
        // Every round changes clusters and routes while the client is one answer behind.
        h.change(&[(CDS, "b", round), (RDS, "r", round), (EDS, "a", round)]);
        for text in client.take(&mut h) {
            let kind = [CDS, EDS, LDS, RDS].into_iter().find(|kind| text.starts_with(kind.short_name)).unwrap();
            newest = if kind == RDS { round } else { newest };
            client.ack(&mut h, kind);
        }
        for text in client.take(&mut h) {
            let kind = [CDS, EDS, LDS, RDS].into_iter().find(|kind| text.starts_with(kind.short_name)).unwrap();
            newest = if kind == RDS { round } else { newest };
            client.ack(&mut h, kind);
        }
    }
    assert!(newest >= 48, "the last route was sent in round {newest}");
}

#[test]
fn a_reconnecting_client_keeps_old_clusters_until_its_routes_are_current() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    h.request(client.id, resume(CDS, &[], &[("a", "0"), ("old", "0")])).unwrap();
    assert_eq!(client.take(&mut h), ["CDS a=1 b=1"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), [""; 0], "the client has not subscribed to listeners and routes yet");
    h.request(client.id, resume(LDS, &[], &[("r", "0")])).unwrap();
    h.request(client.id, resume(RDS, &["r"], &[("r", "0")])).unwrap();
    assert_eq!(client.take(&mut h), ["LDS r=1", "RDS r=1"]);
    client.ack(&mut h, LDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["CDS -old"]);
}

#[test]
fn unsubscribed_names_do_not_block_others() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    client.subscribe(&mut h, RDS, &["r", "x"]);
    assert_eq!(client.drain(&mut h), ["RDS x=0"]);
    h.change(&[(CDS, "b", 0)]);
    client.subscribe(&mut h, RDS, &["r"]);
    assert_eq!(client.drain(&mut h), ["CDS a=1"]);
    assert!(h.quiet());
}

fn overdue(h: &Harness) -> [u64; 4] {
    [CDS, EDS, LDS, RDS].map(|kind| h.hub.stats().of(kind).overdue)
}
