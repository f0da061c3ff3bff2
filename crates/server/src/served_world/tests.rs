//! A resource type that exists only in this file, from its registration to the bytes that a client receives.

use std::sync::Arc;

use config::mesh::MeshConfig;
use flow::Reads;
use model::audience::ResourceKey;
use model::open_key::OpenKey;
use model::xds::{Resource, ResourceType, Subscription, TypeSpec};
use protos::Message;
use protos::envoy::config::core::v3::Node;
use protos::envoy::service::discovery::v3::DeltaDiscoveryResponse;
use registry::inputs::{Mesh, MeshSettings};
use traffic::Catalogue;
use traffic::audience::ProxyAudiences;
use traffic::serving::{List, ListRelation, ResourceRelation, ServedType};
use world::{Batch, World};
use xds::decode::Body;
use xds::{Hub, Limits, Moment, Next, Progress, Request, StreamId, Variant};

use super::ServedWorld as Served;

static GREETING: TypeSpec = TypeSpec {
    type_url: "type.googleapis.com/example.Greeting",
    short_name: "GDS",
    long_name: "greeting",
    order: 100,
    subscription: Subscription::Wildcard,
    ..TypeSpec::NAMED
};

struct GreetingType;

impl ServedType for GreetingType {
    const TYPE: ResourceType = ResourceType::new(&GREETING);
    type Audience = Arc<str>;
    type Lists = List<GreetingCatalogue>;
    type Resources = (Greetings,);

    fn audience(proxy: &ProxyAudiences) -> Option<Arc<str>> {
        Some(proxy.route.scope.namespace.clone())
    }

    fn list(namespace: &Arc<str>, _: &Arc<str>) -> Option<Arc<str>> {
        Some(namespace.clone())
    }
}

flow::rule! {
    /// The greetings of a namespace.
    GreetingCatalogue: Arc<str> => Catalogue = "greeting catalogue", derive_greeting_catalogue;
}

fn derive_greeting_catalogue(cx: &Reads<'_>, namespace: &Arc<str>) -> Option<Catalogue> {
    let root = &cx.get::<Mesh>(&())?.config.root_namespace;
    assert!(**namespace != *"nothing" || **root == *"mended", "no greetings");
    let entry = |name: &str| {
        let key = Greeting(namespace.clone(), name.into());
        (name.into(), ResourceKey::Other(OpenKey::new(key)))
    };
    Some(Catalogue::new(["morning", "evening"].map(entry).into()))
}

impl ListRelation for GreetingCatalogue {
    fn catalogue(row: Arc<Catalogue>) -> Arc<Catalogue> {
        row
    }
}

/// A greeting of a namespace, by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Greeting(Arc<str>, Arc<str>);

flow::rule! {
    Greetings: Greeting => Resource = "greetings", derive_greetings;
}

fn derive_greetings(cx: &Reads<'_>, Greeting(namespace, name): &Greeting) -> Option<Resource> {
    let root = &cx.get::<Mesh>(&())?.config.root_namespace;
    assert!(**namespace != *"mornings" || **name == *"morning" || **root == *"mended", "no evenings");
    Some(Resource::new(name.clone(), format!("good {name} {namespace} from {root}")))
}

impl ResourceRelation for Greetings {
    fn key(key: &ResourceKey) -> Option<Greeting> {
        match key {
            ResourceKey::Other(key) => key.get().cloned(),
            _ => None,
        }
    }

    fn resource(row: &Resource) -> &Resource {
        row
    }
}

fn settings(root: &str) -> MeshSettings {
    MeshSettings {
        config: MeshConfig { root_namespace: root.into(), ..MeshConfig::default() },
        cluster_id: "home".into(),
        ..MeshSettings::default()
    }
}

/// The resources of the next response, as text.
fn received(hub: &mut Hub<Served>, id: StreamId) -> Vec<String> {
    let Next::Send(response) = hub.next(id, Moment::ZERO) else {
        return Vec::new();
    };
    let bytes: Vec<u8> = response.rope.pieces().flat_map(|piece| piece.iter().copied()).collect();
    let message = DeltaDiscoveryResponse::decode(bytes.as_slice()).expect("a delta response");
    assert_eq!(message.type_url, GREETING.type_url);
    let bodies = message.resources.into_iter().filter_map(|resource| resource.resource);
    let bodies = bodies.map(|body| String::from_utf8_lossy(&body.value).into_owned());
    bodies.chain(message.removed_resources.into_iter().map(|name| format!("no {name}"))).collect()
}

fn greetings() -> (Hub<Served>, Served) {
    let world = World::with(settings("one"), 1, |rules, types| {
        rules.view::<GreetingCatalogue>();
        rules.view::<Greetings>();
        types.register::<GreetingType>();
    });
    (Hub::new(Limits::default(), world.types().clone()), Served { world, conflicts: Vec::new() })
}

/// A sidecar in this namespace, which has these greetings of an unknown version.
fn returning(hub: &mut Hub<Served>, served: &mut Served, namespace: &str, had: &[&str]) -> StreamId {
    let id = format!("sidecar~10.0.0.1~web.{namespace}~{namespace}.svc.cluster.local");
    let proxy = envoy::parse_node(&Node { id, ..Node::default() }).expect("a sidecar");
    let id = hub.connect(served, proxy, Variant::Delta, Moment::ZERO).expect("served");
    let initial = had.iter().map(|name| (*name, "1")).collect();
    let body = Body::Delta { subscribe: Default::default(), unsubscribe: Default::default(), initial };
    let request = Request { type_url: GREETING.type_url.to_owned(), body, ..Request::default() };
    ask(hub, served, id, request);
    id
}

/// Handles a request completely.
fn ask(hub: &mut Hub<Served>, served: &mut Served, id: StreamId, request: Request) {
    let mut progress = hub.request(served, id, request, Moment::ZERO);
    while progress == Ok(Progress::More) {
        progress = hub.proceed(served, id, Moment::ZERO);
    }
    assert_eq!(progress, Ok(Progress::Done));
}

#[test]
fn a_panic_of_a_rule_removes_nothing_from_a_returning_proxy() {
    let (mut hub, mut served) = greetings();
    let (complete, nothing, mornings) = ("shop", "nothing", "mornings");
    let had = ["evening", "morning", "old"];
    let id = returning(&mut hub, &mut served, complete, &had);
    let all = ["good evening shop from one", "good morning shop from one", "no old"];
    assert_eq!(received(&mut hub, id), all);
    // The list cannot be derived.
    let lost = returning(&mut hub, &mut served, nothing, &had);
    assert!(matches!(hub.next(lost, Moment::ZERO), Next::End(status) if status.code == xds::Code::Unavailable));
    // One resource cannot be derived.
    let kept = returning(&mut hub, &mut served, mornings, &had);
    assert_eq!(received(&mut hub, kept), ["good morning mornings from one", "no old"]);
    let panics = served.world.take_panics();
    assert_eq!(panics.len(), 2, "{panics:?}");
    assert!(panics[0].contains("no greetings") && panics[1].contains("no evenings"), "{panics:?}");
    let nonce = hub.status(kept).and_then(|status| status.watches[0].sent.clone()).expect("a response").nonce;
    let ack = Request { nonce: nonce.to_string(), ..acknowledging() };
    ask(&mut hub, &mut served, kept, ack);

    let mut batch = Batch::new();
    batch.set_mesh(settings("mended"));
    let changes = Served::changes(served.world.commit(batch));
    hub.apply(&mut served, changes, Moment::ZERO);
    let mended = ["good evening mornings from mended", "good morning mornings from mended"];
    assert_eq!(received(&mut hub, kept), mended);
    hub.disconnect(&mut served, lost);
    let again = returning(&mut hub, &mut served, nothing, &had);
    assert_eq!(received(&mut hub, again).len(), 3);
}

fn acknowledging() -> Request {
    let body =
        Body::Delta { subscribe: Default::default(), unsubscribe: Default::default(), initial: Default::default() };
    Request { type_url: GREETING.type_url.to_owned(), body, ..Request::default() }
}

#[test]
fn a_registered_type_is_served() {
    let (mut hub, mut served) = greetings();
    let node = Node { id: "sidecar~10.0.0.1~web.shop~shop.svc.cluster.local".to_owned(), ..Node::default() };
    let proxy = envoy::parse_node(&node).expect("a sidecar");
    let id = hub.connect(&mut served, proxy, Variant::Delta, Moment::ZERO).expect("served");
    let request = |nonce: &str| Request { nonce: nonce.to_owned(), ..acknowledging() };
    ask(&mut hub, &mut served, id, request(""));
    assert_eq!(received(&mut hub, id), ["good evening shop from one", "good morning shop from one"]);
    let sent = hub.status(id).and_then(|status| status.watches[0].sent.clone());
    let nonce = sent.expect("a response").nonce;
    ask(&mut hub, &mut served, id, request(&nonce));

    let mut batch = Batch::new();
    batch.set_mesh(settings("two"));
    let changes = Served::changes(served.world.commit(batch));
    hub.apply(&mut served, changes, Moment::ZERO);
    assert_eq!(received(&mut hub, id), ["good evening shop from two", "good morning shop from two"]);
}

#[test]
#[should_panic = "the rule greetings is not registered"]
fn a_type_without_its_rules_fails_at_start() {
    World::with(settings("one"), 1, |rules, types| {
        rules.view::<GreetingCatalogue>();
        types.register::<GreetingType>();
    });
}
