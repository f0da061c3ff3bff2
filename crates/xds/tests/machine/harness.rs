//! A hub, a world and a clock, driven by tests. Responses are shown as text.

use std::collections::BTreeMap;

use bytes::Bytes;
use model::proxy::{Capabilities, InterceptionMode, Locality, Proxy, ProxyKind};
use model::xds::ResourceType;
use protos::Message;
use protos::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use xds::decode::{Body, Texts};
use xds::{Changes, Held, Hub, Limits, Moment, Next, Progress, Request, Response, Status, StreamId, Variant};

use crate::world::{World, leading_to, plain, types};

pub(crate) use envoy::types::{
    CLUSTER as CDS, ENDPOINTS as EDS, EXTENSION as ECDS, LISTENER as LDS, ROUTE as RDS, VIRTUAL_HOST as VHDS,
};

pub(crate) fn proxy(kind: ProxyKind) -> Proxy {
    Proxy {
        kind,
        id: "pod.ns".into(),
        namespace: "ns".into(),
        dns_domain: "ns.svc.cluster.local".into(),
        vhds: false,
        addresses: vec!["10.0.0.1".parse().unwrap()],
        labels: BTreeMap::new(),
        locality: Locality::default(),
        network: "".into(),
        network_view: Vec::new(),
        node: "".into(),
        cluster_id: "".into(),
        service_account: "".into(),
        interception: InterceptionMode::default(),
        capabilities: Capabilities::default(),
        accepts_http10: false,
        static_ports: model::proxy::STATIC_PORTS,
        unprivileged: false,
        own_workload: None,
        settings: None,
        resolver: None,
        ports: BTreeMap::new(),
        secrets: Default::default(),
        version: "".into(),
        span_names: Default::default(),
        metadata: Default::default(),
    }
}

pub(crate) struct Harness {
    pub(crate) hub: Hub<World>,
    pub(crate) world: World,
    pub(crate) now: Moment,
    /// The node of clients that connect.
    pub(crate) node: &'static str,
}

/// The number of types, for tables by sending order.
pub(crate) const TYPES: usize = 8;

/// The index of a type in such tables.
pub(crate) fn at(kind: ResourceType) -> usize {
    kind.order.into()
}

/// A response as the client reads it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) kind: ResourceType,
    pub(crate) nonce: String,
    pub(crate) version: String,
    /// Name, version (delta only) and encoding.
    pub(crate) resources: Vec<(String, String, Bytes)>,
    pub(crate) removed: Vec<String>,
}

impl Harness {
    pub(crate) fn new() -> Harness {
        Harness::with(Harness::limits())
    }

    pub(crate) fn limits() -> Limits {
        Limits { quarantine: None, ..Limits::default() }
    }

    pub(crate) fn with(limits: Limits) -> Harness {
        // Almost every response takes several steps.
        let limits = Limits { encoded_together: 2, ..limits };
        Harness { hub: Hub::new(limits, types()), world: World::default(), now: Moment::ZERO, node: "pod.ns" }
    }

    /// A world in which audience `a` has clusters `a`, `b`, and listener and route `r`, all with number 1; the route
    /// uses `a`.
    pub(crate) fn small() -> Harness {
        Harness::small_with(Harness::limits())
    }

    pub(crate) fn small_with(limits: Limits) -> Harness {
        let mut h = Harness::with(limits);
        for name in ["a", "b"] {
            h.world.put(CDS, "a", name, plain(1));
            h.world.put(EDS, "a", name, plain(1));
        }
        h.world.put(LDS, "a", "r", plain(1));
        h.world.put(RDS, "a", "r", leading_to("a", 1));
        h.commit();
        h
    }

    pub(crate) fn connect_as(&mut self, kind: ProxyKind, variant: Variant) -> StreamId {
        let proxy = Proxy { id: self.node.into(), ..proxy(kind) };
        self.hub.connect(&mut self.world, proxy, variant, self.now).unwrap()
    }

    /// Handles a request completely.
    pub(crate) fn request(&mut self, id: StreamId, request: Request) -> Result<(), Status> {
        let mut progress = self.hub.request(&mut self.world, id, request, self.now)?;
        while progress == Progress::More {
            progress = self.hub.proceed(&mut self.world, id, self.now)?;
        }
        // Some of the moves that follow. What a test does next happens in the midst of them.
        self.hub.move_some(&mut self.world, 2, self.now);
        while self.hub.close_unused(&mut self.world, 3) {}
        Ok(())
    }

    /// Sets resources to numbers and commits: `(CDS, "a", 2)` changes, a number of 0 removes.
    pub(crate) fn change(&mut self, changes: &[(ResourceType, &str, u32)]) {
        for (kind, name, number) in changes {
            if *number == 0 {
                self.world.remove(*kind, "a", name);
            } else {
                self.world.put(*kind, "a", name, plain(*number));
            }
        }
        self.commit();
    }

    pub(crate) fn commit(&mut self) {
        let changes = self.world.commit();
        self.hub.apply(&mut self.world, changes, self.now);
    }

    /// Applies changes in one step, and leaves moves.
    pub(crate) fn apply(&mut self, changes: Changes<World>) {
        if let Some(application) = self.hub.application(changes, Default::default()) {
            self.hub.apply_some(&mut self.world, application, || true, self.now);
        }
    }

    pub(crate) fn after(&mut self, seconds: u64) {
        self.now += Moment::from_secs(seconds);
        self.hub.tick(&mut self.world, self.now);
    }

    /// The responses of the stream, after its moves.
    pub(crate) fn poll(&mut self, id: StreamId) -> Vec<Received> {
        while self.hub.is_moving(id) {
            self.hub.move_some(&mut self.world, 1, self.now);
            while self.hub.close_unused(&mut self.world, 3) {}
        }
        self.responses(id)
    }

    /// The responses of the stream.
    pub(crate) fn responses(&mut self, id: StreamId) -> Vec<Received> {
        let mut all = Vec::new();
        loop {
            match self.hub.next(id, self.now) {
                Next::Send(response) => all.push(read(&response)),
                Next::More => {}
                Next::Idle => return all,
                Next::End(status) => panic!("ended: {status}"),
            }
        }
    }

    /// Whether there is no deadline, except for dropping cached responses.
    pub(crate) fn quiet(&mut self) -> bool {
        (0..2).for_each(|_| self.after(5));
        self.hub.deadline().is_none()
    }

    pub(crate) fn disconnect(&mut self, id: StreamId) {
        self.hub.disconnect(&mut self.world, id);
        while self.hub.close_unused(&mut self.world, 3) {}
    }
}

fn read(response: &Response) -> Received {
    let mut bytes = Vec::new();
    response.rope.pieces().for_each(|piece| bytes.extend_from_slice(piece));
    assert_eq!(bytes.len(), response.rope.len());
    // Both messages use the same field numbers. They differ in that the resources of a delta response have names.
    let delta = DeltaDiscoveryResponse::decode(bytes.as_slice()).ok().filter(|delta| {
        delta.resources.iter().all(|resource| resource.resource.is_some())
            && delta.control_plane.as_ref().is_some_and(|plane| plane.identifier == "rutter")
    });
    let received = match delta {
        Some(delta) => {
            let one =
                |r: protos::envoy::service::discovery::v3::Resource| (r.name, r.version, r.resource.unwrap().value);
            Received {
                kind: types().find(&delta.type_url).unwrap(),
                nonce: delta.nonce,
                version: delta.system_version_info,
                resources: delta.resources.into_iter().map(one).collect(),
                removed: delta.removed_resources,
            }
        }
        None => {
            let sotw = DiscoveryResponse::decode(bytes.as_slice()).unwrap();
            let kind = types().find(&sotw.type_url).unwrap();
            let one = |any: protos::Any| (name_of(kind, &any.value), String::new(), any.value);
            Received {
                kind,
                nonce: sotw.nonce,
                version: sotw.version_info,
                resources: sotw.resources.into_iter().map(one).collect(),
                removed: Vec::new(),
            }
        }
    };
    assert_eq!((received.kind, &*received.nonce), (response.kind, &*response.nonce));
    assert_eq!((received.resources.len(), received.removed.len()), (response.resources, response.removed));
    received
}

/// All types of the tests have their name in field 1.
fn name_of(kind: ResourceType, body: &Bytes) -> String {
    use protos::envoy::config as c;
    match kind.short_name {
        "CDS" => c::cluster::v3::Cluster::decode(body.clone()).unwrap().name,
        "EDS" => c::endpoint::v3::ClusterLoadAssignment::decode(body.clone()).unwrap().cluster_name,
        "LDS" => c::listener::v3::Listener::decode(body.clone()).unwrap().name,
        "RDS" => c::route::v3::RouteConfiguration::decode(body.clone()).unwrap().name,
        "ECDS" => c::core::v3::TypedExtensionConfig::decode(body.clone()).unwrap().name,
        "VHDS" => c::route::v3::VirtualHost::decode(body.clone()).unwrap().name,
        other => panic!("the synthetic mesh has no {other:?}"),
    }
}

/// The number of a synthetic resource; 0 for an empty one.
pub(crate) fn number_of(kind: ResourceType, body: &Bytes) -> u32 {
    use protos::envoy::config as c;
    let text = |text: &str| text.parse().unwrap_or(0);
    match kind.short_name {
        "CDS" => text(&c::cluster::v3::Cluster::decode(body.clone()).unwrap().alt_stat_name),
        "EDS" => {
            let endpoints = c::endpoint::v3::ClusterLoadAssignment::decode(body.clone()).unwrap().endpoints;
            endpoints.first().map_or(0, |endpoints| endpoints.priority)
        }
        "LDS" => text(&c::listener::v3::Listener::decode(body.clone()).unwrap().stat_prefix),
        "RDS" => {
            let route = c::route::v3::RouteConfiguration::decode(body.clone()).unwrap();
            route.internal_only_headers.first().map_or(0, |number| text(number))
        }
        "VHDS" => {
            let host = c::route::v3::VirtualHost::decode(body.clone()).unwrap();
            host.request_headers_to_remove.first().map_or(0, |number| text(number))
        }
        "ECDS" => {
            let extension = c::core::v3::TypedExtensionConfig::decode(body.clone()).unwrap();
            text(&extension.typed_config.unwrap().type_url)
        }
        other => panic!("the synthetic mesh has no {other:?}"),
    }
}

/// `CDS a=1 b=2 -c`.
pub(crate) fn show(received: &Received) -> String {
    let mut text = received.kind.short_name.to_owned();
    for (name, _, body) in &received.resources {
        text += &format!(" {name}={}", number_of(received.kind, body));
    }
    for name in &received.removed {
        text += &format!(" -{name}");
    }
    text
}

pub(crate) fn delta(kind: ResourceType) -> Request {
    Request {
        type_url: kind.type_url.to_owned(),
        body: Body::Delta { subscribe: Texts::default(), unsubscribe: Texts::default(), initial: Held::default() },
        ..Request::default()
    }
}

pub(crate) fn subscribe(kind: ResourceType, names: &[&str], without: &[&str]) -> Request {
    let (subscribe, unsubscribe) = (names.iter().copied().collect(), without.iter().copied().collect());
    Request { body: Body::Delta { subscribe, unsubscribe, initial: Default::default() }, ..delta(kind) }
}

pub(crate) fn sotw(kind: ResourceType, names: &[&str], version: &str, nonce: &str) -> Request {
    Request {
        type_url: kind.type_url.to_owned(),
        nonce: nonce.to_owned(),
        body: Body::Sotw { version: version.to_owned(), names: names.iter().copied().collect() },
        ..Request::default()
    }
}
