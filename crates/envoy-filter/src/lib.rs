//! Rules that change Envoy's configuration as EnvoyFilters say: the last thing that happens to it.
//!
//! An EnvoyFilter is compiled once ([`CompiledFilters`]): its values become Envoy's messages. Which of its patches are for
//! a proxy was decided before, with the audience, and is in the keys here. What no patch touches keeps the key that it has
//! without patches, and is shared with those who have none; what one touches is read encoded, decoded once, changed and
//! encoded again. So a change of a filter derives what it touches, and a change of a cluster the patched forms of that
//! cluster.
//!
//! Nothing here refuses a resource: a patch that cannot be read, does not fit, or would break a rule that Envoy keeps is
//! left out, and the others are made. Knows nothing of proxies and of why a resource is as it is.

pub mod apply;
mod catalogue;
mod compile;
mod extensions;
mod matching;
pub mod merge;
mod outcome;
mod resources_of;
mod routes;

pub use catalogue::{PatchedCatalogue, PatchedClusterCatalogue, PatchedListenerCatalogue};
pub use compile::{CompiledFilter, CompiledFilters, CompiledPatch};
pub use extensions::Extensions;
pub use outcome::{Left, Outcomes, PatchId, Patched, patch_ids};
pub use resources_of::{AddedResources, PatchedClusters, PatchedListeners};
pub use routes::{PatchedHost, PatchedRouteConfigs, PatchedVirtualHosts};

/// Adds this crate's rules to a graph. The rules of `registry`, `traffic` and `envoy` must be there.
pub fn register(b: &mut flow::Builder) {
    b.view::<CompiledFilters>();
    b.view::<PatchedClusters>();
    b.view::<PatchedListeners>();
    b.view::<AddedResources>();
    b.view::<PatchedVirtualHosts>();
    b.view::<PatchedRouteConfigs>();
    b.view::<Extensions>();
    b.view::<PatchedClusterCatalogue>();
    b.view::<PatchedListenerCatalogue>();
}
