//! Large requests, which are handled in parts, and names that cannot exist yet.

use proptest::prelude::*;
use xds::Variant::{Delta, Sotw};
use xds::{Code, Limits, Moment, Next, Progress, StreamId};

use crate::client::Client;
use crate::harness::*;
use crate::world::plain;

/// Endpoints of these names, all with number 1, and requests that are handled in steps of so many cells.
fn world(names: &[String], opened_together: usize) -> Harness {
    let mut h = Harness::with(Limits { opened_together, opened_at_once: opened_together, ..Limits::default() });
    names.iter().for_each(|name| h.world.put(EDS, "a", name, plain(1)));
    h.commit();
    h
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("e{number:02}")).collect()
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// Continues a stream's request; the number of steps that were left.
fn proceed(h: &mut Harness, id: StreamId) -> usize {
    let mut steps = 1;
    while h.hub.proceed(&mut h.world, id, h.now).unwrap() == Progress::More {
        steps += 1;
    }
    steps
}

#[test]
fn a_large_request_lets_others_work() {
    let names = numbered(10);
    let mut h = world(&names, 3);
    let large = Client::new(&mut h, Delta);
    let request = subscribe(EDS, &refs(&names), &[]);
    assert_eq!(h.hub.request(&mut h.world, large.id, request, h.now), Ok(Progress::More));
    let mut small = Client::new(&mut h, Delta);
    small.subscribe(&mut h, EDS, &["e05"]);
    assert_eq!(small.drain(&mut h), ["EDS e05=1"]);
    assert!(h.poll(large.id).is_empty());
    // A change in between is not lost, and not sent twice.
    h.change(&[(EDS, "e00", 2), (EDS, "e09", 0)]);
    // The names are opened in four steps, and then their set is built.
    assert_eq!(proceed(&mut h, large.id), 5);
    let received = h.poll(large.id);
    assert_eq!(received.len(), 1);
    assert_eq!((received[0].resources.len(), show(&received[0]).contains(" e00=2 ")), (10, true));
    assert!(show(&received[0]).contains(" e09=0"), "{}", show(&received[0]));
}

#[test]
fn a_large_response_lets_others_work() {
    let names = numbered(7);
    let mut h = world(&names, usize::MAX);
    names.iter().for_each(|name| h.world.put(CDS, "a", name, plain(1)));
    h.commit();
    // A response of two resources is composed in one step.
    let (mut large, mut small) = (Client::new(&mut h, Delta), Client::new(&mut h, Delta));
    large.subscribe(&mut h, CDS, &[]);
    small.subscribe(&mut h, EDS, &["e05"]);
    let mut order = Vec::new();
    while let Some(id) = h.hub.pop_woken() {
        while let Next::Send(response) = h.hub.next(id, h.now) {
            order.push((id, response.resources));
        }
        if h.hub.has_woken() && order.is_empty() {
            // A change between two steps does no harm.
            h.change(&[(CDS, "e00", 2)]);
        }
    }
    assert_eq!(order, [(small.id, 1), (large.id, 7)]);
}

#[test]
fn the_next_request_completes_the_one_before() {
    let names = numbered(5);
    let mut h = world(&names, 1);
    let mut client = Client::new(&mut h, Delta);
    let request = subscribe(EDS, &refs(&names), &[]);
    assert_eq!(h.hub.request(&mut h.world, client.id, request, h.now), Ok(Progress::More));
    client.unsubscribe(&mut h, EDS, &["e01", "e02"]);
    assert_eq!(client.drain(&mut h), ["EDS e00=1 e03=1 e04=1"]);
    h.disconnect(client.id);
    assert_eq!(h.world.open_cells(), 0);
}

#[test]
fn a_stream_that_ends_within_a_request_leaves_nothing() {
    for kind in [EDS, CDS] {
        let names = numbered(8);
        let mut h = world(&names, 2);
        names.iter().for_each(|name| h.world.put(CDS, "a", name, plain(1)));
        h.commit();
        let client = Client::new(&mut h, Delta);
        let wanted = if kind == EDS { refs(&names) } else { Vec::new() };
        let request = subscribe(kind, &wanted, &[]);
        assert_eq!(h.hub.request(&mut h.world, client.id, request, h.now), Ok(Progress::More));
        // The catalogue of clusters is a step of its own.
        for _ in 0..if kind == CDS { 2 } else { 1 } {
            assert_eq!(h.hub.proceed(&mut h.world, client.id, h.now), Ok(Progress::More));
        }
        assert!(h.world.open_cells() > 1);
        h.hub.disconnect(&mut h.world, client.id);
        // Unused cells are closed in parts, too.
        let before = h.world.open_cells();
        assert!(h.hub.close_unused(&mut h.world, 1));
        assert!(h.world.open_cells() >= before - 1);
        while h.hub.close_unused(&mut h.world, 1) {}
        assert_eq!((h.world.open_cells(), h.hub.has_unused()), (0, false));
    }
}

#[test]
fn the_caller_may_open_catalogues() {
    for leaves in [false, true] {
        let names = numbered(8);
        let mut h = world(&names, 3);
        names.iter().for_each(|name| h.world.put(CDS, "a", name, plain(1)));
        h.commit();
        let mut client = Client::new(&mut h, Delta);
        let request = || subscribe(CDS, &[], &[]);
        assert_eq!(h.hub.request(&mut h.world, client.id, request(), h.now), Ok(Progress::More));
        assert_eq!(h.world.open_cells(), 0, "the request opens nothing itself");
        let wanted = h.hub.wanted(&h.world, client.id).expect("the catalogue is not open");
        let opened = wanted.open(&mut h.world);
        assert_eq!(h.world.open_cells(), 1);
        if leaves {
            h.hub.disconnect(&mut h.world, client.id);
            h.hub.opened(client.id, opened);
        } else {
            h.hub.opened(client.id, opened);
            // The step that the caller has done is one of the request's; it may do the next ones, too.
            assert_eq!(h.hub.proceed(&mut h.world, client.id, h.now), Ok(Progress::More));
            assert_eq!(h.world.open_cells(), 1);
            let wanted = h.hub.wanted(&h.world, client.id).expect("rows are left");
            let opened = wanted.open(&mut h.world);
            assert_eq!(h.world.open_cells(), 4);
            h.hub.opened(client.id, opened);
            assert_eq!(h.hub.proceed(&mut h.world, client.id, h.now), Ok(Progress::More));
            assert_eq!(h.world.open_cells(), 4, "they are open");
            assert_eq!(proceed(&mut h, client.id), 3);
            assert_eq!(client.drain(&mut h).len(), 1);
            // It is open for the next client.
            let next = Client::new(&mut h, Delta);
            assert_eq!(h.hub.request(&mut h.world, next.id, request(), h.now), Ok(Progress::Done));
            for id in [client.id, next.id] {
                h.disconnect(id);
            }
        }
        while h.hub.close_unused(&mut h.world, 1) {}
        assert_eq!(h.world.open_cells(), 0);
    }
}

#[test]
fn a_move_opens_a_few_cells_at_a_time() {
    for leaves in [false, true] {
        let names = numbered(8);
        let mut h = world(&names, 3);
        for (name, audience) in names.iter().flat_map(|name| [(name, "a"), (name, "b")]) {
            h.world.put(CDS, audience, name, plain(1));
            h.world.put(EDS, audience, name, plain(2));
        }
        h.world.put(CDS, "b", "e07", plain(5));
        h.commit();
        let mut client = Client::new(&mut h, Delta);
        client.subscribe(&mut h, CDS, &[]);
        client.subscribe(&mut h, EDS, &refs(&names));
        client.drain(&mut h);
        let open = h.world.open_cells();
        h.world.relocate(h.world.last_token(), "b");
        let changes = h.world.commit();
        h.apply(changes);
        let (mut steps, mut beside) = (0, 0);
        while h.hub.is_moving(client.id) && !(leaves && steps == 4) {
            if let Some(wanted) = h.hub.wanted_to_move(&h.world) {
                let opened = wanted.open(&mut h.world);
                h.hub.opened_to_move(opened);
                beside += 1;
            }
            let before = h.world.open_cells();
            h.hub.move_some(&mut h.world, 1, h.now);
            assert!(h.world.open_cells() <= before + 3, "a step opens few cells");
            steps += 1;
        }
        assert_eq!(beside, if leaves { 0 } else { 4 }, "the catalogue, which is opened last, and its rows");
        if leaves {
            h.disconnect(client.id);
        } else {
            assert!(steps > 6, "{steps}");
            assert_eq!(client.drain(&mut h), ["CDS e07=5", "EDS e07=2"]);
        }
        while h.hub.close_unused(&mut h.world, 1) {}
        assert_eq!(h.world.open_cells(), if leaves { 0 } else { open }, "what was opened for the move is closed");
    }
}

#[test]
fn names_that_cannot_exist_yet_cost_no_cells() {
    for variant in [Delta, Sotw] {
        let mut h = world(&numbered(1), 2);
        let mut client = Client::new(&mut h, variant);
        client.subscribe(&mut h, EDS, &["e00", "later", "never"]);
        assert_eq!(client.drain(&mut h), ["EDS e00=1 later=0 never=0"]);
        assert_eq!((h.world.open_cells(), h.hub.sizes()[2]), (1, ("names", 1)));
        let mut other = Client::new(&mut h, variant);
        other.subscribe(&mut h, EDS, &["later"]);
        other.drain(&mut h);

        h.change(&[(EDS, "later", 1)]);
        assert_eq!(client.drain(&mut h), ["EDS later=1"]);
        assert_eq!(other.drain(&mut h), ["EDS later=1"]);
        h.change(&[(EDS, "later", 0)]);
        client.drain(&mut h);
        h.change(&[(EDS, "later", 2)]);
        assert_eq!(client.drain(&mut h), ["EDS later=2"]);
        h.disconnect(client.id);
        h.disconnect(other.id);
        assert_eq!(h.world.open_cells(), 0);
        assert!(h.hub.sizes().iter().all(|(_, size)| *size == 0), "{:?}", h.hub.sizes());
    }
}

#[test]
fn a_name_that_appears_for_another_audience_is_not_sent() {
    let mut h = world(&[], 2);
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, EDS, &["x"]);
    // It has not been answered yet when the name appears elsewhere.
    h.world.put(EDS, "b", "x", plain(1));
    h.commit();
    assert_eq!(client.drain(&mut h), ["EDS x=0"]);
    h.change(&[(EDS, "x", 3)]);
    assert_eq!(client.drain(&mut h), ["EDS x=3"]);
}

#[test]
fn a_flood_of_names_ends_the_stream_and_a_reconnect_does_not() {
    let limits = Limits { name_burst: 90, names_per_second: 10, ..Limits::default() };
    let mut h = Harness::with(limits);
    let names = numbered(30);
    let client = Client::new(&mut h, Delta);
    // A client that reconnects sends the names that it has, and that it subscribes to.
    let had: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
    h.request(client.id, crate::client::resume(EDS, &refs(&names), &had)).unwrap();
    h.request(client.id, subscribe(EDS, &refs(&names), &[])).unwrap();
    let error = h.request(client.id, subscribe(EDS, &["a"], &[])).unwrap_err();
    assert_eq!(error.code, Code::ResourceExhausted);
    h.now += Moment::from_secs(1);
    h.request(client.id, subscribe(EDS, &refs(&names)[..10], &[])).unwrap();
}

#[test]
fn repeated_names_do_not_count_in_sotw() {
    let mut h = Harness::with(Limits { name_burst: 34, names_per_second: 1, ..Limits::default() });
    let names = numbered(30);
    let mut client = Client::new(&mut h, Sotw);
    client.subscribe(&mut h, EDS, &refs(&names));
    for _ in 0..100 {
        client.repeat(&mut h, EDS);
    }
    // An eighth counts if they change.
    client.subscribe(&mut h, EDS, &refs(&names)[1..]);
    let changed = sotw(EDS, &refs(&names), "", "");
    assert_eq!(h.request(client.id, changed).unwrap_err().code, Code::ResourceExhausted);
}

proptest! {
    /// Whatever the size of the steps, and wherever a commit falls, the client has the same in the end.
    #[test]
    fn the_result_does_not_depend_on_the_steps(
        opened_together in 1..12usize,
        commit_after in 0..12usize,
        requests in prop::collection::vec((0..12usize, 0..12usize), 1..5),
        changed in 0..10usize,
    ) {
        let names = numbered(10);
        let outcome = |opened_together: usize| {
            let mut h = world(&names[..6], opened_together);
            let client = Client::new(&mut h, Delta);
            let mut steps = 0;
            for (from, until) in &requests {
                let all = refs(&names);
                let (from, until) = ((*from).min(10), (*until).min(10));
                let (wanted, dropped) = if from <= until { (&all[from..until], &[][..]) } else { (&all[..0], &all[until..from]) };
                let request = subscribe(EDS, wanted, dropped);
                let mut progress = h.hub.request(&mut h.world, client.id, request, h.now).unwrap();
                while progress == Progress::More {
                    if steps == commit_after {
                        h.change(&[(EDS, &names[changed], 2)]);
                    }
                    steps += 1;
                    progress = h.hub.proceed(&mut h.world, client.id, h.now).unwrap();
                }
            }
            h.change(&[(EDS, &names[changed], 2)]);
            while h.hub.close_unused(&mut h.world, 1) {}
            let mut has = std::collections::BTreeMap::new();
            for received in h.poll(client.id) {
                has.extend(received.resources.iter().map(|(name, _, body)| (name.clone(), number_of(EDS, body))));
                received.removed.iter().for_each(|name| { has.remove(name); });
            }
            let open = h.world.open_cells();
            h.disconnect(client.id);
            (has, open, h.world.open_cells())
        };
        let (stepwise, at_once) = (outcome(opened_together), outcome(usize::MAX));
        prop_assert_eq!(&stepwise.0, &at_once.0);
        prop_assert!(stepwise.1 == at_once.1 && stepwise.2 == 0 && at_once.2 == 0);
    }

    /// A catalogue that changes while it is opened in steps has its current rows in the end, for all that need it.
    #[test]
    fn a_catalogue_follows_changes_while_it_is_opened(
        opened_together in 1..6usize,
        changes in prop::collection::vec((0..14usize, 0..3u32), 0..8),
        joined in (0..6usize, any::<bool>()),
        leaves in prop::option::of(0..6usize),
    ) {
        let names = numbered(14);
        let mut h = world(&[], opened_together);
        names[..10].iter().for_each(|name| h.world.put(CDS, "a", name, plain(9)));
        h.commit();
        let first = Client::new(&mut h, Delta);
        let mut clients = vec![first.id];
        let mut progress = h.hub.request(&mut h.world, first.id, subscribe(CDS, &[], &[]), h.now).unwrap();
        let mut changes = changes.into_iter();
        for step in 0.. {
            if let Some((at, number)) = changes.next() {
                h.change(&[(CDS, &names[at], number)]);
            }
            if step == joined.0 {
                // Another client begins to open it, too, or needs all of it at once.
                let other = Client::new(&mut h, Delta);
                let begun = h.hub.request(&mut h.world, other.id, subscribe(CDS, &[], &[]), h.now).unwrap();
                if joined.1 && begun == Progress::More {
                    proceed(&mut h, other.id);
                }
                clients.push(other.id);
            }
            if leaves == Some(step) {
                h.hub.disconnect(&mut h.world, first.id);
                clients.remove(0);
                break;
            }
            if progress == Progress::Done && step > joined.0 {
                break;
            }
            progress = h.hub.proceed(&mut h.world, first.id, h.now).unwrap();
        }
        let rest: Vec<(&str, u32)> = changes.map(|(at, number)| (&*names[at], number)).collect();
        rest.into_iter().for_each(|(name, number)| h.change(&[(CDS, name, number)]));
        let current = |h: &mut Harness| -> std::collections::BTreeMap<String, u32> {
            let table = h.world.table(CDS, "a").clone();
            table.into_iter().map(|(name, content)| (name, number_of(CDS, &crate::world::body(CDS, "", &content)))).collect()
        };
        let expected = current(&mut h);
        for id in &clients {
            proceed(&mut h, *id);
            let mut has = std::collections::BTreeMap::new();
            for received in h.poll(*id) {
                has.extend(received.resources.iter().map(|(name, _, body)| (name.clone(), number_of(CDS, body))));
                received.removed.iter().for_each(|name| { has.remove(name); });
            }
            prop_assert_eq!(&has, &expected);
        }
        clients.into_iter().for_each(|id| h.disconnect(id));
        while h.hub.close_unused(&mut h.world, 1) {}
        prop_assert_eq!(h.world.open_cells(), 0);
    }
}
