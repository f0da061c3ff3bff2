//! Changes of endpoints while a commit runs.

use config::{ParseOptions, parse_documents};
use envoy::types::ENDPOINTS;
use model::xds::Resource;

use super::*;
use crate::ahead::Ahead;
use crate::served_world::Changes;

const CLUSTER_NAME: &str = "outbound|80||reviews.shop.svc.cluster.local";
const SERVICE: &str = "apiVersion: v1\nkind: Service\nmetadata: { name: reviews, namespace: shop }\n\
                       spec: { clusterIP: 10.9.0.1, ports: [{ name: http, port: 80 }] }\n";

fn batch(text: &str) -> Batch {
    let mut batch = Batch::new();
    parse_documents(text.as_bytes(), "f", &ParseOptions::default()).objects.into_iter().for_each(|one| batch.put(one));
    batch
}

fn endpoint(address: &str) -> Batch {
    batch(&format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n\
         metadata: {{ name: reviews, namespace: shop, labels: {{ kubernetes.io/service-name: reviews }} }}\n\
         ports: [{{ name: http, port: 8080 }}]\nendpoints: [{{ addresses: [{address}] }}]\n"
    ))
}

fn change(batch: Batch) -> Message {
    Message::Commit(batch, Observations::new())
}

/// A client with the endpoints of a service, which it has acknowledged.
fn client() -> (Core, StreamId, Received) {
    let mut core = core(Limits::default());
    turn(&mut core, vec![change(batch(SERVICE)), change(endpoint("10.1.0.1"))]);
    let (id, mut received) = connect(&mut core, 1);
    turn(&mut core, vec![request(id, ENDPOINTS.type_url, &[CLUSTER_NAME], "")]);
    assert!(has_response(&mut received));
    acknowledge(&mut core, id);
    (core, id, received)
}

fn acknowledge(core: &mut Core, id: StreamId) {
    let status = core.hub.status(id).expect("connected");
    let nonce = status.watches[0].sent.clone().expect("a response").nonce;
    turn(core, vec![request(id, ENDPOINTS.type_url, &[], &nonce)]);
}

/// Does work of a commit when the client has received the new endpoint, which arrives while the commit runs.
fn beside_endpoint<T: Send>(
    core: &mut Core,
    received: &mut Received,
    work: impl FnOnce(&mut ServedWorld) -> T + Send,
) -> std::thread::Result<T> {
    let start = Instant::now();
    core.ahead = Some(Ahead::new(core.served.world.fork()));
    core.beside(&mut inbox([change(endpoint("10.1.0.2"))]), |served| {
        while !has_response(received) {
            assert!(start.elapsed() < Duration::from_secs(60), "the endpoint was not sent");
            std::thread::yield_now();
        }
        work(served)
    })
}

/// Commits a batch when the client has received the new endpoint, which arrives while the commit runs.
fn commit_after_endpoint(core: &mut Core, received: &mut Received, long: Batch) {
    let start = Instant::now();
    let changes = beside_endpoint(core, received, |served| served.world.commit(long));
    let mut changes = core.committed(changes.expect("no panic"), start);
    let (later, lane) = core.catch_up(&mut inbox([])).expect("no panic");
    assert!(core.ahead.is_none() && lane.batch.is_none() && lane.since.is_some());
    changes.append(later.expect("the endpoint is committed to the world"));
    core.apply(changes, Default::default(), &mut inbox([]));
    assert!(core.gathered.is_empty());
    core.served.world.check().expect("the world has all changes");
}

#[test]
fn endpoints_are_sent_while_a_commit_runs_and_not_again() {
    let (mut core, id, mut received) = client();
    commit_after_endpoint(&mut core, &mut received, batch(&SERVICE.replace("reviews", "ratings")));
    acknowledge(&mut core, id);
    rest(&mut core);
    assert!(!has_response(&mut received), "the world has what was sent");
    turn(&mut core, vec![change(endpoint("10.1.0.1"))]);
    assert!(has_response(&mut received), "later changes are sent");
}

#[test]
fn the_long_commit_has_the_last_word() {
    let (mut core, id, mut received) = client();
    let mut removal = Batch::new();
    removal.remove(&config::ObjectKey::new(config::Kind::Service, "shop", "reviews"));
    commit_after_endpoint(&mut core, &mut received, removal);
    acknowledge(&mut core, id);
    rest(&mut core);
    assert!(has_response(&mut received), "the service has no endpoints any more");
}

#[test]
fn changes_of_a_fork_are_not_lost_if_the_commit_panics() {
    let (mut core, _, mut received) = client();
    let panic = beside_endpoint(&mut core, &mut received, |_| -> () { panic!("bang") });
    core.fail_commit("a commit", panic.expect_err("it panicked"));
    rest(&mut core);
    let (id, mut received) = connect(&mut core, 2);
    turn(&mut core, vec![request(id, ENDPOINTS.type_url, &[CLUSTER_NAME], "")]);
    let Ok(Down::Message(response)) = received.try_recv() else { panic!("no response") };
    let bytes: Vec<u8> = response.pieces().flat_map(|piece| piece.to_vec()).collect();
    assert!(bytes.windows(8).any(|part| part == b"10.1.0.2"), "the endpoint is committed after the repair");
}

#[test]
fn endpoints_do_not_overtake_their_pods() {
    let pod =
        "apiVersion: v1\nkind: Pod\nmetadata: { name: reviews-1, namespace: shop }\nstatus: { podIP: 10.1.0.2 }\n";
    assert!(Ahead::is_safe_during(&batch(SERVICE)) && Ahead::is_safe_during(&endpoint("10.1.0.2")));
    assert!(!Ahead::is_safe_during(&batch(&format!("{SERVICE}---\n{pod}"))));
    let mut relisted = Batch::new();
    relisted.replace(Default::default(), "".into(), Default::default());
    assert!(!Ahead::is_safe_during(&relisted));
}

#[test]
fn clients_are_served_while_a_long_commit_is_applied() {
    let (mut core, id, mut received) = client();
    let resource = core.hub.resources(id, ENDPOINTS).pop().expect("the endpoints");
    let proxy = core.hub.proxy(id).expect("connected").id.clone();
    let cell = core.hub.cell(&proxy, ENDPOINTS, CLUSTER_NAME).expect("subscribed to");
    let other = |number: usize| Resource::new(CLUSTER_NAME, number.to_le_bytes().to_vec());
    let (reply, mut answer) = oneshot::channel();
    let resources = (0..50_000).map(other).chain([resource]).map(|resource| (cell, Some(resource))).collect();
    let changes = Changes { resources, ..Changes::default() };
    core.apply(changes, Default::default(), &mut inbox([Message::Check(reply)]));
    assert_eq!(answer.try_recv(), Ok(Ok(())), "the question was answered between two steps");
    assert!(!has_response(&mut received), "nothing is sent before the last step");
    rest(&mut core);
    assert!(has_response(&mut received));
}
