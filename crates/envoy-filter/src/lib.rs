//! Applies EnvoyFilters to encoded resources: the last step of derivation.
//!
//! ```text
//! EnvoyFilter ─► CompiledFilters ─┐
//! envoy: Clusters, … ─────────────┴─► PatchedClusters, PatchedListeners, PatchedVirtualHosts, AddedResources, …
//! traffic: ClusterCatalogue, … ─────► PatchedClusterCatalogue, PatchedListenerCatalogue, PatchedHostCatalogue
//! ```
//!
//! An EnvoyFilter is compiled once ([`CompiledFilters`]): its values become Envoy messages. The audience selects the patches
//! for a proxy; they are part of the keys here. A resource that no patch matches keeps its key and is shared with proxies
//! without EnvoyFilters. If an EnvoyFilter patches single clusters of some workloads only, these share the list of clusters with
//! others, and their own catalogue has what differs. A value that is merged into clusters is encoded once, and merged with their bytes ([`overlay`]). Other
//! resources that a patch matches are decoded, changed and encoded again.
//!
//! The bytes that an EnvoyFilter may add to one resource, and to all resources of a proxy, are limited.
//!
//! Invariant: no patch makes Envoy reject a resource. A patch that cannot be decoded, does not apply, or would violate one of
//! Envoy's rules is left out and reported ([`unmade`]); the others are applied.

pub mod apply;
mod budget;
mod catalogue;
mod compile;
mod error;
mod extensions;
mod host_catalogue;
mod hosts;
mod matching;
pub mod merge;
mod outcome;
pub mod overlay;
mod resources_of;
mod routes;
mod serving;
mod skipped;

pub use catalogue::{PatchedCatalogue, PatchedClusterCatalogue, PatchedListenerCatalogue, SelectivelyPatchedClusters};
pub use compile::PatchId;
pub use compile::{CompiledFilter, CompiledFilters, CompiledPatch};
pub use extensions::Extensions;
pub use host_catalogue::{PatchedHostCatalogue, PatchedHostList};
pub use hosts::{HostRow, PatchedVirtualHostResources, PatchedVirtualHosts};
pub use outcome::{Left, Outcomes, Patched, patch_ids};
pub use resources_of::{AddedResources, PatchedClusters, PatchedListeners};
pub use routes::{PatchedRouteConfigs, PatchedRouteShells};
pub use serving::{Client, register_types};
pub use skipped::{Unmade, changed_patches, unmade};

/// Adds this crate's rules to a graph. Register those of `registry`, `traffic` and `envoy` first.
pub fn register(b: &mut flow::Builder) {
    b.view::<CompiledFilters>();
    b.view::<PatchedClusters>();
    b.view::<PatchedListeners>();
    b.view::<AddedResources>();
    b.view::<PatchedVirtualHosts>();
    b.view::<PatchedVirtualHostResources>();
    b.view::<PatchedRouteConfigs>();
    b.view::<PatchedRouteShells>();
    b.view::<PatchedHostCatalogue>();
    b.view::<Extensions>();
    b.view::<SelectivelyPatchedClusters>();
    b.view::<PatchedClusterCatalogue>();
    b.view::<PatchedListenerCatalogue>();
}
