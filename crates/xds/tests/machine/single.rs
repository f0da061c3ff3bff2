//! LEDS, step by step.

use model::proxy::ProxyKind;
use xds::Variant::Delta;

use crate::client::{Client, borrow, resume};
use crate::harness::*;
use crate::world::{Content, GENERATIONS, leading_to, plain};

/// Puts the assignment of a cluster, which names the collections of these localities, in every generation.
pub(crate) fn assign(h: &mut Harness, cluster: &str, localities: &[&str], number: u32) {
    for (generation, audience) in GENERATIONS.iter().enumerate() {
        let clusters = localities
            .iter()
            .map(|locality| format!("{cluster}/{generation}.{locality}"))
            .collect();
        let content = Content {
            clusters,
            ..plain(number)
        };
        h.world.put(EDS, audience, cluster, content);
    }
}

/// Puts an endpoint of a locality (`c`, `x/1`), in every generation; a number of 0 removes it.
pub(crate) fn endpoint(h: &mut Harness, cluster: &str, endpoint: &str, number: u32) {
    for (generation, audience) in GENERATIONS.iter().enumerate() {
        let name = format!("{cluster}/{generation}.{endpoint}");
        match number {
            0 => h.world.remove(LEDS, audience, &name),
            _ => h.world.put(LEDS, audience, &name, plain(number)),
        }
    }
}

/// A cluster `c` with two endpoints in the locality `x`, and a client that has them.
fn large() -> (Harness, Client) {
    let mut h = Harness::small();
    h.world.put(CDS, "a", "c", plain(1));
    for cluster in ["a", "b"] {
        assign(&mut h, cluster, &[], 1);
    }
    assign(&mut h, "c", &["x"], 1);
    for (name, number) in [("x/1", 1), ("x/2", 1)] {
        endpoint(&mut h, "c", name, number);
    }
    h.commit();
    let mut client = Client::settled(&mut h, Delta);
    client.ask(&mut h, EDS, &["c"]);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    client.ask(&mut h, LEDS, &["c/0.x/*"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["LEDS c/0.x/1=1 c/0.x/2=1"]);
    client.ack(&mut h, LEDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    (h, client)
}

#[test]
fn an_endpoint_that_changes_is_sent_alone() {
    let (mut h, mut client) = large();
    endpoint(&mut h, "c", "x/2", 2);
    h.commit();
    assert_eq!(client.take(&mut h), ["LEDS c/0.x/2=2"]);
    client.ack(&mut h, LEDS);
    endpoint(&mut h, "c", "x/2", 0);
    endpoint(&mut h, "c", "x/3", 1);
    h.commit();
    assert_eq!(client.take(&mut h), ["LEDS c/0.x/3=1 -c/0.x/2"]);
    client.ack(&mut h, LEDS);
    // A weight that changes does not bring the endpoints again.
    assign(&mut h, "c", &["x"], 2);
    h.commit();
    assert_eq!(client.take(&mut h), ["EDS c=2"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn only_whole_collections_are_asked_for() {
    let (mut h, mut client) = large();
    client.ask(&mut h, LEDS, &["c/0.x/1", "c/0.x", "*", "/*"]);
    assert_eq!(client.take(&mut h), [""; 0]);
    endpoint(&mut h, "c", "x/1", 2);
    h.commit();
    assert_eq!(client.take(&mut h), ["LEDS c/0.x/1=2"]);
}

#[test]
fn a_cluster_that_is_sent_again_gets_its_endpoints_again_after_the_assignment() {
    let (mut h, mut client) = large();
    h.change(&[(CDS, "c", 2)]);
    let again = ["CDS c=2", "EDS c=1", "LEDS c/0.x/1=1 c/0.x/2=1"];
    assert_eq!(client.take(&mut h), again);
}

/// A new cluster `d` with an endpoint that is discovered singly, and a route to it.
fn shift(h: &mut Harness) {
    h.world.put(RDS, "a", "r", leading_to("d", 2));
    h.world.put(CDS, "a", "d", plain(1));
    assign(h, "d", &["x"], 1);
    endpoint(h, "d", "x/1", 1);
    h.commit();
}

#[test]
fn a_route_waits_for_single_endpoints_of_a_new_cluster() {
    let (mut h, mut client) = large();
    shift(&mut h);
    assert_eq!(client.take(&mut h), ["CDS d=1"]);
    client.ask(&mut h, EDS, &["d"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS d=1"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ask(&mut h, LEDS, &["d/0.x/*"]);
    assert_eq!(client.take(&mut h), ["LEDS d/0.x/1=1"]);
    client.ack(&mut h, LEDS);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
}

#[test]
fn nobody_waits_for_ever_for_a_collection_that_is_not_asked_for() {
    let (mut h, mut client) = large();
    shift(&mut h);
    client.take(&mut h);
    client.ask(&mut h, EDS, &["d"]);
    client.ack(&mut h, CDS);
    client.take(&mut h);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    h.after(60);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
    assert_eq!(h.hub.stats().overdue[LEDS as usize], 1);
}

#[test]
fn a_new_locality_is_waited_for() {
    let (mut h, mut client) = large();
    assign(&mut h, "c", &["x", "y"], 1);
    endpoint(&mut h, "c", "y/1", 1);
    h.change(&[(RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    client.ask(&mut h, LEDS, &["c/0.y/*"]);
    assert_eq!(client.take(&mut h), ["LEDS c/0.y/1=1"]);
    client.ack(&mut h, LEDS);
    assert_eq!(client.take(&mut h), ["RDS r=2"]);
}

#[test]
fn a_locality_that_goes_is_waited_for_no_longer() {
    let (mut h, mut client) = large();
    assign(&mut h, "c", &["x", "y"], 1);
    endpoint(&mut h, "c", "y/1", 1);
    h.change(&[(RDS, "r", 2)]);
    client.take(&mut h);
    client.ack(&mut h, EDS);
    assign(&mut h, "c", &["x"], 1);
    endpoint(&mut h, "c", "y/1", 0);
    h.commit();
    // The route is older than this change.
    assert_eq!(client.take(&mut h), ["EDS c=1", "RDS r=2"]);
}

#[test]
fn who_returns_is_given_other_collections() {
    let (mut h, client) = large();
    let had = |kind| -> Vec<(String, String)> {
        let resources = h.hub.resources(client.id, kind);
        let pair = |r: &model::xds::Resource| (r.name().to_string(), r.version().to_string());
        resources.iter().map(pair).collect()
    };
    let (clusters, endpoints) = (had(CDS), had(EDS));
    h.disconnect(client.id);
    // The client will not be told of this one by its name.
    endpoint(&mut h, "c", "x/2", 0);
    h.commit();
    let mut returned = Client::new(&mut h, Delta);
    let (clusters, endpoints) = (borrow(&clusters), borrow(&endpoints));
    h.request(returned.id, resume(CDS, &[], &clusters)).unwrap();
    h.request(returned.id, resume(EDS, &["a", "b", "c"], &endpoints))
        .unwrap();
    h.request(returned.id, resume(LEDS, &["c/0.x/*"], &[])).unwrap();
    let answer = returned.take(&mut h);
    assert_eq!(answer, ["CDS", "EDS c=1", "LEDS"]);
    let named = crate::single_property::collections(&returned.last(EDS).resources[0].2);
    assert_eq!(named, ["c/1.x"]);
    h.request(returned.id, subscribe(LEDS, &["c/1.x/*"], &["c/0.x/*"]))
        .unwrap();
    returned.ack(&mut h, EDS);
    returned.ack(&mut h, LEDS);
    assert_eq!(returned.take(&mut h), ["LEDS c/1.x/1=1"]);
}

#[test]
fn what_is_closed_is_not_kept_open() {
    let mut h = Harness::small();
    assign(&mut h, "c", &["x"], 1);
    endpoint(&mut h, "c", "x/1", 1);
    h.commit();
    let before = h.world.open_cells();
    let id = h.connect_as(ProxyKind::Sidecar, Delta);
    h.request(id, subscribe(EDS, &["c"], &[])).unwrap();
    h.poll(id);
    h.request(id, subscribe(LEDS, &["c/0.x/*"], &[])).unwrap();
    h.poll(id);
    assert!(h.world.open_cells() > before + 1);
    h.request(id, subscribe(LEDS, &[], &["c/0.x/*"])).unwrap();
    assert_eq!(h.world.open_cells(), before + 1);
    h.disconnect(id);
    assert_eq!(h.world.open_cells(), before);
}
