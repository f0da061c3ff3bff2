use std::collections::BTreeMap;

use model::proxy::ProxyKind;
use model::xds::ResourceType;
use xds::Variant::{Delta, Sotw};
use xds::{Code, Next, Variant};

use crate::client::{Client, borrow, resume, versions};
use crate::harness::*;
use crate::world::plain;

#[test]
fn unchanged_resources_are_not_sent_again() {
    let mut h = Harness::small();
    let old = Client::settled(&mut h, Delta);
    let had = [CDS, EDS, LDS, RDS].map(|kind| versions(&h, old.id, kind));
    h.disconnect(old.id);
    let mut client = Client::new(&mut h, Delta);
    let asked = [(CDS, &[][..]), (EDS, &["a", "b"]), (LDS, &[]), (RDS, &["r"])];
    for ((kind, names), had) in asked.into_iter().zip(&had) {
        h.request(client.id, resume(kind, names, &borrow(had))).unwrap();
    }
    let all = client.drain(&mut h);
    assert_eq!(all, ["CDS", "EDS", "LDS", "RDS"], "empty responses");
    assert!(h.hub.status(client.id).unwrap().watches.iter().all(|watch| watch.synced));
    h.change(&[(EDS, "b", 2), (LDS, "r", 2)]);
    assert_eq!(client.drain(&mut h), ["EDS b=2", "LDS r=2"]);
}

#[test]
fn a_client_that_reconnects_with_what_others_have_opens_nothing() {
    for own in [None, Some("y")] {
        let mut h = Harness::small();
        h.world.own_of_newcomers = own;
        [(RDS, "80"), (VHDS, "80/a"), (VHDS, "80/b"), (EDS, "c5")]
            .iter()
            .for_each(|(kind, name)| h.world.put(*kind, "a", name, plain(1)));
        h.world.put(EDS, "y", "c5", plain(1));
        h.commit();
        let asked = [(CDS, &[][..]), (EDS, &["a", "b", "c5"]), (LDS, &[]), (RDS, &["80", "r"]), (VHDS, &[])];
        let mut other = Client::new(&mut h, Delta);
        asked.iter().for_each(|(kind, names)| other.subscribe(&mut h, *kind, names));
        other.drain(&mut h);
        let had = asked.map(|(kind, _)| versions(&h, other.id, kind));
        assert!(had.iter().all(|had| !had.is_empty()), "{had:?}");

        let mut client = Client::new(&mut h, Delta);
        let before = h.world.calls.get();
        for ((kind, names), had) in asked.into_iter().zip(&had) {
            h.request(client.id, resume(kind, names, &borrow(had))).unwrap();
        }
        assert_eq!(h.world.calls.get() - before, 0, "{own:?}");
        assert_eq!(client.drain(&mut h), ["CDS", "EDS", "LDS", "RDS", "VHDS"], "empty responses");
        assert!(h.hub.status(client.id).unwrap().watches.iter().all(|watch| watch.synced));
        h.disconnect(other.id);
        h.change(&[(EDS, "c5", 2), (EDS, "a", 2), (VHDS, "80/b", 2)]);
        let news = client.drain(&mut h);
        assert_eq!(news[0], if own.is_some() { "EDS a=2" } else { "EDS a=2 c5=2" });
        assert_eq!(news[1], "VHDS 80/b=2");
    }
}

#[test]
fn changes_and_removals_since_the_last_stream_are_sent() {
    let mut h = Harness::small();
    let old = Client::settled(&mut h, Delta);
    let clusters = versions(&h, old.id, CDS);
    let endpoints = versions(&h, old.id, EDS);
    h.disconnect(old.id);
    h.change(&[(CDS, "a", 2), (CDS, "b", 0), (CDS, "c", 1), (EDS, "b", 0)]);
    let mut client = Client::new(&mut h, Delta);
    h.request(client.id, resume(LDS, &[], &[])).unwrap();
    client.drain(&mut h);
    h.request(client.id, resume(CDS, &[], &borrow(&clusters))).unwrap();
    assert_eq!(client.take(&mut h), ["CDS a=2 c=1 -b"]);
    client.ack(&mut h, CDS);
    h.request(client.id, resume(EDS, &["a", "b", "c"], &borrow(&endpoints))).unwrap();
    assert_eq!(client.take(&mut h), ["EDS a=1 c=0 -b"], "a is unchanged, but its cluster was sent again");
}

#[test]
fn endpoints_are_sent_again_if_all_clusters_are() {
    let mut h = Harness::small();
    let old = Client::settled(&mut h, Delta);
    let had = versions(&h, old.id, EDS);
    let routes = versions(&h, old.id, RDS);
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &[]);
    client.drain(&mut h);
    h.request(client.id, resume(EDS, &["a", "b"], &borrow(&had))).unwrap();
    assert_eq!(client.drain(&mut h), ["EDS a=1 b=1"]);
    client.subscribe(&mut h, LDS, &[]);
    client.drain(&mut h);
    h.request(client.id, resume(RDS, &["r"], &borrow(&routes))).unwrap();
    assert_eq!(client.drain(&mut h), ["RDS r=1"]);
}

#[test]
fn initial_versions_subscribe_to_their_names() {
    let mut h = Harness::small();
    let mut client = Client::new(&mut h, Delta);
    h.request(client.id, resume(EDS, &["a"], &[("b", "0")])).unwrap();
    assert_eq!(client.drain(&mut h), ["EDS a=1 b=1"]);
}

#[test]
fn the_version_of_the_whole_subscription_is_recognised_in_sotw() {
    let mut h = Harness::small();
    let mut old = Client::settled(&mut h, Sotw);
    h.change(&[(EDS, "b", 2)]);
    assert_eq!(old.drain(&mut h), ["EDS b=2"]);
    let versions: BTreeMap<ResourceType, String> =
        [CDS, EDS, LDS, RDS].map(|kind| (kind, old.last(kind).version.clone())).into();
    h.disconnect(old.id);
    let mut client = Client::new(&mut h, Sotw);
    for (kind, names) in [(CDS, &[][..]), (EDS, &["a", "b"]), (LDS, &[]), (RDS, &["r"])] {
        h.request(client.id, sotw(kind, names, &versions[&kind], "")).unwrap();
    }
    assert_eq!(client.take(&mut h), [""; 0]);
    assert!(h.hub.status(client.id).unwrap().watches.iter().all(|watch| watch.synced));
    h.change(&[(EDS, "b", 3), (RDS, "r", 2)]);
    assert_eq!(client.take(&mut h), ["EDS b=3"]);

    let mut other = Client::new(&mut h, Sotw);
    h.request(other.id, sotw(EDS, &["a", "b", "new"], &versions[&EDS], "")).unwrap();
    assert_eq!(other.take(&mut h), ["EDS a=1 b=3 new=0"]);
    h.request(other.id, sotw(RDS, &["r", "new"], &versions[&RDS], "")).unwrap();
    other.ack(&mut h, EDS);
    assert_eq!(
        other.take(&mut h),
        ["RDS new=0 r=2"],
        "a new name is not part of the version, even if it has no resource"
    );
}

#[test]
fn endpoints_are_sent_again_if_clusters_are_in_sotw() {
    let mut h = Harness::small();
    let old = Client::settled(&mut h, Sotw);
    let version = old.last(EDS).version.clone();
    h.change(&[(CDS, "b", 2)]);
    let mut client = Client::new(&mut h, Sotw);
    client.subscribe(&mut h, CDS, &[]);
    assert_eq!(client.take(&mut h), ["CDS a=1 b=2"]);
    h.request(client.id, sotw(EDS, &["a", "b"], &version, "")).unwrap();
    assert_eq!(client.take(&mut h), ["EDS a=1 b=1"]);
}

#[test]
fn the_version_of_an_incomplete_response_is_not_recognised() {
    let mut h = Harness::small();
    let mut old = Client::settled(&mut h, Sotw);
    h.change(&[(RDS, "r", 2), (CDS, "b", 0)]);
    h.change(&[(CDS, "a", 2)]);
    assert_eq!(old.take(&mut h), ["CDS a=2 b=1"], "b is removed when the route is in place");
    let with_b = old.last(CDS).version.clone();
    let mut client = Client::new(&mut h, Sotw);
    h.request(client.id, sotw(CDS, &[], &with_b, "")).unwrap();
    assert_eq!(client.take(&mut h), ["CDS a=2"]);
}

#[test]
fn versions_do_not_depend_on_history() {
    let mut h = Harness::small();
    let mut old = Client::settled(&mut h, Sotw);
    h.change(&[(CDS, "a", 2), (CDS, "z", 1)]);
    old.drain(&mut h);
    h.change(&[(CDS, "z", 0)]);
    old.drain(&mut h);
    h.change(&[(CDS, "a", 1)]);
    old.drain(&mut h);
    let mut replica = Harness::small();
    let other = Client::settled(&mut replica, Sotw);
    assert_eq!(old.last(CDS).version, other.last(CDS).version);
}

/// A settled client is sent a changed cluster, and its stream ends before it answers for the assignment.
fn cut_off(h: &mut Harness, variant: Variant) -> (Client, [Vec<(String, String)>; 2]) {
    let mut old = Client::settled(h, variant);
    h.change(&[(CDS, "a", 2)]);
    let taken = old.take(h);
    assert!(taken[0].starts_with("CDS a=2"), "{taken:?}");
    old.ack(h, CDS);
    let had = [CDS, EDS].map(|kind| versions(h, old.id, kind));
    (old, had)
}

#[test]
fn an_unanswered_assignment_is_sent_again_on_the_next_stream() {
    for outstanding in [false, true] {
        let mut h = Harness::small();
        let mut old = Client::settled(&mut h, Delta);
        if outstanding {
            // The assignment waits for the answer to this response.
            h.change(&[(EDS, "b", 2)]);
            assert_eq!(old.take(&mut h), ["EDS b=2"]);
        }
        h.change(&[(CDS, "a", 2)]);
        let sent: &[&str] = if outstanding { &["CDS a=2"] } else { &["CDS a=2", "EDS a=1"] };
        assert_eq!(old.take(&mut h), sent);
        let [clusters, endpoints] = [CDS, EDS].map(|kind| versions(&h, old.id, kind));
        h.disconnect(old.id);
        // The next stream ends before the client subscribes to endpoints.
        let idle = Client::new(&mut h, Delta);
        h.request(idle.id, resume(CDS, &[], &borrow(&clusters))).unwrap();
        h.disconnect(idle.id);
        for again in ["EDS a=1", "EDS"] {
            let mut client = Client::new(&mut h, Delta);
            h.request(client.id, resume(CDS, &[], &borrow(&clusters))).unwrap();
            h.request(client.id, resume(EDS, &["a", "b"], &borrow(&endpoints))).unwrap();
            assert_eq!(client.drain(&mut h), ["CDS", again], "{outstanding}");
            h.disconnect(client.id);
        }
    }
}

#[test]
fn an_unanswered_assignment_is_sent_again_while_the_old_stream_is_open() {
    let mut h = Harness::small();
    let (old, [clusters, endpoints]) = cut_off(&mut h, Delta);
    let mut client = Client::new(&mut h, Delta);
    h.disconnect(old.id);
    h.request(client.id, resume(CDS, &[], &borrow(&clusters))).unwrap();
    h.request(client.id, resume(EDS, &["a", "b"], &borrow(&endpoints))).unwrap();
    assert_eq!(client.drain(&mut h), ["CDS", "EDS a=1"]);
}

#[test]
fn unanswered_assignments_are_sent_again_in_sotw() {
    let mut h = Harness::small();
    let (old, _) = cut_off(&mut h, Sotw);
    let version = [CDS, EDS].map(|kind| old.last(kind).version.clone());
    h.disconnect(old.id);
    for again in [&["EDS a=1 b=1"][..], &[]] {
        let mut client = Client::new(&mut h, Sotw);
        h.request(client.id, sotw(CDS, &[], &version[0], "")).unwrap();
        h.request(client.id, sotw(EDS, &["a", "b"], &version[1], "")).unwrap();
        assert_eq!(client.take(&mut h), again);
        if !again.is_empty() {
            client.subscribe(&mut h, EDS, &["a", "b"]);
        }
        client.ack(&mut h, EDS);
        h.disconnect(client.id);
    }
}

#[test]
fn what_cannot_be_derived_is_not_removed() {
    for variant in [Delta, Sotw] {
        let mut h = Harness::small();
        let mut client = Client::settled(&mut h, variant);
        h.world.failing = ["a", "x"].into();
        // Its resource, and its name in the catalogue of the audience, are lost, and a change of another one is not.
        h.change(&[(CDS, "a", 0), (EDS, "a", 0), (CDS, "b", 2)]);
        let received = client.drain(&mut h);
        assert_eq!(received[0], if variant == Delta { "CDS b=2" } else { "CDS a=1 b=2" });
        assert!(received.iter().all(|text| !text.contains('-')), "{received:?}");
        h.world.failing.clear();
        h.change(&[(CDS, "a", 3), (EDS, "a", 3)]);
        assert_eq!(client.drain(&mut h)[0], if variant == Delta { "CDS a=3" } else { "CDS a=3 b=2" });
    }
}

#[test]
fn a_client_that_returns_keeps_what_cannot_be_derived() {
    let mut h = Harness::small();
    let client = Client::settled(&mut h, Delta);
    let had = [CDS, EDS].map(|kind| versions(&h, client.id, kind));
    h.disconnect(client.id);
    // Its endpoints, and a name in the catalogue.
    h.world.put(EDS, "z", "a", plain(1));
    h.change(&[(CDS, "a", 0), (EDS, "a", 0), (EDS, "b", 2)]);
    h.world.failing = ["a"].into();
    let mut client = Client::new(&mut h, Delta);
    for ((kind, names), had) in [(CDS, &[][..]), (EDS, &["a", "b"])].into_iter().zip(&had) {
        h.request(client.id, resume(kind, names, &borrow(had))).unwrap();
    }
    assert_eq!(client.drain(&mut h), ["CDS", "EDS b=2"]);
    h.disconnect(client.id);

    // A list without names is lost as a whole. A SotW response with other names would remove some.
    for (variant, is_empty) in [(Delta, true), (Sotw, false)] {
        if is_empty {
            h.world.table(CDS, "a").clear();
            h.commit();
        } else {
            h.change(&[(CDS, "b", 1)]);
        }
        let id = h.connect_as(ProxyKind::Sidecar, variant);
        let request = if variant == Delta { subscribe(CDS, &[], &[]) } else { sotw(CDS, &[], "", "") };
        h.request(id, request).unwrap();
        assert!(matches!(h.hub.next(id, h.now), Next::End(status) if status.code == Code::Unavailable));
        h.disconnect(id);
    }
}
