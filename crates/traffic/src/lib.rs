//! Rules that derive a proxy's clusters, endpoints' audiences, listeners and route tables: visibility, routing and
//! traffic policy.
//!
//! ```text
//! Proxies ──► audience ──► ProxyAudiences (one audience per resource type)
//!                               │
//!         ┌─────────────────────┼──────────────────────┐
//!         ▼                     ▼                      ▼
//! clusters (ClusterCatalogue)  listeners, gateways    routes (RouteTables, VirtualHostCatalogue)
//!         └──── read ───────────┴────── read ──────────┘
//! scope (visible services) · virtual_service (matching) · policy (DestinationRules)
//! ```
//!
//! [`Catalogue`] lists the resources of one type with the keys that decide them; crate `envoy` encodes a key to bytes.
//! [`conflicts`] derives diagnostics about objects that contradict each other.
//!
//! Invariants: only [`audience`] reads a proxy; all other rules get an audience, so that proxies with equal audiences
//! share everything. Keys are complete: encoding makes no decisions. The crate knows no protobuf and no streams.

pub mod audience;
pub mod clusters;
pub mod conflicts;
pub mod credentials;
pub mod gateways;
pub mod hosts;
mod layered;
pub mod listeners;
pub mod name_table;
pub mod policy;
pub mod proxy_config;
pub mod routes;
pub mod scope;
pub mod serving;
pub mod sessions;
pub mod stats;
mod terminate;
pub mod trust_bundle;
pub mod virtual_service;

use std::sync::Arc;

use model::audience::ResourceKey;

/// All resources of one type of an audience: name and key, ascending by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    /// The entries; names are unique.
    pub entries: Vec<(Arc<str>, ResourceKey)>,
}

impl Catalogue {
    /// A catalogue of these entries in any order. The first of two entries with one name wins.
    pub fn new(mut entries: Vec<(Arc<str>, ResourceKey)>) -> Catalogue {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
        // There are some for each workload.
        entries.shrink_to_fit();
        Catalogue { entries }
    }

    /// The key of this name.
    pub fn get(&self, name: &str) -> Option<&ResourceKey> {
        let at = self.entries.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        Some(&self.entries[at].1)
    }

    /// The rows that differ from those of a catalogue that others share, and rows that hide those of its that are not here.
    pub fn beside(&self, shared: &Catalogue) -> Catalogue {
        let differs = |(name, key): &&(Arc<str>, ResourceKey)| shared.get(name) != Some(key);
        let hidden = shared.entries.iter().filter(|(name, _)| self.get(name).is_none());
        let hidden = hidden.map(|(name, _)| (name.clone(), ResourceKey::Hidden));
        Catalogue::new(self.entries.iter().filter(differs).cloned().chain(hidden).collect())
    }

    /// All rows of both, ascending by name: those of the other one, unless a row here replaces or hides them.
    pub fn over<'c>(&'c self, shared: &'c Catalogue) -> Vec<&'c (Arc<str>, ResourceKey)> {
        let below = shared.entries.iter().filter(|(name, _)| self.get(name).is_none());
        let rows = self.entries.iter().filter(|(_, key)| *key != ResourceKey::Hidden);
        let mut all: Vec<_> = rows.chain(below).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }
}

/// Adds this crate's rules to a graph, lower layers first. The rules of `registry` and `security` must be registered
/// before.
pub fn register(b: &mut flow::Builder) {
    virtual_service::register(b);
    policy::register(b);
    scope::register(b);
    sessions::register(b);
    stats::register(b);
    audience::register(b);
    credentials::register(b);
    clusters::register(b);
    gateways::register(b);
    routes::register(b);
    listeners::register(b);
    name_table::register(b);
    trust_bundle::register(b);
    proxy_config::register(b);
    conflicts::register(b);
}
