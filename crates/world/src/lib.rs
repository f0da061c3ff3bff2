//! All rules as one graph.
//!
//! ```text
//!  Batch ──World::commit──► registry ─► security ─► traffic ─► envoy ─► envoy-filter ──► Changes
//! ```
//!
//! [`World::commit`] takes a batch of changed objects and returns the changed resources, catalogues and audiences. The rules
//! of the crates above derive everything in between. Nothing here does I/O, waits or reads a clock.
//!
//! A connected proxy is a row of facts. The rules derive its audiences from it, one per resource type. The server then
//! opens the catalogue of an audience (wildcard types) or single resources (named types), and later commits report their
//! changes.

mod batch;
mod conflicts;
mod inspect;
mod patching;
mod reach;
mod serve;

pub use batch::Batch;
pub use patching::Unmade;
pub use reach::Reach;
pub use serve::{Audience, Changes};
pub use traffic::Catalogue;
pub use traffic::conflicts::Conflicts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use config::ObjectKey;
use flow::Engine;
use model::proxy::Proxy;
use registry::GatewayNames;
use registry::inputs::{Mesh, MeshSettings, Proxies, ProxyToken};

/// The derived world. One writer owns it; what it hands out is shared and immutable.
pub struct World {
    engine: Engine,
    next_token: u64,
    /// Which names the collections of endpoints have that a proxy gets; for all others the first.
    generations: BTreeMap<ProxyToken, u32>,
    /// What is to be said of watched objects since proxies came or went.
    said: Vec<(ObjectKey, Conflicts)>,
}

impl World {
    /// A world without objects. `threads` bounds how many cells are derived at the same time; 1 is serial.
    pub fn new(settings: MeshSettings, threads: usize) -> World {
        let mut builder = Engine::builder();
        registry::register(&mut builder);
        security::register(&mut builder);
        traffic::register(&mut builder);
        envoy::register(&mut builder);
        envoy_filter::register(&mut builder);
        builder.threads(threads);
        let mut engine = builder.build();
        let mut first = flow::Batch::new();
        first.put::<Mesh>((), Arc::new(settings));
        engine.commit(first);
        // Always held: whoever looks names up is told of changes.
        engine.subscribe::<GatewayNames>(());
        World {
            engine,
            next_token: 1,
            generations: BTreeMap::new(),
            said: Vec::new(),
        }
    }

    /// Commits a batch and tells what changed for those who are served.
    pub fn commit(&mut self, batch: Batch) -> Changes {
        let delta = self.engine.commit(batch.into_inner());
        Changes::of(&delta)
    }

    /// Adds a connected proxy. Its audiences are known when this returns.
    pub fn connect(&mut self, proxy: Arc<Proxy>) -> ProxyToken {
        let token = ProxyToken(self.next_token);
        self.next_token += 1;
        let mut batch = flow::Batch::new();
        batch.put::<Proxies>(token, proxy);
        let delta = self.engine.commit(batch);
        self.said.extend(conflicts::of(&delta));
        token
    }

    /// Forgets a proxy.
    pub fn disconnect(&mut self, token: ProxyToken) {
        let mut batch = flow::Batch::new();
        batch.remove::<Proxies>(token);
        self.generations.remove(&token);
        let delta = self.engine.commit(batch);
        self.said.extend(conflicts::of(&delta));
    }

    /// The conflicts that changed since proxies connected or disconnected, as [`Changes::conflicts`] reports for commits.
    pub fn take_conflicts(&mut self) -> Vec<(ObjectKey, Conflicts)> {
        std::mem::take(&mut self.said)
    }

    /// The names that derivation needs the addresses of ([`Batch::set_addresses`]).
    pub fn wanted_names(&self) -> Arc<BTreeSet<Arc<str>>> {
        self.engine
            .get::<GatewayNames>(&())
            .map(|names| (*names).clone())
            .unwrap_or_default()
    }

    /// The engine, for reading: debug output, `why`, statistics.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Derives everything anew from the inputs and compares: the oracle of incrementality.
    ///
    /// # Errors
    /// The first cell that differs.
    pub fn check(&self) -> Result<(), flow::Mismatch> {
        self.engine.agree(&self.engine.recompute())
    }

    /// A copy that shares everything with this one until one of them changes: what would a change do?
    pub fn fork(&self) -> World {
        World {
            engine: self.engine.fork(),
            next_token: self.next_token,
            generations: self.generations.clone(),
            said: Vec::new(),
        }
    }
}
