//! LEDS with simulated clients that behave as Envoy: after any sequence of steps, clusters become ready and have exactly
//! the existing endpoints.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use model::proxy::ProxyKind;
use model::xds::{ResourceType, collection_of};
use proptest::prelude::*;
use protos::Message;
use protos::envoy::config::endpoint::v3::ClusterLoadAssignment;
use protos::envoy::config::endpoint::v3::locality_lb_endpoints::LbConfig;
use xds::StreamId;
use xds::Variant::Delta;

use crate::client::resume;
use crate::harness::*;
use crate::single::{assign, endpoint};
use crate::world::plain;

const CLUSTERS: [&str; 2] = ["c", "d"];
const LOCALITIES: [&str; 2] = ["x", "y"];
const ENDPOINTS: [&str; 3] = ["1", "2", "3"];

#[derive(Clone, Debug)]
enum Step {
    /// Changes an endpoint; a number of 0 removes it.
    Endpoint(usize, usize, usize, u32),
    /// Changes a cluster; a number of 0 removes it.
    Cluster(usize, u32),
    /// Changes an assignment in something else than its endpoints.
    Weight(usize, u32),
    Commit,
    /// What there is to send is sent.
    Send,
    /// The client reads one response.
    Read,
    Reconnect,
}

fn step() -> impl Strategy<Value = Step> {
    let (two, three) = (0..2usize, 0..3usize);
    prop_oneof![
        6 => (two.clone(), two.clone(), three, 0..4u32).prop_map(|(c, l, e, n)| Step::Endpoint(c, l, e, n)),
        1 => (two.clone(), 0..4u32).prop_map(|(c, n)| Step::Cluster(c, n)),
        1 => (two, 1..4u32).prop_map(|(c, n)| Step::Weight(c, n)),
        4 => Just(Step::Commit),
        4 => Just(Step::Send),
        6 => Just(Step::Read),
        1 => Just(Step::Reconnect),
    ]
}

/// The collections that an assignment names.
pub(crate) fn collections(body: &Bytes) -> Vec<String> {
    let assignment = ClusterLoadAssignment::decode(body.clone()).unwrap();
    let one = |config: Option<LbConfig>| match config? {
        LbConfig::LedsClusterLocalityConfig(leds) => Some(leds.leds_collection_name.strip_suffix("/*")?.to_owned()),
        _ => None,
    };
    assignment
        .endpoints
        .into_iter()
        .filter_map(|l| one(l.lb_config))
        .collect()
}

/// A cluster as Envoy has it: the present one, or one that gets ready to take its place.
#[derive(Default)]
struct Instance {
    assigned: bool,
    /// What is in each collection that it follows; none: it has not heard of it.
    collections: BTreeMap<String, Option<BTreeMap<String, u32>>>,
}

impl Instance {
    fn ready(&self) -> bool {
        self.assigned && self.collections.values().all(Option::is_some)
    }
}

/// What Envoy has, and what it subscribes to.
struct Envoy {
    id: StreamId,
    clusters: BTreeMap<String, Vec<Instance>>,
    versions: BTreeMap<(ResourceType, String), String>,
    assignments: BTreeSet<String>,
    collections: BTreeSet<String>,
    asked: BTreeSet<ResourceType>,
    inbox: VecDeque<Received>,
}

impl Envoy {
    fn new(h: &mut Harness) -> Envoy {
        let mut envoy = Envoy {
            id: h.connect_as(ProxyKind::Sidecar, Delta),
            clusters: BTreeMap::new(),
            versions: BTreeMap::new(),
            assignments: BTreeSet::new(),
            collections: BTreeSet::new(),
            asked: BTreeSet::new(),
            inbox: VecDeque::new(),
        };
        envoy.begin(h);
        envoy
    }

    /// The first requests of a stream: all that it subscribes to; what it has of clusters and assignments.
    fn begin(&mut self, h: &mut Harness) {
        let had = |kind: ResourceType| -> Vec<(&str, &str)> {
            let of_kind = self.versions.iter().filter(|((k, _), _)| *k == kind);
            of_kind.map(|((_, name), version)| (&**name, &**version)).collect()
        };
        h.request(self.id, resume(CDS, &[], &had(CDS))).unwrap();
        self.asked = [CDS].into();
        let assignments: Vec<&str> = self.assignments.iter().map(|name| &**name).collect();
        if !assignments.is_empty() {
            self.asked.insert(EDS);
            h.request(self.id, resume(EDS, &assignments, &had(EDS))).unwrap();
        }
        let globs: Vec<String> = self.collections.iter().map(|name| format!("{name}/*")).collect();
        if !globs.is_empty() {
            self.asked.insert(LEDS);
            let globs: Vec<&str> = globs.iter().map(|name| &**name).collect();
            h.request(self.id, resume(LEDS, &globs, &[])).unwrap();
        }
        // Clusters go when no listener can use them any more; there are none.
        h.request(self.id, resume(LDS, &[], &[])).unwrap();
    }

    fn reconnect(&mut self, h: &mut Harness) {
        h.disconnect(self.id);
        self.inbox.clear();
        self.id = h.connect_as(ProxyKind::Sidecar, Delta);
        self.begin(h);
    }

    fn receive(&mut self, h: &mut Harness) -> bool {
        let received = h.poll(self.id);
        let some = !received.is_empty();
        self.inbox.extend(received);
        some
    }

    /// Reads one response; whether there was one.
    fn read(&mut self, h: &mut Harness) -> bool {
        let Some(received) = self.inbox.pop_front() else {
            return false;
        };
        match received.kind {
            CDS => self.take_clusters(&received),
            EDS => self.take_assignments(&received),
            LEDS => self.take_endpoints(&received),
            LDS => {}
            other => panic!("{other:?} was not asked for"),
        }
        for instances in self.clusters.values_mut() {
            if let Some(ready) = instances.iter().rposition(Instance::ready) {
                instances.drain(..ready);
            }
        }
        self.subscribe(h);
        let mut answer = delta(received.kind);
        answer.nonce = received.nonce;
        h.request(self.id, answer).unwrap();
        true
    }

    fn take_clusters(&mut self, received: &Received) {
        for (name, version, _) in &received.resources {
            self.versions.insert((CDS, name.clone()), version.clone());
            self.clusters.entry(name.clone()).or_default().push(Instance::default());
        }
        for name in &received.removed {
            self.versions.remove(&(CDS, name.clone()));
            self.clusters.remove(name);
        }
    }

    fn take_assignments(&mut self, received: &Received) {
        for (name, version, body) in &received.resources {
            let Some(instances) = self.clusters.get_mut(name) else {
                continue;
            };
            self.versions.insert((EDS, name.clone()), version.clone());
            let named = collections(body);
            for instance in instances {
                instance.assigned = true;
                instance.collections.retain(|collection, _| named.contains(collection));
                for collection in &named {
                    instance.collections.entry(collection.clone()).or_default();
                }
            }
        }
    }

    fn take_endpoints(&mut self, received: &Received) {
        let present = received
            .resources
            .iter()
            .map(|(name, _, body)| (name, Some(number_of(LEDS, body))));
        let news: Vec<_> = received
            .removed
            .iter()
            .map(|name| (name, None))
            .chain(present)
            .collect();
        for instance in self.clusters.values_mut().flatten() {
            for (name, number) in &news {
                let Some(held) = instance.collections.get_mut(collection_of(name).unwrap()) else {
                    continue;
                };
                let held = held.get_or_insert_default();
                match number {
                    Some(number) => held.insert((*name).clone(), *number),
                    None => held.remove(*name),
                };
            }
        }
    }

    /// Subscribes to what is newly needed, and gives up what no longer is.
    fn subscribe(&mut self, h: &mut Harness) {
        let assignments: BTreeSet<String> = self.clusters.keys().cloned().collect();
        let collections = self.clusters.values().flatten().flat_map(|i| i.collections.keys());
        let collections: BTreeSet<String> = collections.cloned().collect();
        for name in self.assignments.difference(&assignments) {
            self.versions.remove(&(EDS, name.clone()));
        }
        for (kind, suffix, had, has) in [
            (EDS, "", &self.assignments, &assignments),
            (LEDS, "/*", &self.collections, &collections),
        ] {
            let names = |names: Vec<&String>| -> Vec<String> { names.iter().map(|n| format!("{n}{suffix}")).collect() };
            let (new, old) = (
                names(has.difference(had).collect()),
                names(had.difference(has).collect()),
            );
            if new.is_empty() && (old.is_empty() || !self.asked.contains(&kind)) {
                continue;
            }
            // The first request of a type says all.
            let new = match self.asked.insert(kind) {
                true => names(has.iter().collect()),
                false => new,
            };
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            h.request(self.id, subscribe(kind, &new, &old)).unwrap();
        }
        (self.assignments, self.collections) = (assignments, collections);
    }
}

/// The endpoints that there are: cluster, locality and endpoint, and the number.
#[derive(Default)]
struct Mesh {
    endpoints: BTreeMap<(usize, usize, usize), u32>,
    weights: [u32; 2],
    clusters: [bool; 2],
}

impl Mesh {
    fn localities(&self, cluster: usize) -> Vec<&'static str> {
        let there = |l: &usize| {
            self.endpoints
                .keys()
                .any(|(c, locality, _)| c == &cluster && locality == l)
        };
        (0..2).filter(there).map(|l| LOCALITIES[l]).collect()
    }

    /// An assignment names the collections that something is in.
    fn commit(&self, h: &mut Harness) {
        for (cluster, name) in CLUSTERS.iter().enumerate() {
            assign(h, name, &self.localities(cluster), 1 + self.weights[cluster]);
        }
        h.commit();
    }
}

fn run(steps: Vec<Step>) {
    let (mut h, mut mesh) = (Harness::new(), Mesh::default());
    mesh.commit(&mut h);
    let mut envoy = Envoy::new(&mut h);
    for step in steps {
        match step {
            Step::Endpoint(cluster, locality, one, number) => {
                match number {
                    0 => mesh.endpoints.remove(&(cluster, locality, one)),
                    _ => mesh.endpoints.insert((cluster, locality, one), number),
                };
                let name = format!("{}/{}", LOCALITIES[locality], ENDPOINTS[one]);
                endpoint(&mut h, CLUSTERS[cluster], &name, number);
            }
            Step::Cluster(cluster, number) => {
                mesh.clusters[cluster] = number > 0;
                match number {
                    0 => h.world.remove(CDS, "a", CLUSTERS[cluster]),
                    _ => h.world.put(CDS, "a", CLUSTERS[cluster], plain(number)),
                }
            }
            Step::Weight(cluster, weight) => mesh.weights[cluster] = weight,
            Step::Commit => mesh.commit(&mut h),
            Step::Send => {
                envoy.receive(&mut h);
            }
            Step::Read => {
                envoy.read(&mut h);
            }
            Step::Reconnect => envoy.reconnect(&mut h),
        }
    }
    mesh.commit(&mut h);
    while envoy.receive(&mut h) | envoy.read(&mut h) {}
    for (cluster, name) in CLUSTERS.iter().enumerate() {
        let Some(instances) = envoy.clusters.get(*name) else {
            assert!(!mesh.clusters[cluster], "{name} is missing");
            continue;
        };
        assert!(mesh.clusters[cluster], "{name} has not gone");
        assert_eq!(instances.len(), 1, "{name} is getting ready for ever");
        let held = instances[0].collections.values().flatten().flatten();
        // What is before the point is the generation.
        let held: BTreeMap<String, u32> = held
            .map(|(name, number)| (name.split_once('.').unwrap().1.to_owned(), *number))
            .collect();
        let there = mesh.endpoints.iter().filter(|((c, ..), _)| *c == cluster);
        let there: BTreeMap<String, u32> = there
            .map(|((_, l, e), number)| (format!("{}/{}", LOCALITIES[*l], ENDPOINTS[*e]), *number))
            .collect();
        assert_eq!(held, there, "{name}");
        assert!(instances[0].ready(), "{name} never got ready");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn clusters_get_ready_and_have_what_there_is(steps in proptest::collection::vec(step(), 1..80)) {
        run(steps);
    }
}
