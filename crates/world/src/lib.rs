//! Assembles the rules of all crates into one graph.
//!
//! ```text
//! Batch ─► commit ─► registry ─► security, traffic ─► envoy ─► envoy-filter ─► Changes ─► xds
//! Proxy ─► connect ─────────────► audiences ─► open_catalogue, resolve ─► open
//! ```
//!
//! [`World::commit`] takes a batch of changed objects and returns the changes of served resources ([`Changes`]). A proxy is
//! a row of facts, from which rules derive its audience for each resource type. Serving subscribes to the catalogue of an
//! audience (wildcard types) or to single resources (named types); later commits report their changes.
//!
//! The crates register their resource types ([`ServedTypes`]); there is no list of types here. To serve another type,
//! implement [`ServedType`](traffic::serving::ServedType) and register it.
//!
//! Invariants: no I/O, no clock; equal inputs result in equal bytes, in any order of commits ([`World::check`]).

mod batch;
mod conflicts;
mod inspect;
mod reach;
mod serve;
mod standings;

pub use batch::Batch;
pub use envoy_filter::Unmade;
pub use reach::Reach;
pub use serve::{Audience, Changes};
pub use standings::Facts;
pub use traffic::Catalogue;
pub use traffic::conflicts::Conflicts;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use config::ObjectKey;
use flow::Engine;
use model::audience::Account;
use model::jwt::WantedKeys;
use model::proxy::Proxy;
use model::xds::ResourceTypes;
use registry::inputs::{Mesh, MeshDefaults, MeshSettings, Proxies, ProxyToken};
use registry::{GatewayNames, ServicesByHost};
use security::request_authentication::WantedKeySources;
use traffic::credentials::ProxiesByReader;
use traffic::serving::ServedTypes;

/// The relations that read each other, as (reader, read), as far as the scenario tests show. The tests write the file.
pub fn known_reads() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("reads.txt").lines();
    lines.filter_map(|line| line.split_once(" <- "))
}

/// The derived configuration. It has one writer; rows are shared and immutable.
pub struct World {
    engine: Engine,
    served: Arc<ServedTypes>,
    types: ResourceTypes,
    next_token: u64,
    /// The hostnames of all services, for lookups by text.
    hosts: Arc<HashSet<Arc<str>>>,
    /// Rules that panicked while proxies connected or subscribed.
    panics: Vec<String>,
    /// Whether the service accounts to ask about changed.
    readers_changed: bool,
}

/// The maximum number of panics that are kept until they are taken.
const PANICS: usize = 1_000;

impl World {
    /// A world without objects. `threads` limits how many cells are derived at the same time; 1 is serial.
    pub fn new(settings: MeshSettings, threads: usize) -> World {
        World::with(settings, threads, |_, _| {})
    }

    /// A world that also has these rules and serves these types.
    ///
    /// # Panics
    /// The registered types are inconsistent, or a rule is registered before a relation that it reads.
    pub fn with(
        settings: MeshSettings,
        threads: usize,
        more: impl FnOnce(&mut flow::Builder, &mut ServedTypes),
    ) -> World {
        let mut builder = Engine::builder();
        registry::register(&mut builder);
        gateway_api::register(&mut builder);
        security::register(&mut builder);
        traffic::register(&mut builder);
        envoy::register(&mut builder);
        envoy_filter::register(&mut builder);
        let mut served = ServedTypes::default();
        envoy::register_types(&mut served);
        envoy_filter::register_types(&mut served);
        more(&mut builder, &mut served);
        if let Err(error) = builder.check_order(known_reads()) {
            panic!("{error}");
        }
        builder.threads(threads);
        let mut engine = builder.build();
        let types = served.types(&engine);
        let mut first = flow::Batch::new();
        first.put::<MeshDefaults>((), Arc::new(settings));
        engine.commit(first);
        // Always subscribed, so that commits report changes of the names to resolve.
        engine.subscribe::<GatewayNames>(());
        World {
            engine,
            served: Arc::new(served),
            types,
            next_token: 1,
            hosts: Arc::default(),
            panics: Vec::new(),
            readers_changed: false,
        }
    }

    /// Limits the threads that derive from now on, including the caller's. That of [`World::new`] stays the maximum.
    pub fn limit_threads(&mut self, threads: usize) {
        self.engine.limit_threads(threads);
    }

    /// Commits a batch and returns the changes of served resources.
    pub fn commit(&mut self, batch: Batch) -> Changes {
        let inputs = batch.into_inputs(&self.engine);
        let delta = self.engine.commit(inputs);
        self.note_hosts(&delta);
        self.note_readers(&delta);
        Changes::of(&self.served, &self.engine, &delta)
    }

    /// Derives everything again from the committed objects, after a commit that panicked. Proxies are disconnected and
    /// subscriptions end.
    pub fn rebuild(&mut self) {
        let mut engine = self.engine.rebuilt();
        let mut batch = flow::Batch::new();
        engine.keys::<Proxies>().iter().for_each(|token| batch.remove::<Proxies>(*token));
        engine.commit(batch);
        engine.subscribe::<GatewayNames>(());
        let hosts = engine.keys::<ServicesByHost>().iter().map(|host| host.as_str().into()).collect();
        (self.engine, self.hosts) = (engine, Arc::new(hosts));
        self.readers_changed = true;
    }

    /// The rules that panicked while proxies connected or subscribed, since the last call: as in [`Changes::panics`].
    pub fn take_panics(&mut self) -> Vec<String> {
        let mut panics = std::mem::take(&mut self.panics);
        panics.extend(self.engine.take_panics().iter().map(serve::shown));
        panics
    }

    fn keep_panics(&mut self, delta: &flow::Delta) {
        let room = PANICS.saturating_sub(self.panics.len());
        self.panics.extend(delta.panics().iter().take(room).map(serve::shown));
    }

    /// Adds a connected proxy, like [`World::connect_all`].
    pub fn connect(&mut self, proxy: Arc<Proxy>) -> (ProxyToken, Vec<(ObjectKey, Conflicts)>) {
        let token = ProxyToken(self.next_token);
        (token, self.connect_all(&[proxy]).1)
    }

    /// Adds connected proxies. Their audiences are known when this returns. Also returns the conflicts that changed, as in
    /// [`Changes::conflicts`].
    pub fn connect_all(&mut self, proxies: &[Arc<Proxy>]) -> (Vec<ProxyToken>, Vec<(ObjectKey, Conflicts)>) {
        let mut batch = flow::Batch::new();
        let mut add = |proxy: &Arc<Proxy>| {
            let token = ProxyToken(self.next_token);
            self.next_token += 1;
            batch.put::<Proxies>(token, proxy.clone());
            token
        };
        let tokens = proxies.iter().map(&mut add).collect();
        let delta = self.engine.commit(batch);
        self.keep_panics(&delta);
        self.note_readers(&delta);
        (tokens, conflicts::of(&delta))
    }

    /// Removes a proxy. Returns the conflicts that changed.
    pub fn disconnect(&mut self, token: ProxyToken) -> Vec<(ObjectKey, Conflicts)> {
        self.disconnect_all(&[token])
    }

    /// Removes proxies. Returns the conflicts that changed.
    pub fn disconnect_all(&mut self, tokens: &[ProxyToken]) -> Vec<(ObjectKey, Conflicts)> {
        let mut batch = flow::Batch::new();
        tokens.iter().for_each(|token| batch.remove::<Proxies>(*token));
        let delta = self.engine.commit(batch);
        self.keep_panics(&delta);
        self.note_readers(&delta);
        conflicts::of(&delta)
    }

    /// The names whose addresses derivation needs ([`Batch::set_addresses`]).
    pub fn wanted_names(&self) -> Arc<BTreeSet<Arc<str>>> {
        self.engine.get::<GatewayNames>(&()).map(|names| (*names).clone()).unwrap_or_default()
    }

    /// The sources of keys that must be fetched ([`Batch::set_keys`]).
    pub fn wanted_keys(&self) -> Arc<WantedKeys> {
        self.engine.get::<WantedKeySources>(&()).map(|sources| (*sources).clone()).unwrap_or_default()
    }

    /// The service accounts of connected proxies that get Secrets only if they may list them ([`Batch::set_secret_reader`]), if
    /// these have changed since the last call.
    pub fn take_wanted_readers(&mut self) -> Option<BTreeSet<Account>> {
        std::mem::take(&mut self.readers_changed)
            .then(|| self.engine.keys::<ProxiesByReader>().iter().cloned().collect())
    }

    fn note_readers(&mut self, delta: &flow::Delta) {
        let mut changes = delta.changes::<ProxiesByReader>();
        self.readers_changed |= changes.any(|change| change.before.is_some() != change.after.is_some());
    }

    /// The mesh-wide settings in effect.
    pub fn mesh_settings(&self) -> Arc<MeshSettings> {
        let mesh = self.engine.get::<Mesh>(&());
        (*mesh.expect("the constructor sets it")).clone()
    }

    /// The engine, for reading: debug output, `why`, statistics.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Compares the incrementally derived state with a recomputation from the inputs.
    ///
    /// # Errors
    /// The first cell that differs.
    pub fn check(&self) -> Result<(), flow::Mismatch> {
        self.engine.agree(&self.engine.recompute())
    }

    /// Returns a copy that shares its rows. Use it to see the effect of a change in advance.
    pub fn fork(&self) -> World {
        World {
            engine: self.engine.fork(),
            served: self.served.clone(),
            types: self.types.clone(),
            next_token: self.next_token,
            hosts: self.hosts.clone(),
            panics: Vec::new(),
            readers_changed: false,
        }
    }
}
