//! Keys of resources that EnvoyFilters patch.

use std::fmt;
use std::sync::Arc;

use super::{ClusterKey, VirtualHostSpec};
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

/// A virtual host and the patches that may match it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct PatchedHost {
    /// The virtual host without the patches.
    pub host: HostSource,
    /// The patches; none for a virtual host that a patch adds and no other one matches.
    pub filters: Filters,
}

/// A virtual host before it is patched.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum HostSource {
    /// A virtual host of a route table.
    Table(Arc<VirtualHostSpec>),
    /// A virtual host that a patch adds.
    Patch {
        /// The EnvoyFilter.
        filter: ObjectId,
        /// The index of the patch in it.
        patch: u16,
        /// The index of the virtual host in the patch.
        host: usize,
    },
}

impl PatchedHost {
    /// The virtual host of the route table; none if a patch adds it.
    pub fn of_table(&self) -> Option<&Arc<VirtualHostSpec>> {
        match &self.host {
            HostSource::Table(host) => Some(host),
            HostSource::Patch { .. } => None,
        }
    }
}

impl fmt::Display for HostSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostSource::Table(host) => f.write_str(&host.name),
            HostSource::Patch { filter, patch, host } => write!(f, "{filter}~{patch}~{host}"),
        }
    }
}
