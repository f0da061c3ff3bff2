//! Turns of the world's thread, without the thread.

use envoy::types::ROUTE;
use protos::envoy::config::core::v3::Node;
use registry::inputs::MeshSettings;
use tokio::sync::{Semaphore, oneshot};
use xds::decode::Body;
use xds::{Request, Variant};

use super::*;
use crate::metrics::Snapshot;

type Received = mpsc::Receiver<Down>;

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

fn turn(core: &mut Core, messages: Vec<Message>) {
    let mut messages = VecDeque::from(messages);
    core.turn(&mut messages);
    while !messages.is_empty() {
        core.turn(&mut messages);
    }
}

fn connect(core: &mut Core, number: usize) -> (StreamId, Received) {
    let node =
        Node { id: format!("sidecar~10.0.0.{number}~pod-{number}.shop~shop.svc.cluster.local"), ..Node::default() };
    let proxy = Box::new(envoy::parse_node(&node).expect("a sidecar"));
    let ((down, received), (reply, mut answer)) = (mpsc::channel(8), oneshot::channel());
    turn(core, vec![Message::Connect { proxy, variant: Variant::Delta, down, reply }]);
    let id = answer.try_recv().ok().and_then(Result::ok).expect("admitted");
    (id, received)
}

fn routes(id: StreamId, subscribe: &[&str], unsubscribe: &[&str]) -> Message {
    let (subscribe, unsubscribe) = (subscribe.iter().copied().collect(), unsubscribe.iter().copied().collect());
    let body = Body::Delta { subscribe, unsubscribe, initial: Default::default() };
    let request = Request { type_url: ROUTE.type_url.to_owned(), body, ..Request::default() };
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
    Message::Request(id, (Box::new(request), Place(place, Default::default())))
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
    core.turn(&mut messages.into());
    assert!(has_response(&mut to_small));
    assert!(!has_response(&mut to_large) && core.is_busy());
    while core.is_busy() {
        core.turn(&mut VecDeque::new());
    }
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
    let mut messages: VecDeque<Message> = streams.iter().map(|(id, _)| Message::Disconnect(*id)).collect();
    let (id, mut to) = connect(&mut core, 99);
    messages.push_back(routes(id, &["80"], &[]));
    while !has_response(&mut to) {
        core.turn(&mut messages);
    }
    while core.is_busy() {
        core.turn(&mut messages);
    }
    assert_eq!((core.hub.len(), core.streams.len()), (1, 1));
    // A request of a stream that has ended is ignored.
    turn(&mut core, vec![routes(streams[0].0, &["80"], &[]), Message::Disconnect(id)]);
    while core.is_busy() {
        core.turn(&mut messages);
    }
    assert!(core.hub.is_empty());
    assert!(core.hub.sizes().iter().all(|(_, size)| *size == 0), "{:?}", core.hub.sizes());
}
