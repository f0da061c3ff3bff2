//! Counting the clients that have acknowledged, rejected or not answered resources.

use model::xds::ResourceType;
use xds::Variant::{Delta, Sotw};
use xds::{Listed, News, Question, Tally};

use crate::client::Client;
use crate::harness::*;
use crate::world::{leading_to, plain};

/// Counts for resources of audience `a` that changed in epoch `since`.
fn count(h: &Harness, names: &[(ResourceType, &str)], since: u64) -> Tally {
    let resources = h.world.open_resources();
    let cell = |(kind, name): &(ResourceType, &str)| {
        let found = resources.iter().find(|(_, key, _)| key.0 == *kind && &*key.2 == *name);
        found.unwrap_or_else(|| panic!("{name} is not open")).0
    };
    let question = Question {
        resources: names.iter().map(cell).collect(),
        catalogues: Vec::new(),
        maybe: Vec::new(),
        since,
        parts: Vec::new(),
    };
    h.hub.tallies().answer(&question)
}

/// Counts for a catalogue.
fn count_listed(h: &Harness, listed: Listed<u32>, since: u64) -> Tally {
    let (resources, maybe, parts) = (Vec::new(), Vec::new(), Vec::new());
    h.hub.tallies().answer(&Question { resources, catalogues: vec![listed], maybe, since, parts })
}

/// `running/total`, then the other counts that are not zero.
fn show(tally: &Tally) -> String {
    let mut text = format!("{}/{}", tally.running, tally.total);
    if tally.rejected > 0 {
        text += &format!(" rejected {}", tally.rejected);
    }
    if tally.pending > 0 {
        text += &format!(" pending {}", tally.pending);
    }
    if let Some(nack) = &tally.nack {
        let (kind, names) = (nack.kind.short_name, nack.resources.join(","));
        text += &format!(" ({kind} {names}: {})", nack.message);
    }
    text
}

#[test]
fn acks_nacks_and_missing_answers_are_counted() {
    let mut h = Harness::small();
    let mut clients: Vec<Client> = [Delta, Sotw, Delta].map(|variant| Client::settled(&mut h, variant)).into();
    assert_eq!(show(&count(&h, &[(RDS, "r")], h.hub.epoch())), "3/3");
    h.hub.take_news();

    h.change(&[(RDS, "r", 2)]);
    let since = h.hub.epoch();
    assert_eq!(show(&count(&h, &[(RDS, "r")], since)), "0/3 pending 3");
    assert_eq!(show(&count(&h, &[(RDS, "r")], since - 1)), "3/3", "the previous version is still in use");
    for client in &mut clients {
        assert_eq!(client.take(&mut h), ["RDS r=2"]);
    }
    assert_eq!(h.hub.take_news(), News::default());
    clients[0].ack(&mut h, RDS);
    assert!(h.hub.take_news().answered);
    clients[1].nack(&mut h, RDS, "bad route 'r'");
    assert!(h.hub.take_news().rejected);
    assert_eq!(show(&count(&h, &[(RDS, "r")], since)), "1/3 rejected 1 pending 1 (RDS r: bad route 'r')");
    assert_eq!(show(&count(&h, &[(RDS, "r"), (CDS, "a")], since - 1)), "3/3");

    // A later version can be accepted. Until then, the NACK stands.
    h.change(&[(RDS, "r", 3)]);
    for client in &mut clients[..2] {
        assert_eq!(client.take(&mut h), ["RDS r=3"]);
    }
    assert_eq!(show(&count(&h, &[(RDS, "r")], since)), "1/3 rejected 1 pending 1 (RDS r: bad route 'r')");
    clients[1].ack(&mut h, RDS);
    assert_eq!(show(&count(&h, &[(RDS, "r")], since)), "2/3 pending 1");
    assert_eq!(show(&count(&h, &[(RDS, "r")], h.hub.epoch())), "1/3 pending 2");
    h.disconnect(clients[2].id);
    assert!(h.hub.take_news().members);
    assert_eq!(show(&count(&h, &[(RDS, "r")], since)), "2/2");
}

#[test]
fn only_the_resources_that_a_nack_names_count_as_rejected() {
    for variant in [Delta, Sotw] {
        let mut h = Harness::small();
        let mut client = Client::settled(&mut h, variant);
        h.change(&[(CDS, "a", 2), (CDS, "b", 2)]);
        let since = h.hub.epoch();
        client.take(&mut h);
        client.nack(&mut h, CDS, "Error adding/updating cluster(s) b: no such filter");
        assert_eq!(
            show(&count(&h, &[(CDS, "b")], since)),
            "0/1 rejected 1 (CDS b: Error adding/updating cluster(s) b: no such filter)"
        );
        assert_eq!(show(&count(&h, &[(CDS, "a")], since)), "1/1", "Envoy accepts the others");
        h.change(&[(CDS, "a", 3)]);
        client.take(&mut h);
        assert_eq!(show(&count(&h, &[(CDS, "a")], h.hub.epoch())), "0/1 pending 1");
        client.nack(&mut h, CDS, "I will not say why");
        assert_eq!(show(&count(&h, &[(CDS, "a")], h.hub.epoch())), "0/1 rejected 1 (CDS a: I will not say why)");
        assert_eq!(show(&count(&h, &[(CDS, "b")], since)), "0/1 rejected 1 (CDS b: I will not say why)");
    }
}

#[test]
fn new_subscribers_are_pending_and_others_do_not_count() {
    let mut h = Harness::small();
    let _first = Client::settled(&mut h, Delta);
    let since = h.hub.epoch();
    let mut second = Client::new(&mut h, Delta);
    second.subscribe(&mut h, CDS, &[]);
    assert_eq!(show(&count(&h, &[(CDS, "a"), (EDS, "a")], since)), "1/2 pending 1");
    second.take(&mut h);
    second.ack(&mut h, CDS);
    assert_eq!(show(&count(&h, &[(CDS, "a"), (EDS, "a")], since)), "2/2", "no subscription to endpoints");
    second.subscribe(&mut h, EDS, &["b"]);
    assert_eq!(show(&count(&h, &[(EDS, "b")], since)), "1/2 pending 1");
    assert_eq!(show(&count(&h, &[(EDS, "a")], since)), "1/1");
    second.take(&mut h);
    second.ack(&mut h, EDS);
    // Another name, which is old for other clients, is pending for this one.
    second.subscribe(&mut h, EDS, &["a"]);
    assert_eq!(show(&count(&h, &[(EDS, "a")], since)), "1/2 pending 1");
    assert_eq!(show(&count(&h, &[(EDS, "b")], since)), "2/2");
    second.take(&mut h);
    second.nack(&mut h, EDS, "no");
    assert_eq!(show(&count(&h, &[(EDS, "a")], since)), "1/2 rejected 1 (EDS a: no)");
    assert_eq!(show(&count(&h, &[(EDS, "b")], since)), "2/2");
}

#[test]
fn later_changes_of_the_same_resource_are_not_waited_for() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "a", 2)]);
    client.drain(&mut h);
    h.change(&[(CDS, "b", 2)]);
    let mine = h.hub.epoch();
    client.drain(&mut h);
    h.change(&[(RDS, "r", 2)]);
    h.change(&[(RDS, "r", 3)]);
    assert_eq!(show(&count(&h, &[(RDS, "r")], mine)), "1/1");
    assert_eq!(show(&count(&h, &[(RDS, "r")], h.hub.epoch())), "0/1 pending 1");
}

#[test]
fn catalogues_count_for_all_clients_or_for_resources_changed_in_the_epoch() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    let listeners = h.world.catalogue_cell(LDS, "a").unwrap();
    let tally = |h: &Harness, certain: bool, since| {
        if certain {
            return show(&count_listed(h, Listed { cell: listeners, names: None }, since));
        }
        let (resources, catalogues, parts) = (Vec::new(), Vec::new(), Vec::new());
        show(&h.hub.tallies().answer(&Question { resources, catalogues, maybe: vec![listeners], since, parts }))
    };
    h.change(&[(CDS, "a", 2)]);
    client.drain(&mut h);
    let quiet = h.hub.epoch();
    assert_eq!(tally(&h, true, quiet), "1/1");
    assert_eq!(tally(&h, false, quiet), "0/0", "nothing in it changed in that epoch");
    h.change(&[(LDS, "0.0.0.0_81", 1)]);
    let since = h.hub.epoch();
    assert_eq!(tally(&h, true, since), "0/1 pending 1");
    assert_eq!(tally(&h, false, since), "0/1 pending 1");
    assert_eq!(tally(&h, true, quiet), "1/1");
    client.take(&mut h);
    client.nack(&mut h, LDS, "Error adding/updating listener(s) 0.0.0.0_81: in use");
    let rejected = "0/1 rejected 1 (LDS 0.0.0.0_81: Error adding/updating listener(s) 0.0.0.0_81: in use)";
    assert_eq!(tally(&h, false, since), rejected);
    assert_eq!(tally(&h, true, quiet), "1/1");
}

/// A client that moves has acknowledged the listeners of its former audience. This says nothing about the new ones.
#[test]
fn a_moved_client_counts_when_it_has_answered_for_the_new_listeners() {
    let mut h = Harness::small();
    let listener = "0.0.0.0_81";
    for kind in [CDS, EDS] {
        ["a", "b"].into_iter().for_each(|name| h.world.put(kind, "b", name, plain(1)));
    }
    h.world.put(RDS, "b", "r", leading_to("a", 1));
    ["r", listener].into_iter().for_each(|name| h.world.put(LDS, "b", name, plain(1)));
    h.commit();
    let since = h.hub.epoch();
    let mut client = Client::settled(&mut h, Delta);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    let cell = h.world.catalogue_cell(LDS, "b").unwrap();
    let tally = |h: &Harness, names: Option<&[&str]>| {
        let names = names.map(|names| names.iter().map(|name| (*name).into()).collect());
        show(&count_listed(h, Listed { cell, names }, since))
    };
    let all = |h: &Harness| [None, Some(&[listener][..]), Some(&["r"]), Some(&["gone"])].map(|names| tally(h, names));
    assert_eq!(all(&h), ["0/1 pending 1", "0/1 pending 1", "1/1", "0/1 pending 1"], "not sent");
    assert_eq!(client.take(&mut h), ["LDS 0.0.0.0_81=1"]);
    assert_eq!(all(&h), ["0/1 pending 1", "0/1 pending 1", "1/1", "0/1 pending 1"], "not answered");
    client.nack(&mut h, LDS, "Error adding/updating listener(s) 0.0.0.0_81: in use");
    let rejected = "0/1 rejected 1 (LDS 0.0.0.0_81: Error adding/updating listener(s) 0.0.0.0_81: in use)";
    assert_eq!(all(&h), [rejected, rejected, "1/1", rejected]);
    h.world.put(LDS, "b", listener, plain(2));
    h.commit();
    assert_eq!(client.take(&mut h), ["LDS 0.0.0.0_81=2"]);
    client.ack(&mut h, LDS);
    assert_eq!(all(&h), ["1/1"; 4]);
}
