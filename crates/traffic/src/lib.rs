//! Rules that derive routes, traffic policy and visibility from resources: who sees which service, which
//! VirtualService and DestinationRule apply to it, and what clusters, listeners and route tables a proxy gets.
//!
//! The keys of the encoded resources are decided here; their bytes are not. Knows nothing of protobuf, of streams and of
//! proxies that share nothing: a rule sees an audience, never a proxy (but for [`audience`], which makes the audiences).

pub mod audience;
pub mod clusters;
pub mod conflicts;
pub mod gateways;
pub mod hosts;
pub mod listeners;
pub mod name_table;
pub mod policy;
pub mod proxy_config;
pub mod routes;
pub mod scope;
pub mod sessions;
pub mod stats;
mod terminate;
pub mod virtual_service;

use std::sync::Arc;

use model::audience::ResourceKey;

/// Everything of one resource type that an audience gets: name and key, ascending by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Catalogue {
    /// The entries; no name occurs twice.
    pub entries: Vec<(Arc<str>, ResourceKey)>,
}

impl Catalogue {
    /// A catalogue of these entries, in whatever order. Of two with one name the first stays.
    pub fn new(mut entries: Vec<(Arc<str>, ResourceKey)>) -> Catalogue {
        entries.sort_by(|a, b| a.0.cmp(&b.0));
        entries.dedup_by(|later, first| later.0 == first.0);
        Catalogue { entries }
    }

    /// The key of this name.
    pub fn get(&self, name: &str) -> Option<&ResourceKey> {
        let at = self.entries.binary_search_by(|(n, _)| (**n).cmp(name)).ok()?;
        Some(&self.entries[at].1)
    }
}

/// Adds this crate's rules to a graph, lower layers first. The rules of `registry` must be there.
pub fn register(b: &mut flow::Builder) {
    virtual_service::register(b);
    policy::register(b);
    scope::register(b);
    sessions::register(b);
    stats::register(b);
    audience::register(b);
    clusters::register(b);
    gateways::register(b);
    routes::register(b);
    listeners::register(b);
    name_table::register(b);
    proxy_config::register(b);
    conflicts::register(b);
}
