//! Turns of the world's thread, without the thread.

use envoy::types::{CLUSTER, ROUTE};
use protos::envoy::config::core::v3::Node;
use registry::inputs::MeshSettings;
use tokio::sync::{Semaphore, oneshot};
use xds::decode::Body;
use xds::{Request, Variant};

use super::*;
use crate::metrics::Snapshot;
use crate::world_handle::down_queue;

type Received = mpsc::Receiver<Down>;

/// The number of served types.
const TYPES: usize = 8;

fn core(limits: Limits) -> Core {
    let mesh = MeshSettings {
        config: MeshConfig::default(),
        domain: "cluster.local".into(),
        cluster_id: "Kubernetes".into(),
        sharing: Default::default(),
        features: Default::default(),
        assigned_addresses: true,
    };
    let watched = (watch::channel(Names::default()).0, watch::channel(Arc::default()).0, Configuration::default());
    Core::new(World::new(mesh, 1), limits, Pace::UNLIMITED, Instant::now(), watched)
}

fn inbox(messages: impl IntoIterator<Item = Message>) -> Inbox {
    let mut inbox = Inbox::new(mpsc::channel(1).1);
    inbox.put_back(messages.into_iter().collect());
    inbox
}

fn turn(core: &mut Core, messages: Vec<Message>) {
    let mut inbox = inbox(messages);
    core.turn(&mut inbox);
    while !inbox.is_empty() {
        core.turn(&mut inbox);
    }
}

/// Turns until nothing is left to do.
fn rest(core: &mut Core) {
    while core.is_busy() {
        core.turn(&mut inbox([]));
    }
}

/// A message by which a proxy connects, its responses, and whether it is admitted.
fn connecting(number: usize) -> (Message, (Received, oneshot::Receiver<Result<StreamId, Status>>)) {
    let node =
        Node { id: format!("sidecar~10.0.0.{number}~pod-{number}.shop~shop.svc.cluster.local"), ..Node::default() };
    let proxy = Box::new(envoy::parse_node(&node).expect("a sidecar"));
    let ((down, received), (reply, answer)) = (mpsc::channel(down_queue(TYPES)), oneshot::channel());
    (Message::Connect(Connect { proxy, variant: Variant::Delta, down, reply }), (received, answer))
}

fn admitted(mut answer: oneshot::Receiver<Result<StreamId, Status>>) -> StreamId {
    answer.try_recv().ok().and_then(Result::ok).expect("admitted")
}

fn connect(core: &mut Core, number: usize) -> (StreamId, Received) {
    let (message, (received, answer)) = connecting(number);
    turn(core, vec![message]);
    (admitted(answer), received)
}

fn routes(id: StreamId, subscribe: &[&str], unsubscribe: &[&str]) -> Message {
    Message::Request(id, delta(ROUTE.type_url, subscribe, unsubscribe, ""))
}

fn clusters(id: StreamId, nonce: &str) -> Message {
    request(id, CLUSTER.type_url, &[], nonce)
}

fn request(id: StreamId, type_url: &str, subscribe: &[&str], nonce: &str) -> Message {
    Message::Request(id, delta(type_url, subscribe, &[], nonce))
}

fn delta(type_url: &str, subscribe: &[&str], unsubscribe: &[&str], nonce: &str) -> QueuedRequest {
    let (subscribe, unsubscribe) = (subscribe.iter().copied().collect(), unsubscribe.iter().copied().collect());
    let body = Body::Delta { subscribe, unsubscribe, initial: Default::default() };
    let request = Request { type_url: type_url.to_owned(), nonce: nonce.to_owned(), body, ..Request::default() };
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
    (Box::new(request), Place(place, Default::default()))
}

fn has_response(received: &mut Received) -> bool {
    matches!(received.try_recv(), Ok(Down::Message(_)))
}

#[test]
fn a_large_request_does_not_hold_up_another_client() {
    let mut core = core(Limits { opened_together: 1, opened_at_once: 1, ..Limits::default() });
    let (large, mut to_large) = connect(&mut core, 1);
    let (small, mut to_small) = connect(&mut core, 2);
    let messages =
        vec![routes(large, &["80", "81", "82"], &[]), routes(large, &[], &["81"]), routes(small, &["80"], &[])];
    core.turn(&mut inbox(messages));
    assert!(has_response(&mut to_small));
    assert!(!has_response(&mut to_large) && core.is_busy());
    rest(&mut core);
    assert!(has_response(&mut to_large));
    let status = core.hub.status(large).expect("connected");
    assert_eq!(status.watches[0].names, Some(2), "the next request was handled, too");
    let text = Snapshot::of(&core).text("test", &[]);
    assert!(text.contains("# TYPE rutter_world_step_seconds histogram"), "{text}");
    assert!(text.contains("rutter_world_step_seconds_count{step=\"connect\"} 2"), "{text}");
}

#[test]
fn streams_that_end_are_removed_between_other_work() {
    let mut core = core(Limits::default());
    let streams: Vec<(StreamId, Received)> = (0..20).map(|number| connect(&mut core, number)).collect();
    let requests = streams.iter().map(|(id, _)| routes(*id, &["80"], &[]));
    turn(&mut core, requests.collect());
    let (id, mut to) = connect(&mut core, 99);
    let ends = streams.iter().map(|(id, _)| Message::Disconnect(*id));
    let mut messages = inbox(ends.chain([routes(id, &["80"], &[])]));
    while !has_response(&mut to) {
        core.turn(&mut messages);
    }
    rest(&mut core);
    assert_eq!((core.hub.len(), core.streams.open.len()), (1, 1));
    // A request of a stream that has ended is ignored.
    turn(&mut core, vec![routes(streams[0].0, &["80"], &[]), Message::Disconnect(id)]);
    rest(&mut core);
    assert!(core.hub.is_empty());
    assert!(core.hub.sizes().iter().all(|(_, size)| *size == 0), "{:?}", core.hub.sizes());
}

#[test]
fn proxies_that_connect_together_cost_one_commit() {
    let mut core = core(Limits::default());
    let before = core.served.world.engine().epoch();
    let (messages, answers): (Vec<Message>, Vec<_>) = (0..20).map(connecting).unzip();
    turn(&mut core, messages);
    let ids: Vec<StreamId> = answers.into_iter().map(|(_, answer)| admitted(answer)).collect();
    assert_eq!((core.hub.len(), core.served.world.engine().epoch() - before), (20, 1));
    turn(&mut core, ids.into_iter().map(Message::Disconnect).collect());
    rest(&mut core);
    assert_eq!((core.hub.len(), core.served.world.engine().epoch() - before), (0, 2));
}

#[test]
fn answers_are_taken_while_a_commit_runs_and_other_messages_wait_in_order() {
    let mut core = core(Limits::default());
    let [(answering, mut to_answering), (asking, mut to_asking)] = [connect(&mut core, 1), connect(&mut core, 2)];
    turn(&mut core, vec![clusters(answering, ""), clusters(asking, "")]);
    assert!(has_response(&mut to_answering) && has_response(&mut to_asking));
    let nonce = |core: &Core, id| {
        let status = core.hub.status(id).expect("connected");
        status.watches[0].sent.clone().expect("a response").nonce
    };
    let (first, second) = (nonce(&core, answering), nonce(&core, asking));
    let mut inbox = inbox([
        clusters(answering, &first),
        Message::Commit(Batch::new(), Observations::new()),
        routes(asking, &["80"], &[]),
        // It is an ACK, but comes after a request of its stream that waits.
        clusters(asking, &second),
    ]);
    let turns = std::cell::Cell::new(0);
    let mut gathered = Gathered::default();
    core.clients().serve_until(|| turns.replace(turns.get() + 1) > 3, &mut inbox, &mut gathered);
    let is_acked = |core: &Core, id| core.hub.status(id).expect("connected").watches[0].acked.is_some();
    assert!(is_acked(&core, answering) && !is_acked(&core, asking) && !gathered.is_empty());
    core.turn(&mut inbox);
    assert!(is_acked(&core, asking) && has_response(&mut to_asking) && inbox.is_empty());
}

#[test]
fn the_queue_of_a_stream_has_room_for_all_types_and_the_end() {
    let mut core = core(Limits::default());
    let types: Vec<_> = core.hub.types().iter().collect();
    assert_eq!(types.len(), TYPES);
    let (message, (mut received, answer)) = connecting(1);
    turn(&mut core, vec![message]);
    let id = admitted(answer);
    let asked = types.iter().map(|kind| request(id, kind.type_url, if kind.is_wildcard() { &[] } else { &["a"] }, ""));
    turn(&mut core, asked.collect());
    core.clients().end(id, Status::new(Status::OK, ""));
    let mut last = None;
    while let Ok(down) = received.try_recv() {
        last = Some(down);
    }
    assert!(matches!(last, Some(Down::End(_))), "{last:?}");
}
