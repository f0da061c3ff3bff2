//! Turns of the world's thread, without the thread.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};

use config::MeshConfig;
use envoy::types::{CLUSTER, ROUTE};
use model::audience::ResourceKey;
use model::xds::{ResourceType, TypeSpec};
use protos::envoy::config::core::v3::Node;
use registry::inputs::{MeshDefaults, MeshSettings};
use tokio::sync::{Semaphore, oneshot};
use traffic::audience::ProxyAudiences;
use traffic::serving::{NoList, ServedType};
use xds::decode::Body;
use xds::{Request, Variant};

use super::*;
use crate::log::tests::lines_of;
use crate::metrics::Snapshot;
use crate::world_handle::down_queue;

mod ahead;

pub(crate) type Received = mpsc::Receiver<Down>;

/// The number of served types.
const TYPES: usize = 9;

fn mesh(root_namespace: &str) -> MeshSettings {
    MeshSettings {
        config: MeshConfig { root_namespace: root_namespace.into(), ..MeshConfig::default() },
        ..MeshSettings::default()
    }
}

/// A key that panics where the engine does not expect it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Explosive(Arc<str>);

/// Whether a root namespace `once` has panicked.
static EXPLODED: AtomicBool = AtomicBool::new(false);

impl Hash for Explosive {
    fn hash<H: Hasher>(&self, state: &mut H) {
        assert!(*self.0 != *"always" && (*self.0 != *"once" || EXPLODED.swap(true, Ordering::SeqCst)), "bang");
        self.0.hash(state);
    }
}

flow::index! {
    Explosives: Explosive => members of MeshDefaults = "explosives", explosive_of;
}

fn explosive_of(_: &(), settings: &Arc<MeshSettings>) -> Vec<Explosive> {
    vec![Explosive(settings.config.root_namespace.clone())]
}

fn set_root_namespace(name: &str) -> Message {
    let mut batch = Batch::new();
    batch.set_mesh(mesh(name));
    Message::Commit(batch, Observations::new())
}

/// The status with which a stream was ended.
fn ended(received: &mut Received) -> Option<Status> {
    std::iter::from_fn(|| received.try_recv().ok()).find_map(|down| match down {
        Down::End(status) => Some(*status),
        Down::Message(_) => None,
    })
}

fn core(limits: Limits) -> Core {
    core_of(
        World::with(mesh("istio-system"), 1, |rules, _| {
            rules.index::<Explosives>();
        }),
        limits,
    )
}

fn core_of(world: World, limits: Limits) -> Core {
    Core::new(world, limits, Pace::UNLIMITED, Instant::now(), Watched::default())
}

fn inbox(messages: impl IntoIterator<Item = Message>) -> Inbox {
    let mut inbox = Inbox::new(mpsc::channel(1).1);
    inbox.put_back(messages.into_iter().collect());
    inbox
}

/// Turns until the messages are handled.
fn turn(core: &mut Core, messages: Vec<Message>) {
    let mut inbox = inbox(messages);
    core.turn(&mut inbox);
    while !inbox.is_empty() || !core.streams.partial.is_empty() || core.hub.has_woken() {
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
pub(crate) fn connecting(number: usize) -> (Message, (Received, oneshot::Receiver<Result<StreamId, Status>>)) {
    let ip = format!("10.0.{}.{}", number / 256, number % 256);
    let node = Node { id: format!("sidecar~{ip}~pod-{number}.shop~shop.svc.cluster.local"), ..Node::default() };
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
    let mut core = core(Limits { opened_together: 1, opened_at_once: 128, ..Limits::default() });
    let (large, mut to_large) = connect(&mut core, 1);
    let (small, mut to_small) = connect(&mut core, 2);
    let ports: Vec<String> = (0..600).map(|number| (8000 + number).to_string()).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let messages = vec![routes(large, &ports, &[]), routes(large, &[], &ports[..1]), routes(small, &["80"], &[])];
    let mut inbox = inbox(messages);
    core.turn(&mut inbox);
    while !has_response(&mut to_small) {
        assert!(!has_response(&mut to_large) && core.is_busy());
        core.turn(&mut inbox);
    }
    rest(&mut core);
    assert!(has_response(&mut to_large));
    let status = core.hub.status(large).expect("connected");
    assert_eq!(status.watches[0].names, Some(599), "the next request was handled, too");
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
    let ends = streams.iter().map(|(id, _)| Message::Disconnect(*id, String::new()));
    let mut messages = inbox(ends.chain([routes(id, &["80"], &[])]));
    while !has_response(&mut to) {
        core.turn(&mut messages);
    }
    rest(&mut core);
    assert_eq!((core.hub.len(), core.streams.open.len()), (1, 1));
    // A request of a stream that has ended is ignored.
    turn(&mut core, vec![routes(streams[0].0, &["80"], &[]), Message::Disconnect(id, String::new())]);
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
    turn(&mut core, ids.into_iter().map(|id| Message::Disconnect(id, String::new())).collect());
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
    core.clients().serve_until(|_, _| turns.replace(turns.get() + 1) > 3, &mut inbox, &mut gathered);
    let is_acked = |core: &Core, id| core.hub.status(id).expect("connected").watches[0].acked.is_some();
    assert!(is_acked(&core, answering) && !is_acked(&core, asking) && !gathered.is_empty());
    core.turn(&mut inbox);
    assert!(is_acked(&core, asking) && inbox.is_empty());
    rest(&mut core);
    assert!(has_response(&mut to_asking));
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

#[test]
fn after_a_commit_that_panics_everything_is_derived_again() {
    let mut core = core(Limits::default());
    let (id, mut received) = connect(&mut core, 1);
    turn(&mut core, vec![clusters(id, "")]);
    assert!(has_response(&mut received));
    turn(&mut core, vec![set_root_namespace("once")]);
    assert_eq!(ended(&mut received).map(|status| status.code), Some(Status::UNAVAILABLE));
    assert_eq!((core.repairs.health(), core.counters.panics, core.hub.len()), (Ok(()), 1, 0));
    let root = core.served.world.mesh_settings().config.root_namespace.clone();
    assert_eq!(&*root, "once", "the change is in effect");
    let (id, mut received) = connect(&mut core, 1);
    turn(&mut core, vec![clusters(id, "")]);
    assert!(has_response(&mut received));
    assert_eq!(core.served.world.check(), Ok(()));
}

#[test]
fn after_a_panic_that_cannot_be_repaired_proxies_keep_what_they_have() {
    let mut core = core(Limits::default());
    let [(id, mut received), (other, mut to_other)] = [connect(&mut core, 1), connect(&mut core, 2)];
    turn(&mut core, vec![clusters(id, ""), clusters(other, "")]);
    let nonce = core.hub.status(id).expect("connected").watches[0].sent.clone().expect("a response").nonce;
    turn(&mut core, vec![set_root_namespace("always")]);
    let (reply, mut health) = oneshot::channel();
    turn(&mut core, vec![Message::Check(reply), clusters(id, &nonce), set_root_namespace("istio-system")]);
    let reason = health.try_recv().expect("an answer").expect_err("it does not work");
    assert!(reason.contains("a commit panicked"), "{reason}");
    assert!(core.hub.status(id).expect("connected").watches[0].acked.is_some(), "an ACK is taken");
    assert!(ended(&mut received).is_none() && !core.is_busy());
    // A request that needs the world is refused, so that the proxy asks another replica.
    let (message, (_, mut answer)) = connecting(3);
    turn(&mut core, vec![message, routes(other, &["80"], &[])]);
    let refused = answer.try_recv().expect("an answer").expect_err("refused");
    assert_eq!(refused.code, Status::UNAVAILABLE);
    assert_eq!(ended(&mut to_other).map(|status| status.code), Some(Status::UNAVAILABLE));
}

static FRAGILE: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/example.Fragile",
    short_name: "FDS",
    long_name: "fragile",
    order: 100,
    ..TypeSpec::NAMED
};

/// A type whose names panic when they are resolved, which is after the service of the name has appeared.
struct FragileType;

impl ServedType for FragileType {
    const TYPE: ResourceType = ResourceType::new(&FRAGILE);
    type Audience = Arc<str>;
    type Lists = NoList;
    type Resources = (envoy::Clusters,);

    fn audience(proxy: &ProxyAudiences) -> Option<Arc<str>> {
        Some(proxy.route.scope.namespace.clone())
    }

    fn resolve(_: &Arc<str>, name: &Arc<str>) -> Option<ResourceKey> {
        panic!("{name} is fragile");
    }

    fn required_host(name: &str) -> Option<&str> {
        Some(name)
    }
}

#[test]
fn after_a_panic_while_a_commit_is_applied_everything_is_derived_again() {
    let world = World::with(mesh("istio-system"), 1, |_, types| {
        types.register::<FragileType>();
    });
    let mut core = core_of(world, Limits::default());
    let (id, mut received) = connect(&mut core, 1);
    turn(&mut core, vec![request(id, FRAGILE.type_url, &["shop.example.com"], ""), clusters(id, "")]);
    assert!(has_response(&mut received));
    turn(&mut core, vec![put(SHOP)]);
    assert_eq!(ended(&mut received).map(|status| status.code), Some(Status::UNAVAILABLE));
    assert_eq!((core.repairs.health(), core.counters.panics, core.hub.len()), (Ok(()), 1, 0));
    // The change is in effect for a proxy that connects.
    let (id, mut received) = connect(&mut core, 1);
    turn(&mut core, vec![clusters(id, "")]);
    assert!(has_response(&mut received));
    assert!(core.served.world.has_host("shop.example.com"));
    assert_eq!(core.served.world.check(), Ok(()));
}

fn put(text: &str) -> Message {
    let mut batch = Batch::new();
    let parsed = config::parse_documents(text.as_bytes(), "shop.yaml", &config::ParseOptions::default());
    parsed.objects.into_iter().for_each(|object| batch.put(object));
    Message::Commit(batch, Observations::new())
}

const SHOP: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: shop, namespace: shop}
spec: {hosts: [shop.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}
";

/// A proxy connects, receives clusters, accepts or rejects them, and disconnects.
fn session(rejection: Option<&str>) {
    let mut core = core(Limits::default());
    let (id, _received) = connect(&mut core, 1);
    turn(&mut core, vec![put(SHOP)]);
    turn(&mut core, vec![clusters(id, "")]);
    let nonce = core.hub.status(id).expect("connected").watches[0].sent.clone().expect("a response").nonce;
    let (mut answer, place) = delta(CLUSTER.type_url, &[], &[], &nonce);
    answer.error = rejection.map(str::to_owned);
    turn(&mut core, vec![Message::Request(id, (answer, place))]);
    turn(&mut core, vec![Message::Disconnect(id, "the client ended the stream".to_owned())]);
}

#[test]
fn what_happens_to_streams_is_logged() {
    let has = |lines: &[String], message: &str, fields: &[&str]| {
        let line = lines.iter().find(|line| line.contains(&format!(" xds: {message} ")));
        let line = line.unwrap_or_else(|| panic!("no {message}: {lines:#?}"));
        assert!(fields.iter().all(|field| line.contains(field)), "{line}");
    };
    let lines = lines_of(|| session(None));
    has(&lines, "push", &["node=pod-1.shop", "type=\"CDS\"", "resources=", "nonce="]);
    has(&lines, "ACK", &["node=pod-1.shop", "type=\"CDS\"", "nonce="]);
    has(&lines, "disconnected", &["node=pod-1.shop", "stream=", "reason=the client ended the stream"]);
    let lines = lines_of(|| session(Some("outbound|80||shop.example.com: bad")));
    let objects = "objects=ServiceEntry shop/shop";
    has(&lines, "NACK", &["node=pod-1.shop", "resources=outbound|80||shop.example.com ", objects, "bad"]);
    assert!(lines.iter().any(|line| line.contains(" WARN xds: NACK ")), "{lines:#?}");
}
