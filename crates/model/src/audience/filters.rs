//! Keys of resources that EnvoyFilters patch.

use std::sync::Arc;

use super::ClusterKey;
use crate::listener::ListenerSpec;
use crate::service::ObjectId;

/// Decides the extension configurations that a proxy may request by name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ExtensionAudience {
    /// Patches that add extension configurations. The later of two with one name wins.
    pub filters: Filters,
}

/// Patches of EnvoyFilters, in the order in which they are applied.
pub type Filters = Arc<[FilterRef]>;

/// Patches of one EnvoyFilter.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FilterRef {
    /// The EnvoyFilter.
    pub id: ObjectId,
    /// Indexes of its patches, ascending.
    pub patches: Arc<[u16]>,
}

/// A cluster and its patches.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchedCluster {
    /// The cluster without the patches.
    pub cluster: ClusterKey,
    /// At least one patch.
    pub filters: Filters,
}

/// A listener and the patches that may apply to it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchedListener {
    /// The listener without the patches.
    pub listener: Arc<ListenerSpec>,
    /// At least one patch.
    pub filters: Filters,
}
