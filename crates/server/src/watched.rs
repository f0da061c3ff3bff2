//! Values of the world that other threads watch.

use std::collections::BTreeSet;
use std::sync::Arc;

use config::MeshConfig;
use model::audience::Account;
use model::jwt::WantedKeys;
use tokio::sync::watch;
use world::{Batch, Changes, World};

use crate::mcp::Configuration;
use crate::pods::PodIndex;

/// Hostnames.
pub type Names = Arc<BTreeSet<Arc<str>>>;

/// Sources of public keys, with their users.
pub type Keys = Arc<WantedKeys>;

/// Service accounts.
pub type Accounts = Arc<BTreeSet<Account>>;

/// The values.
#[derive(Default)]
pub(crate) struct Watched {
    /// The hostnames that the world needs resolved.
    pub(crate) names: watch::Sender<Names>,
    /// The sources of keys that the world needs fetched.
    pub(crate) keys: watch::Sender<Keys>,
    /// The service accounts that get Secrets only if they may list them.
    pub(crate) readers: watch::Sender<Accounts>,
    /// The mesh configuration in effect.
    pub(crate) mesh: watch::Sender<Arc<MeshConfig>>,
    /// The objects in effect.
    pub(crate) objects: InEffect,
}

/// The objects in effect. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct InEffect {
    /// For other control planes.
    pub(crate) configuration: Configuration,
    /// The pods.
    pub(crate) pods: PodIndex,
}

impl InEffect {
    /// Commits a batch, and publishes the objects that took effect.
    pub(crate) fn commit(&self, world: &mut World, batch: Batch) -> Changes {
        let changes = world.commit(batch);
        self.configuration.apply(&changes.objects);
        self.pods.apply(&changes.objects);
        if changes.objects.deletes.contains(&MeshConfig::key()) {
            self.configuration.set_mesh(MeshConfig::default());
        }
        changes
    }
}

impl Watched {
    /// Publishes the hostnames and the sources of keys, if they changed.
    pub(crate) fn publish(&self, world: &World, names: bool, keys: bool) {
        if names {
            self.names.send_replace(world.wanted_names());
        }
        if keys {
            self.keys.send_replace(world.wanted_keys());
        }
    }
}
