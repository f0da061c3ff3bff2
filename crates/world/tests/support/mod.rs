//! Helpers for tests and benchmarks of worlds: proxies, settings and random edits.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Not every user needs everything.

use envoy::types;
use std::collections::BTreeSet;
use std::sync::Arc;

use config::{ObjectKey, ParseOptions, parse_documents};
use flow::CellId;
use model::audience::ResourceKey;
use model::proxy::{Capabilities, InterceptionMode, Proxy, ProxyKind};
use model::xds::{Resource, ResourceType};
use registry::inputs::{MeshSettings, ProxyToken, Sharing};
use world::{Batch, World};

/// Reproducible random numbers (xorshift).
pub struct Random(u64);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(end).unwrap()).unwrap()
    }

    pub fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    pub fn chance(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Default mesh settings.
pub fn settings(sharing: Sharing) -> MeshSettings {
    MeshSettings { cluster_id: "home".into(), sharing, ..MeshSettings::default() }
}

/// A proxy of a namespace without further facts.
pub fn proxy(name: &str, namespace: &str, kind: ProxyKind) -> Proxy {
    Proxy {
        kind,
        vhds: false,
        secrets: Default::default(),
        own_workload: None,
        settings: None,
        resolver: None,
        id: format!("{name}.{namespace}").into(),
        namespace: namespace.into(),
        dns_domain: format!("{namespace}.svc.cluster.local").into(),
        addresses: vec!["10.0.0.1".parse().unwrap()],
        labels: Default::default(),
        locality: Default::default(),
        network: "".into(),
        network_view: Vec::new(),
        node: "".into(),
        cluster_id: "home".into(),
        service_account: "".into(),
        interception: InterceptionMode::Redirect,
        capabilities: Capabilities::default(),
        accepts_http10: false,
        static_ports: model::proxy::STATIC_PORTS,
        unprivileged: false,
        ports: Default::default(),
        version: "".into(),
        span_names: Default::default(),
        metadata: Default::default(),
    }
}

/// An edit: an object's text, or `None` to remove it, and its key.
pub type Edit = (Option<String>, ObjectKey);

/// A batch of a few random edits.
pub fn batch(r: &mut Random, at_most: usize, edit: fn(&mut Random) -> Edit) -> Batch {
    batch_of((0..=r.below(at_most)).map(|_| edit(r)).collect())
}

/// A batch of these edits.
pub fn batch_of(edits: Vec<Edit>) -> Batch {
    let mut batch = Batch::new();
    for edit in edits {
        match edit {
            (Some(text), key) => {
                let parsed = parse_documents(text.as_bytes(), "f", &ParseOptions::default());
                let object = parsed.objects.into_iter().next();
                let object = object.unwrap_or_else(|| panic!("{key}: {text}: {:?}", parsed.diagnostics));
                batch.put(object.in_cluster(&key.cluster));
            }
            (None, key) => batch.remove(&key),
        }
    }
    batch
}

/// Subscribes to a proxy's clusters and listeners, each of which must exist under its listed name. Returns the cells
/// and the names of the clusters.
pub fn open_listed(world: &mut World, token: ProxyToken) -> (Vec<CellId>, Vec<Arc<str>>) {
    let mut cells = Vec::new();
    let [clusters, _] =
        [types::CLUSTER, types::LISTENER].map(|kind| open_list(world, token, (kind, &Arc::default()), &mut cells));
    (cells, clusters.iter().map(|cluster| cluster.name().clone()).collect())
}

/// Subscribes to a proxy's resources of a wildcard type, or of a collection. Each must exist under its listed name.
pub fn open_list(
    world: &mut World,
    token: ProxyToken,
    (kind, collection): (ResourceType, &Arc<str>),
    cells: &mut Vec<CellId>,
) -> Vec<Resource> {
    let (mut names, mut found) = (BTreeSet::new(), Vec::new());
    // Rows of the own catalogue replace and hide those of the shared one.
    for audience in world.own_audience(token, kind).into_iter().chain(world.audience(token, kind)) {
        let Some((cell, catalogue)) = world.open_catalogue(&audience, collection) else { continue };
        cells.push(cell);
        for (name, key) in catalogue.entries.iter().filter(|(name, _)| !names.contains(name)).collect::<Vec<_>>() {
            names.insert(name.clone());
            if *key == ResourceKey::Hidden {
                continue;
            }
            let (cell, resource) = world.open(key);
            cells.push(cell);
            let resource = resource.unwrap_or_else(|| panic!("{name} is listed and absent"));
            assert_eq!(resource.name(), name, "listed under its name");
            found.push(resource);
        }
    }
    found
}

/// Commits a hundred random batches. After each, everything that `open` subscribed to is recomputed and compared.
pub fn step_by_step(
    world: &mut World,
    r: &mut Random,
    (at_most, edit): (usize, fn(&mut Random) -> Edit),
    mut open: impl FnMut(&mut World) -> Vec<CellId>,
) {
    let mut cells = Vec::new();
    for step in 0..100 {
        let changes = world.commit(batch(r, at_most, edit));
        assert!(changes.panics.is_empty(), "{:?}", changes.panics);
        let now = open(world);
        std::mem::replace(&mut cells, now).into_iter().for_each(|cell| world.close(cell));
        world.check().unwrap_or_else(|m| panic!("step {step}: {m}"));
    }
}
