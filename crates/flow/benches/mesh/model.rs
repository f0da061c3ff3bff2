//! A mesh as the engine sees it: services, endpoints, encoded resources, and audiences that get all of them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flow::{Batch, Builder, Engine, Index, Input, Members, Reads, Relation, Rule};

/// Nanoseconds spent in rules.
pub(crate) static IN_RULES: AtomicU64 = AtomicU64::new(0);

pub(crate) type Name = Arc<str>;

/// Shared bytes, as a server would send them.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Encoded(pub(crate) Arc<[u8]>);

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ServiceSpec {
    pub(crate) port: u16,
    pub(crate) protocol: u8,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct EndpointSpec {
    pub(crate) service: Name,
    pub(crate) address: [u8; 4],
    pub(crate) weight: u32,
}

macro_rules! relation {
    ($name:ident, $text:literal, $key:ty, $row:ty) => {
        pub(crate) struct $name;
        impl Relation for $name {
            const NAME: &'static str = $text;
            type Key = $key;
            type Row = $row;
        }
    };
}

macro_rules! rule {
    ($name:ident, $text:literal, $key:ty, $row:ty, |$cx:ident, $of:ident| $body:block) => {
        relation!($name, $text, $key, $row);
        impl Rule for $name {
            fn derive($cx: &Reads<'_>, $of: &$key) -> Option<$row> {
                let start = Instant::now();
                let derive = || $body;
                let row = derive();
                IN_RULES.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                row
            }
        }
    };
}

relation!(Service, "service", Name, ServiceSpec);
impl Input for Service {}

relation!(Endpoint, "endpoint", (u32, u32), EndpointSpec);
impl Input for Endpoint {}

relation!(Note, "note", u32, u32);
impl Input for Note {}

relation!(EndpointsOf, "endpoints of service", Name, Members<(u32, u32)>);
impl Index for EndpointsOf {
    type Of = Endpoint;
    fn keys(_: &(u32, u32), row: &EndpointSpec) -> Vec<Name> {
        vec![row.service.clone()]
    }
}

rule!(LbEndpoint, "encoded endpoint", (u32, u32), Encoded, |cx, key| {
    let spec = cx.get::<Endpoint>(key)?;
    let mut bytes = vec![10, 12];
    bytes.extend(spec.address);
    bytes.extend(spec.weight.to_be_bytes());
    Some(Encoded(bytes.into()))
});

rule!(Row, "service row", Name, (u16, u8), |cx, name| {
    cx.with::<Service, _>(name, |spec| spec.map(|spec| (spec.port, spec.protocol)))
});

rule!(Cluster, "encoded cluster", Name, Encoded, |cx, name| {
    let row = cx.get::<Row>(name)?;
    let mut bytes = format!("outbound|{}||{name}", row.0).into_bytes();
    bytes.extend([7; 64]);
    Some(Encoded(bytes.into()))
});

rule!(Assignment, "encoded load assignment", Name, Encoded, |cx, name| {
    cx.get::<Row>(name)?;
    let mut bytes = name.as_bytes().to_vec();
    for endpoint in cx.get::<EndpointsOf>(name)?.iter() {
        cx.with::<LbEndpoint, _>(endpoint, |row| row.map(|row| bytes.extend_from_slice(&row.0)));
    }
    Some(Encoded(bytes.into()))
});

// The resources of an audience: every cluster, as a reference to bytes that all audiences share.
rule!(Catalogue, "catalogue", u32, Vec<Encoded>, |cx, _audience| {
    let names = cx.keys::<Row>();
    let mut rope = Vec::with_capacity(names.len());
    for name in names.iter() {
        cx.with::<Cluster, _>(name, |row| rope.extend(row.cloned()));
    }
    Some(rope)
});

// The resources that all audiences share, in one list.
rule!(SharedCatalogue, "shared catalogue", (), Arc<Vec<Encoded>>, |cx, _key| {
    let mut rope = Vec::new();
    for name in cx.keys::<Row>().iter() {
        cx.with::<Cluster, _>(name, |row| rope.extend(row.cloned()));
    }
    Some(Arc::new(rope))
});

// An audience's own resource, for an audience that also gets the shared list. It hides a shared one with the same bytes.
rule!(OwnCatalogue, "own catalogue", u32, (Encoded, bool), |cx, audience| {
    let shared = cx.get::<SharedCatalogue>(&())?;
    let own = Encoded(format!("inbound|{audience}||").into_bytes().into());
    let hides = shared.first() == Some(&own);
    Some((own, hides))
});

/// Relations that are registered and not affected by commits, as most are.
struct Idle<const N: usize>;
impl<const N: usize> Relation for Idle<N> {
    const NAME: &'static str = "idle";
    type Key = Name;
    type Row = u32;
}
impl<const N: usize> Rule for Idle<N> {
    fn derive(cx: &Reads<'_>, _: &Name) -> Option<u32> {
        cx.get::<Note>(&1).map(|row| *row)
    }
}

/// An engine for meshes, with 16 unused relations.
pub(crate) fn engine(threads: usize) -> Engine {
    let mut builder = Engine::builder();
    builder.threads(threads);
    builder.input::<Service>().input::<Endpoint>().input::<Note>();
    builder.index::<EndpointsOf>().world::<LbEndpoint, Endpoint>().world::<Row, Service>();
    add_idle(&mut builder);
    builder.view::<Cluster>().view::<Assignment>().view::<Catalogue>();
    builder.view::<SharedCatalogue>().view::<OwnCatalogue>();
    builder.build()
}

fn add_idle(builder: &mut Builder) {
    macro_rules! idle {
        ($($n:literal)*) => { $(
            builder.view::<Idle<$n>>().view::<Idle<{ $n + 16 }>>();
            builder.view::<Idle<{ $n + 32 }>>().view::<Idle<{ $n + 48 }>>();
        )* };
    }
    idle!(0 1 2 3);
}

pub(crate) fn name(service: u32) -> Name {
    format!("service-{service}.namespace-{}.svc.cluster.local", service % 50).into()
}

pub(crate) fn service(version: u16) -> ServiceSpec {
    ServiceSpec { port: 8_000 + version, protocol: 1 }
}

pub(crate) fn endpoint(service: &Name, at: u32, weight: u32) -> EndpointSpec {
    EndpointSpec { service: service.clone(), address: at.to_be_bytes(), weight }
}

/// All services and endpoints.
pub(crate) fn inputs(services: u32, endpoints: u32) -> Batch {
    let mut batch = Batch::new();
    batch.put::<Note>(0, 0);
    for of in 0..services {
        let name = name(of);
        for at in 0..endpoints {
            batch.put::<Endpoint>((of, at), endpoint(&name, of * endpoints + at, 1));
        }
        batch.put::<Service>(name, service(0));
    }
    batch
}
