//! Resources that clients subscribe to by collection (the virtual hosts of a route table).

use std::collections::{BTreeMap, BTreeSet};

use model::proxy::ProxyKind;
use proptest::prelude::*;
use xds::StreamId;
use xds::Variant::Delta;

use crate::client::{Client, borrow, resume, versions};
use crate::harness::*;
use crate::world::{Audience, plain};

/// Table `80` with hosts `a` and `b`, table `81` with host `a`.
fn tables() -> Harness {
    let mut h = Harness::small();
    h.change(&[(VHDS, "80/a", 1), (VHDS, "80/b", 1), (VHDS, "81/a", 1)]);
    h
}

#[test]
fn a_collection_is_sent_whole_and_then_by_changes() {
    let mut h = tables();
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["80"]);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=1 80/b=1"]);
    client.ack(&mut h, VHDS);
    h.change(&[(VHDS, "80/b", 2), (VHDS, "81/a", 2)]);
    assert_eq!(client.take(&mut h), ["VHDS 80/b=2"]);
    client.ack(&mut h, VHDS);
    h.change(&[(VHDS, "80/c", 3), (VHDS, "80/a", 0)]);
    assert_eq!(client.take(&mut h), ["VHDS 80/c=3 -80/a"]);
    client.ack(&mut h, VHDS);
    h.change(&[(VHDS, "80/a", 4)]);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=4"], "it was added again");
    client.ack(&mut h, VHDS);
    // Another client that subscribes later gets the same collection.
    let mut other = Client::settled(&mut h, Delta);
    other.subscribe(&mut h, VHDS, &["80", "81"]);
    assert_eq!(other.take(&mut h), ["VHDS 80/a=4 80/b=2 80/c=3 81/a=2"]);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn collection_names_are_not_prefixes() {
    let mut h = tables();
    h.change(&[(VHDS, "8/a", 1), (VHDS, "80-x/a", 1), (VHDS, "80/u/a", 1)]);
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["80"]);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=1 80/b=1"]);
    client.ack(&mut h, VHDS);
    h.change(&[(VHDS, "8/a", 2), (VHDS, "80-x/a", 2), (VHDS, "80/u/a", 2)]);
    assert_eq!(client.take(&mut h), [""; 0]);
}

#[test]
fn collections_can_be_added_and_removed() {
    let mut h = tables();
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["80"]);
    client.drain(&mut h);
    client.subscribe(&mut h, VHDS, &["81"]);
    assert_eq!(client.take(&mut h), ["VHDS 81/a=1"]);
    client.ack(&mut h, VHDS);
    client.unsubscribe(&mut h, VHDS, &["80"]);
    h.change(&[(VHDS, "80/a", 2), (VHDS, "81/a", 2)]);
    assert_eq!(client.take(&mut h), ["VHDS 81/a=2"]);
    client.ack(&mut h, VHDS);
    client.subscribe(&mut h, VHDS, &["80"]);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=2 80/b=1"], "the client may have dropped it");
}

#[test]
fn an_empty_collection_is_answered_and_updated_later() {
    let mut h = tables();
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["82"]);
    assert_eq!(client.take(&mut h), ["VHDS"]);
    client.ack(&mut h, VHDS);
    h.change(&[(VHDS, "82/a", 1)]);
    assert_eq!(client.take(&mut h), ["VHDS 82/a=1"]);
}

#[test]
fn a_reconnecting_client_is_sent_the_difference() {
    let mut h = tables();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["80"]);
    let had = h.poll(client.id).remove(0);
    let versions: Vec<(String, String)> = had.resources.iter().map(|(n, v, _)| (n.clone(), v.clone())).collect();
    let mut had: Vec<(&str, &str)> = versions.iter().map(|(name, version)| (&**name, &**version)).collect();
    had.push(("80/gone", "1"));
    h.change(&[(VHDS, "80/b", 2), (VHDS, "80/c", 1)]);
    let again = h.connect_as(ProxyKind::Sidecar, Delta);
    h.request(again, resume(VHDS, &["80"], &had)).unwrap();
    let answer: Vec<String> = h.poll(again).iter().map(show).collect();
    assert_eq!(answer, ["VHDS 80/b=2 80/c=1 -80/gone"]);
}

#[test]
fn virtual_hosts_wait_for_clusters_and_removed_clusters_for_virtual_hosts() {
    let mut h = tables();
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["80"]);
    client.drain(&mut h);
    h.change(&[(VHDS, "80/a", 2), (CDS, "c", 1), (EDS, "c", 1)]);
    assert_eq!(client.take(&mut h), ["CDS c=1"]);
    client.subscribe(&mut h, EDS, &["c"]);
    client.ack(&mut h, CDS);
    assert_eq!(client.take(&mut h), ["EDS c=1"]);
    client.ack(&mut h, EDS);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=2"]);
    client.ack(&mut h, VHDS);
    h.change(&[(VHDS, "80/a", 3), (CDS, "c", 0)]);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=3"]);
    client.ack(&mut h, VHDS);
    assert_eq!(client.take(&mut h), ["CDS -c"]);
}

/// Route tables `80` and `81`, of which a client subscribes to the first, and the virtual hosts of both.
fn following() -> (Harness, Client) {
    let mut h = tables();
    h.change(&[(RDS, "80", 1), (RDS, "81", 1)]);
    let mut client = Client::settled(&mut h, Delta);
    client.subscribe(&mut h, RDS, &["80"]);
    assert_eq!(client.take(&mut h), ["RDS 80=1"]);
    // Like Envoy: it reads the table, subscribes to its virtual hosts, and then accepts the table.
    client.subscribe(&mut h, VHDS, &[]);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=1 80/b=1"]);
    client.ack(&mut h, RDS);
    client.ack(&mut h, VHDS);
    assert_eq!(client.take(&mut h), [""; 0]);
    (h, client)
}

#[test]
fn a_subscription_without_names_follows_the_route_tables() {
    let (mut h, mut client) = following();
    h.change(&[(VHDS, "80/b", 2), (VHDS, "81/a", 2)]);
    assert_eq!(client.take(&mut h), ["VHDS 80/b=2"]);
    client.ack(&mut h, VHDS);
    client.subscribe(&mut h, RDS, &["81"]);
    assert_eq!(client.take(&mut h), ["RDS 81=1"], "the table is sent first");
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["VHDS 81/a=2"]);
    client.ack(&mut h, VHDS);
    client.unsubscribe(&mut h, RDS, &["80"]);
    h.change(&[(VHDS, "80/a", 3), (VHDS, "81/a", 3)]);
    assert_eq!(client.take(&mut h), ["VHDS 81/a=3"]);
    client.ack(&mut h, VHDS);
    client.subscribe(&mut h, RDS, &["80"]);
    assert_eq!(client.take(&mut h), ["RDS 80=1"]);
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=3 80/b=2"]);
}

#[test]
fn virtual_hosts_are_sent_again_after_their_table() {
    let (mut h, mut client) = following();
    h.change(&[(RDS, "80", 2)]);
    assert_eq!(client.take(&mut h), ["RDS 80=2"]);
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["VHDS 80/a=1 80/b=1"]);
}

/// A table is sent again, and the stream ends before its virtual hosts are. The client has them, but maybe not in the
/// table.
#[test]
fn virtual_hosts_are_sent_again_if_the_stream_broke_after_their_table() {
    for answered in [false, true] {
        let (mut h, mut client) = following();
        h.change(&[(RDS, "80", 2)]);
        assert_eq!(client.take(&mut h), ["RDS 80=2"]);
        if answered {
            client.ack(&mut h, RDS);
        }
        let (routes, hosts) = (versions(&h, client.id, RDS), versions(&h, client.id, VHDS));
        h.disconnect(client.id);
        for brought in ["VHDS 80/a=1 80/b=1", "VHDS"] {
            let mut client = Client::new(&mut h, Delta);
            h.request(client.id, resume(RDS, &["80", "r"], &borrow(&routes))).unwrap();
            h.request(client.id, resume(VHDS, &[], &borrow(&hosts))).unwrap();
            assert_eq!(client.drain(&mut h), ["RDS", brought], "{answered}");
            h.disconnect(client.id);
        }
    }
}

#[test]
fn a_reconnecting_client_without_names_is_sent_the_difference() {
    let (mut h, client) = following();
    let (routes, hosts) = (versions(&h, client.id, RDS), versions(&h, client.id, VHDS));
    h.change(&[(VHDS, "80/b", 0), (VHDS, "80/c", 1)]);
    let mut again = Client::new(&mut h, Delta);
    h.request(again.id, resume(LDS, &[], &[])).unwrap();
    h.request(again.id, resume(RDS, &["80", "r"], &borrow(&routes))).unwrap();
    h.request(again.id, resume(VHDS, &[], &borrow(&hosts))).unwrap();
    let answer = again.drain(&mut h);
    let expected = ["RDS", "VHDS 80/c=1 -80/b"];
    assert_eq!(answer[1..], expected, "removals wait until the table is answered");
}

#[test]
fn unsubscribed_collections_are_closed() {
    let mut h = tables();
    let before = h.world.open_cells();
    let mut client = Client::new(&mut h, Delta);
    client.subscribe(&mut h, VHDS, &["80", "81"]);
    client.drain(&mut h);
    client.unsubscribe(&mut h, VHDS, &["81"]);
    assert!(h.world.open_cells() > before);
    h.disconnect(client.id);
    assert_eq!(h.world.open_cells(), before);
}

const AUDIENCES: [Audience; 2] = ["a", "b"];
const TABLES: [&str; 2] = ["t", "u"];
const HOSTS: [&str; 3] = ["x", "y", "z"];

#[derive(Clone, Debug)]
enum Step {
    /// Changes a host; a number of 0 removes it.
    Host {
        audience: usize,
        table: usize,
        host: usize,
        number: u32,
    },
    Commit,
    /// The client reads one response, and accepts or rejects it.
    Read {
        client: usize,
        refuse: bool,
    },
    Subscribe {
        client: usize,
        table: usize,
    },
    Unsubscribe {
        client: usize,
        table: usize,
    },
    Move {
        client: usize,
        audience: usize,
    },
    Reconnect {
        client: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let (two, three) = (0..2usize, 0..3usize);
    prop_oneof![
        4 => (two.clone(), two.clone(), three, 0..4u32)
            .prop_map(|(audience, table, host, number)| Step::Host { audience, table, host, number }),
        3 => Just(Step::Commit),
        4 => (two.clone(), any::<bool>()).prop_map(|(client, refuse)| Step::Read { client, refuse }),
        1 => (two.clone(), two.clone()).prop_map(|(client, table)| Step::Subscribe { client, table }),
        1 => (two.clone(), two.clone()).prop_map(|(client, table)| Step::Unsubscribe { client, table }),
        1 => (two.clone(), two.clone()).prop_map(|(client, audience)| Step::Move { client, audience }),
        1 => two.prop_map(|client| Step::Reconnect { client }),
    ]
}

/// A client's resources and subscriptions.
struct Holder {
    id: StreamId,
    token: u64,
    subscribed: BTreeSet<&'static str>,
    has: BTreeMap<String, (String, u32)>,
}

impl Holder {
    fn connect(h: &mut Harness, before: Option<&Holder>) -> Holder {
        let id = h.connect_as(ProxyKind::Sidecar, Delta);
        let mut holder = Holder {
            id,
            token: h.world.last_token(),
            subscribed: before.map_or_else(|| TABLES[..1].iter().copied().collect(), |b| b.subscribed.clone()),
            has: before.map(|b| b.has.clone()).unwrap_or_default(),
        };
        let names: Vec<&str> = holder.subscribed.iter().copied().collect();
        let had: Vec<(&str, &str)> = holder.has.iter().map(|(name, (version, _))| (&**name, &**version)).collect();
        // A client without names and resources would not subscribe.
        if names.is_empty() {
            holder.subscribed.insert(TABLES[0]);
            h.request(id, subscribe(VHDS, &TABLES[..1], &[])).unwrap();
        } else {
            h.request(id, resume(VHDS, &names, &had)).unwrap();
        }
        holder
    }

    /// Reads one response. Returns whether there was one.
    fn read(&mut self, h: &mut Harness, refuse: bool) -> bool {
        let Some(received) = h.poll(self.id).into_iter().next() else {
            return false;
        };
        let mut answer = delta(VHDS);
        answer.nonce = received.nonce.clone();
        if refuse {
            answer.error = Some("no".to_owned());
        } else {
            for (name, version, body) in &received.resources {
                // It drops resources that it does not subscribe to any more.
                if self.wants(name) {
                    self.has.insert(name.clone(), (version.clone(), number_of(VHDS, body)));
                }
            }
            for name in &received.removed {
                self.has.remove(name);
            }
        }
        h.request(self.id, answer).unwrap();
        true
    }

    fn wants(&self, name: &str) -> bool {
        name.split_once('/').is_some_and(|(table, _)| self.subscribed.contains(table))
    }
}

/// In the end, clients have the current resources.
fn run(steps: Vec<Step>) {
    let mut h = Harness::small();
    let mut clients = [Holder::connect(&mut h, None), Holder::connect(&mut h, None)];
    for step in steps {
        match step {
            Step::Host { audience, table, host, number } => {
                let name = format!("{}/{}", TABLES[table], HOSTS[host]);
                match number {
                    0 => h.world.remove(VHDS, AUDIENCES[audience], &name),
                    _ => h.world.put(VHDS, AUDIENCES[audience], &name, plain(number)),
                }
            }
            Step::Commit => h.commit(),
            Step::Read { client, refuse } => {
                clients[client].read(&mut h, refuse);
            }
            Step::Subscribe { client, table } => {
                let client = &mut clients[client];
                client.subscribed.insert(TABLES[table]);
                h.request(client.id, subscribe(VHDS, &[TABLES[table]], &[])).unwrap();
            }
            Step::Unsubscribe { client, table } => {
                let client = &mut clients[client];
                client.subscribed.remove(TABLES[table]);
                let subscribed = client.subscribed.clone();
                client.has.retain(|name, _| name.split_once('/').is_some_and(|(t, _)| subscribed.contains(t)));
                h.request(client.id, subscribe(VHDS, &[], &[TABLES[table]])).unwrap();
            }
            Step::Move { client, audience } => h.world.relocate(clients[client].token, AUDIENCES[audience]),
            Step::Reconnect { client } => {
                h.disconnect(clients[client].id);
                clients[client] = Holder::connect(&mut h, Some(&clients[client]));
            }
        }
    }
    h.commit();
    // Rejected resources are sent again when they change.
    for audience in AUDIENCES {
        for content in h.world.table(VHDS, audience).values_mut() {
            content.number += 10;
        }
        for table in TABLES {
            h.world.put(VHDS, audience, &format!("{table}/last"), plain(9));
        }
    }
    h.commit();
    for client in &mut clients {
        while client.read(&mut h, false) {}
        let audience = h.world.audience_of(client.token);
        let there: BTreeMap<String, u32> =
            h.world.table(VHDS, audience).iter().map(|(n, c)| (n.clone(), c.number)).collect();
        let there: BTreeMap<String, u32> = there.into_iter().filter(|(name, _)| client.wants(name)).collect();
        let has: BTreeMap<String, u32> = client.has.iter().map(|(name, (_, number))| (name.clone(), *number)).collect();
        assert_eq!(has, there);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn clients_converge(steps in proptest::collection::vec(step(), 1..60)) {
        run(steps);
    }
}

/// While a response is outstanding, the client's route table changes from one with VHDS to one that includes its
/// virtual hosts.
#[test]
fn virtual_hosts_are_removed_after_the_table_that_includes_them() {
    let (mut h, mut client) = following();
    for kind in [CDS, EDS, LDS] {
        let same: Vec<_> = h.world.table(kind, "a").clone().into_iter().collect();
        for (name, content) in same {
            h.world.put(kind, "b", &name, content);
        }
    }
    h.world.put(RDS, "b", "80", plain(5));
    h.world.put(RDS, "b", "r", plain(5));
    h.commit();
    h.change(&[(RDS, "80", 2)]);
    assert_eq!(client.take(&mut h), ["RDS 80=2"]);
    let token = h.world.last_token();
    h.world.relocate(token, "b");
    h.commit();
    assert_eq!(client.take(&mut h), [""; 0], "the client has not answered for the table");
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["RDS 80=5 r=5"]);
    client.ack(&mut h, RDS);
    assert_eq!(client.take(&mut h), ["VHDS -80/a -80/b"]);
}
