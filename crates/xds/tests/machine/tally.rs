//! How many clients run something.

use model::xds::ResourceType;
use xds::Variant::{Delta, Sotw};
use xds::{News, Question, Tally};

use crate::client::Client;
use crate::harness::*;

/// Asks about resources of audience `a` that changed in epoch `since`.
fn ask(h: &Harness, names: &[(ResourceType, &str)], since: u64) -> Tally {
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
    };
    h.hub.tally(&[question]).remove(0)
}

/// `running/total`, and what else there is.
fn show(tally: &Tally) -> String {
    let mut text = format!("{}/{}", tally.running, tally.total);
    if tally.refused > 0 {
        text += &format!(" refused {}", tally.refused);
    }
    if tally.pending > 0 {
        text += &format!(" pending {}", tally.pending);
    }
    if let Some(objection) = &tally.objection {
        let (kind, names) = (objection.kind.short_name, objection.resources.join(","));
        text += &format!(" ({kind} {names}: {})", objection.message);
    }
    text
}

#[test]
fn one_runs_one_refuses_and_one_says_nothing() {
    let mut h = Harness::small();
    let mut clients: Vec<Client> = [Delta, Sotw, Delta]
        .map(|variant| Client::settled(&mut h, variant))
        .into();
    assert_eq!(show(&ask(&h, &[(RDS, "r")], h.hub.epoch())), "3/3");
    h.hub.take_news();

    h.change(&[(RDS, "r", 2)]);
    let since = h.hub.epoch();
    assert_eq!(show(&ask(&h, &[(RDS, "r")], since)), "0/3 pending 3");
    assert_eq!(
        show(&ask(&h, &[(RDS, "r")], since - 1)),
        "3/3",
        "what was before runs on"
    );
    for client in &mut clients {
        assert_eq!(client.take(&mut h), ["RDS r=2"]);
    }
    assert_eq!(h.hub.take_news(), News::default());
    clients[0].ack(&mut h, RDS);
    assert!(h.hub.take_news().answered);
    clients[1].nack(&mut h, RDS, "bad route 'r'");
    assert!(h.hub.take_news().refused);
    assert_eq!(
        show(&ask(&h, &[(RDS, "r")], since)),
        "1/3 refused 1 pending 1 (RDS r: bad route 'r')"
    );
    assert_eq!(show(&ask(&h, &[(RDS, "r"), (CDS, "a")], since - 1)), "3/3");

    // A later version that is good is a way out, and until it is accepted the refusal stands.
    h.change(&[(RDS, "r", 3)]);
    for client in &mut clients[..2] {
        assert_eq!(client.take(&mut h), ["RDS r=3"]);
    }
    assert_eq!(
        show(&ask(&h, &[(RDS, "r")], since)),
        "1/3 refused 1 pending 1 (RDS r: bad route 'r')"
    );
    clients[1].ack(&mut h, RDS);
    assert_eq!(show(&ask(&h, &[(RDS, "r")], since)), "2/3 pending 1");
    assert_eq!(show(&ask(&h, &[(RDS, "r")], h.hub.epoch())), "1/3 pending 2");
    h.disconnect(clients[2].id);
    assert!(h.hub.take_news().members);
    assert_eq!(show(&ask(&h, &[(RDS, "r")], since)), "2/2");
}

#[test]
fn of_a_refused_response_only_what_the_words_name_is_refused() {
    for variant in [Delta, Sotw] {
        let mut h = Harness::small();
        let mut client = Client::settled(&mut h, variant);
        h.change(&[(CDS, "a", 2), (CDS, "b", 2)]);
        let since = h.hub.epoch();
        client.take(&mut h);
        client.nack(&mut h, CDS, "Error adding/updating cluster(s) b: no such filter");
        assert_eq!(
            show(&ask(&h, &[(CDS, "b")], since)),
            "0/1 refused 1 (CDS b: Error adding/updating cluster(s) b: no such filter)"
        );
        assert_eq!(show(&ask(&h, &[(CDS, "a")], since)), "1/1", "Envoy takes the others");
        h.change(&[(CDS, "a", 3)]);
        client.take(&mut h);
        assert_eq!(show(&ask(&h, &[(CDS, "a")], h.hub.epoch())), "0/1 pending 1");
        client.nack(&mut h, CDS, "I will not say why");
        assert_eq!(
            show(&ask(&h, &[(CDS, "a")], h.hub.epoch())),
            "0/1 refused 1 (CDS a: I will not say why)"
        );
        assert_eq!(
            show(&ask(&h, &[(CDS, "b")], since)),
            "0/1 refused 1 (CDS b: I will not say why)"
        );
    }
}

#[test]
fn who_comes_later_has_to_answer_first_and_who_does_not_see_it_does_not_count() {
    let mut h = Harness::small();
    let _first = Client::settled(&mut h, Delta);
    let since = h.hub.epoch();
    let mut second = Client::new(&mut h, Delta);
    second.ask(&mut h, CDS, &[]);
    assert_eq!(show(&ask(&h, &[(CDS, "a"), (EDS, "a")], since)), "1/2 pending 1");
    second.take(&mut h);
    second.ack(&mut h, CDS);
    assert_eq!(
        show(&ask(&h, &[(CDS, "a"), (EDS, "a")], since)),
        "2/2",
        "no endpoints asked for"
    );
    second.ask(&mut h, EDS, &["b"]);
    assert_eq!(show(&ask(&h, &[(EDS, "b")], since)), "1/2 pending 1");
    assert_eq!(show(&ask(&h, &[(EDS, "a")], since)), "1/1");
    second.take(&mut h);
    second.ack(&mut h, EDS);
    // A name more, which others have long had: it is owed.
    second.ask(&mut h, EDS, &["a"]);
    assert_eq!(show(&ask(&h, &[(EDS, "a")], since)), "1/2 pending 1");
    assert_eq!(show(&ask(&h, &[(EDS, "b")], since)), "2/2");
    second.take(&mut h);
    second.nack(&mut h, EDS, "no");
    assert_eq!(show(&ask(&h, &[(EDS, "a")], since)), "1/2 refused 1 (EDS a: no)");
    assert_eq!(show(&ask(&h, &[(EDS, "b")], since)), "2/2");
}

#[test]
fn a_change_of_something_else_in_the_same_resource_is_not_waited_for() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Delta);
    h.change(&[(CDS, "a", 2)]);
    client.drain(&mut h);
    h.change(&[(CDS, "b", 2)]);
    let mine = h.hub.epoch();
    client.drain(&mut h);
    h.change(&[(RDS, "r", 2)]);
    h.change(&[(RDS, "r", 3)]);
    assert_eq!(show(&ask(&h, &[(RDS, "r")], mine)), "1/1");
    assert_eq!(show(&ask(&h, &[(RDS, "r")], h.hub.epoch())), "0/1 pending 1");
}

#[test]
fn catalogues_count_for_everybody_or_for_what_changed_with_the_thing() {
    let mut h = Harness::small();
    let mut client = Client::settled(&mut h, Sotw);
    let listeners = h.world.catalogue_cell(LDS, "a").unwrap();
    let tally = |h: &Harness, certain: bool, since| {
        let (catalogues, maybe) = if certain {
            (vec![listeners], Vec::new())
        } else {
            (Vec::new(), vec![listeners])
        };
        let question = Question {
            resources: Vec::new(),
            catalogues,
            maybe,
            since,
        };
        show(&h.hub.tally(&[question])[0])
    };
    h.change(&[(CDS, "a", 2)]);
    client.drain(&mut h);
    let quiet = h.hub.epoch();
    assert_eq!(tally(&h, true, quiet), "1/1");
    assert_eq!(tally(&h, false, quiet), "0/0", "nothing in it changed then");
    h.change(&[(LDS, "0.0.0.0_81", 1)]);
    let since = h.hub.epoch();
    assert_eq!(tally(&h, true, since), "0/1 pending 1");
    assert_eq!(tally(&h, false, since), "0/1 pending 1");
    assert_eq!(tally(&h, true, quiet), "1/1");
    client.take(&mut h);
    client.nack(&mut h, LDS, "Error adding/updating listener(s) 0.0.0.0_81: in use");
    let refused = "0/1 refused 1 (LDS 0.0.0.0_81: Error adding/updating listener(s) 0.0.0.0_81: in use)";
    assert_eq!(tally(&h, false, since), refused);
    assert_eq!(tally(&h, true, quiet), "1/1");
}
