//! Housekeeping, which a controller manager does in Kubernetes.
//!
//! Empties and removes deleted namespaces ([`namespaces`]) and deletes dependents of deleted owners ([`owners`]). One
//! task watches the whole store. It has no state of its own, so it continues after a restart, and several replicas can
//! run it at the same time.

mod namespaces;
mod owners;

pub(crate) use namespaces::new_namespace;

use std::time::Duration;

use config::schema::Definition;
use serde_json::Value;
use store::{Error, Key, Scope, Stored, WatchEvent};

use crate::api::Api;
use crate::error::ApiError;

use owners::Owners;

/// Delay before a restart after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

impl Api {
    /// Creates the default namespaces, and claims the cluster IPs in use. Must be called once before requests are served.
    ///
    /// # Errors
    /// The store is not writable.
    pub async fn prepare(&self) -> Result<(), ApiError> {
        if self.is_read_only() {
            return Ok(());
        }
        namespaces::make_usual(self).await?;
        self.claim_cluster_ips().await
    }

    /// Empties deleted namespaces and deletes orphaned dependents. Never returns.
    pub async fn run_housekeeping(&self) {
        let mut stop = self.0.stop.subscribe();
        loop {
            tokio::select! {
                () = crate::api::stopped(&mut stop) => return,
                result = follow(self) => match result {
                    Err(Error::Closed) => return,
                    Err(Error::Compacted { .. }) | Ok(()) => {}
                    Err(error) => {
                        tracing::warn!(%error, "housekeeping failed, retrying");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Processes all objects and then every change, until the store fails or the watch falls behind.
async fn follow(api: &Api) -> Result<(), Error> {
    let everything = api.0.store.snapshot(&Scope::default()).await?;
    let mut watch = api.0.store.watch(&Scope::default(), everything.revision).await?;
    let mut house = House::default();
    for stored in everything.items {
        house.there(&stored);
    }
    house.work(api).await;
    loop {
        match watch.next().await? {
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Changes(changes) => {
                for change in changes {
                    match (&change.before, &change.after) {
                        (_, Some(after)) => house.there(after),
                        (Some(before), None) => house.gone(before),
                        (None, None) => {}
                    }
                }
            }
        }
        house.work(api).await;
    }
}

/// Pending work.
#[derive(Default)]
struct House {
    /// Namespaces that are being deleted.
    terminating: Vec<Key>,
    owners: Owners,
}

impl House {
    fn there(&mut self, stored: &Stored) {
        self.owners.there(stored);
        let key = &stored.key;
        if is_namespace(key)
            && stored.value()["metadata"]["deletionTimestamp"].is_string()
            && !self.terminating.contains(key)
        {
            self.terminating.push(key.clone());
        }
    }

    fn gone(&mut self, stored: &Stored) {
        self.owners.gone(stored);
        if is_namespace(&stored.key) {
            self.terminating.retain(|key| *key != stored.key);
        }
    }

    async fn work(&mut self, api: &Api) {
        self.owners.work(api).await;
        let mut left = Vec::new();
        for key in std::mem::take(&mut self.terminating) {
            match namespaces::empty(api, &key).await {
                Ok(true) => {}
                // An object waits for its finalizers: its next change triggers another attempt.
                Ok(false) => left.push(key),
                Err(failure) => {
                    tracing::warn!(namespace = %key.name, failure = %failure.message, "cannot empty a namespace, retrying");
                    left.push(key);
                }
            }
        }
        self.terminating = left;
    }
}

fn is_namespace(key: &Key) -> bool {
    key.resource.group.is_empty() && &*key.resource.plural == "namespaces"
}

/// The kind of an object.
fn kind_of(key: &Key) -> Option<&'static Definition> {
    config::schema::find(&key.resource.group, &key.resource.plural)
}

fn has_finalizer(value: &Value, name: &str) -> bool {
    value["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|finalizer| finalizer == name))
}
