//! Work that grows with one client's list, and that is divided into steps.

use xds::Variant::Delta;
use xds::{Limits, Next, Progress};

use crate::client::{Client, borrow, resume, versions};
use crate::harness::*;
use crate::world::plain;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Clusters and endpoints of five names; lists of more than two are long.
fn long_lists() -> Harness {
    let mut h = Harness::with(Limits { opened_together: 2, opened_at_once: 2, ..Harness::limits() });
    for name in NAMES {
        h.world.put(CDS, "a", name, plain(1));
        h.world.put(EDS, "a", name, plain(1));
    }
    h.commit();
    h
}

fn client_of_all(h: &mut Harness) -> Client {
    let mut client = Client::new(h, Delta);
    client.subscribe(h, CDS, &[]);
    client.subscribe(h, EDS, &NAMES);
    client.drain(h);
    client
}

/// The endpoints that a client had when its stream ended.
fn left_behind(h: &mut Harness) -> Vec<(String, String)> {
    let old = client_of_all(h);
    let had = versions(h, old.id, EDS);
    h.disconnect(old.id);
    had
}

#[test]
fn a_reconnecting_client_is_sent_nothing_until_its_resources_are_compared() {
    let mut h = long_lists();
    let had = left_behind(&mut h);
    // So that everything is open.
    let _other = client_of_all(&mut h);
    h.change(&[(EDS, "b", 2), (EDS, "e", 0)]);

    let mut client = Client::new(&mut h, Delta);
    let request = resume(EDS, &NAMES, &borrow(&had));
    assert_eq!(h.hub.request(&mut h.world, client.id, request, h.now), Ok(Progress::More));
    assert_eq!(client.take(&mut h), [""; 0]);
    assert!(!h.hub.status(client.id).unwrap().watches[0].synced);
    // What changes before the comparison is sent once.
    h.change(&[(EDS, "b", 3), (EDS, "c", 2)]);
    assert_eq!(client.take(&mut h), [""; 0]);
    assert_eq!(h.hub.proceed(&mut h.world, client.id, h.now), Ok(Progress::Done));
    assert_eq!(client.drain(&mut h), ["EDS b=3 c=2 -e"]);
    h.change(&[(EDS, "d", 2)]);
    assert_eq!(client.drain(&mut h), ["EDS d=2"]);
}

#[test]
fn a_client_that_moves_before_the_comparison_gets_what_it_has_there() {
    let mut h = long_lists();
    let had = left_behind(&mut h);
    for name in NAMES {
        h.world.put(EDS, "b", name, plain(if name == "d" { 9 } else { 1 }));
    }
    h.change(&[(EDS, "b", 2)]);
    let mut client = Client::new(&mut h, Delta);
    let request = resume(EDS, &NAMES, &borrow(&had));
    let mut progress = h.hub.request(&mut h.world, client.id, request, h.now);
    while h.hub.status(client.id).unwrap().watches.is_empty() {
        progress = h.hub.proceed(&mut h.world, client.id, h.now);
    }
    assert_eq!(progress, Ok(Progress::More));
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(h.hub.proceed(&mut h.world, client.id, h.now), Ok(Progress::Done));
    assert_eq!(client.drain(&mut h), ["EDS d=9"]);
}

#[test]
fn a_later_request_completes_the_comparison() {
    let mut h = long_lists();
    let had = left_behind(&mut h);
    let _other = client_of_all(&mut h);
    h.change(&[(EDS, "b", 2)]);
    let mut client = Client::new(&mut h, Delta);
    let request = resume(EDS, &NAMES, &borrow(&had));
    assert_eq!(h.hub.request(&mut h.world, client.id, request, h.now), Ok(Progress::More));
    client.unsubscribe(&mut h, EDS, &["a"]);
    assert_eq!(client.drain(&mut h), ["EDS b=2"]);
}

#[test]
fn the_caller_may_open_many_names() {
    for leaves in [false, true] {
        let names: Vec<String> = (0..40).map(|number| format!("e{number:02}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut h = Harness::with(Limits { opened_together: 30, opened_at_once: 30, ..Harness::limits() });
        names.iter().for_each(|name| h.world.put(EDS, "a", name, plain(1)));
        h.commit();
        let mut client = Client::new(&mut h, Delta);
        let request = subscribe(EDS, &names, &[]);
        assert_eq!(h.hub.request(&mut h.world, client.id, request, h.now), Ok(Progress::More));
        let wanted = h.hub.wanted(&h.world, client.id).expect("30 names are opened together");
        let opened = wanted.open(&mut h.world);
        assert_eq!(h.world.open_cells(), 30);
        h.change(&[(EDS, "e00", 2), (EDS, "e39", 2)]);
        if leaves {
            h.hub.disconnect(&mut h.world, client.id);
        }
        h.hub.opened(client.id, opened);
        if !leaves {
            assert_eq!(h.hub.proceed(&mut h.world, client.id, h.now), Ok(Progress::More));
            assert_eq!(h.world.open_cells(), 30, "they are open");
            assert!(h.hub.wanted(&h.world, client.id).is_none(), "few are left");
            while h.hub.proceed(&mut h.world, client.id, h.now).unwrap() == Progress::More {}
            let sent = client.drain(&mut h).concat();
            assert!(sent.starts_with("EDS e00=2 e01=1 ") && sent.ends_with(" e38=1 e39=2"), "{sent}");
            h.hub.disconnect(&mut h.world, client.id);
        }
        while h.hub.close_unused(&mut h.world, 8) {}
        assert_eq!(h.world.open_cells(), 0);
    }
}

#[test]
fn a_long_list_is_closed_in_steps_and_may_be_used_again_meanwhile() {
    for returns in [false, true] {
        let mut h = long_lists();
        let first = client_of_all(&mut h);
        let open = h.world.open_cells();
        h.hub.disconnect(&mut h.world, first.id);
        assert!(h.hub.close_unused(&mut h.world, 1));
        assert!(h.world.open_cells() >= open - 1);
        (0..3).for_each(|_| assert!(h.hub.close_unused(&mut h.world, 1)));
        if returns {
            h.change(&[(CDS, "e", 2), (EDS, "a", 2)]);
            let mut second = Client::new(&mut h, Delta);
            second.subscribe(&mut h, CDS, &[]);
            second.subscribe(&mut h, EDS, &NAMES);
            assert_eq!(second.drain(&mut h), ["CDS a=1 b=1 c=1 d=1 e=2", "EDS a=2 b=1 c=1 d=1 e=1"]);
            h.change(&[(CDS, "a", 3)]);
            assert_eq!(second.drain(&mut h), ["CDS a=3", "EDS a=2"]);
            h.hub.disconnect(&mut h.world, second.id);
        }
        while h.hub.close_unused(&mut h.world, 1) {}
        assert_eq!((h.world.open_cells(), h.hub.has_unused()), (0, false));
        assert!(h.hub.sizes().iter().all(|(_, size)| *size == 0), "{:?}", h.hub.sizes());
    }
}

#[test]
fn unused_responses_of_many_lists_are_dropped_in_steps() {
    let mut h = long_lists();
    let kept = |h: &Harness| h.hub.sizes().iter().find(|(what, _)| *what == "responses").unwrap().1;
    // More lists than one step searches.
    for number in 0..600 {
        let own: &'static str = Box::leak(format!("own-{number}").into_boxed_str());
        h.world.put(CDS, own, "own", plain(1));
        h.commit();
        h.world.own_of_newcomers = Some(own);
        client_of_all(&mut h);
    }
    let all = kept(&h);
    assert!(all > 600);
    let mut left = vec![all];
    while let Some(due) = h.hub.deadline() {
        h.now = due;
        h.hub.tick(&mut h.world, due);
        left.push(kept(&h));
    }
    // The first search finds responses that were used since the clients connected.
    left.dedup();
    assert!(left.len() > 2 && left.is_sorted_by(|before, after| before > after), "{left:?}");
    assert_eq!(left.last(), Some(&0));
}

#[test]
fn a_client_that_rejects_a_long_list_moves_in_steps() {
    let mut h = Harness::with(Limits { opened_together: 2, opened_at_once: 2, ..Limits::default() });
    for name in NAMES {
        h.world.put(EDS, "a", name, plain(1));
    }
    h.commit();
    let mut other = Client::new(&mut h, Delta);
    other.subscribe(&mut h, EDS, &NAMES);
    other.drain(&mut h);
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, EDS, &NAMES);
    client.take(&mut h);

    let nack = client.rejection(EDS, "'c' is bad");
    assert_eq!(h.hub.request(&mut h.world, client.id, nack, h.now), Ok(Progress::Done));
    let mut steps = 0;
    while h.hub.is_moving(client.id) {
        if steps == 2 {
            h.world.put(EDS, "a", "e", plain(2));
            let changes = h.world.commit();
            h.apply(changes);
            assert_eq!(other.take(&mut h), ["EDS e=2"], "others are served meanwhile");
        }
        assert!(matches!(h.hub.next(client.id, h.now), Next::Idle), "it is sent nothing before");
        h.hub.move_some(&mut h.world, 1, h.now);
        steps += 1;
    }
    assert!(steps > 3, "{steps}");
    assert_eq!(client.drain(&mut h), ["EDS a=1 b=1 d=1 e=2"], "without what it rejects");
    h.hub.disconnect(&mut h.world, client.id);
    h.hub.disconnect(&mut h.world, other.id);
    while h.hub.close_unused(&mut h.world, 1) {}
    assert_eq!(h.world.open_cells(), 0);
}

#[test]
fn a_commit_is_applied_in_steps_and_sent_as_a_whole() {
    let mut h = long_lists();
    let mut other = Client::new(&mut h, Delta);
    other.subscribe(&mut h, EDS, &["e"]);
    other.take(&mut h);
    h.change(&[(EDS, "e", 2)]);
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, CDS, &[]);
    client.subscribe(&mut h, EDS, &NAMES);
    for (kind, name) in [(CDS, "a"), (CDS, "b"), (CDS, "f"), (EDS, "a"), (EDS, "b")] {
        h.world.put(kind, "a", name, plain(3));
    }
    h.world.remove(CDS, "a", "d");
    let changes = h.world.commit();

    let (mut left, mut steps) = (h.hub.application(changes, Default::default()), 0);
    while let Some(application) = left {
        left = h.hub.apply_some(&mut h.world, application, || false, h.now);
        steps += 1;
        if left.is_some() {
            assert_eq!(client.take(&mut h), [""; 0], "it is sent no part of a commit");
        }
        if steps == 2 {
            assert!(h.hub.accept(other.id, &other.acceptance(EDS), h.now));
            assert_eq!(other.take(&mut h), ["EDS e=2"], "others are served meanwhile");
        }
    }
    assert!(steps > 6, "{steps}");
    assert_eq!(client.drain(&mut h), ["CDS a=3 b=3 c=1 e=1 f=3 -d", "EDS a=3 b=3 c=1 d=1 e=2"]);
}

#[test]
fn the_caller_may_drop_what_is_not_used_any_more() {
    let mut h = long_lists();
    let client = client_of_all(&mut h);
    assert!(h.hub.take_garbage().is_none());
    h.hub.disconnect(&mut h.world, client.id);
    let garbage = h.hub.take_garbage().expect("the client's responses are long");
    std::thread::spawn(move || drop(garbage)).join().unwrap();
    assert!(h.hub.take_garbage().is_none());
    while h.hub.close_unused(&mut h.world, 1) {}
    assert!(h.hub.take_garbage().is_none());
    assert_eq!(h.world.open_cells(), 0);
}
