//! Housekeeping: what a Kubernetes controller manager does for the kinds served here.
//!
//! Namespaces that are being deleted are emptied and go ([`namespaces`]); what an object owned goes with it ([`owners`]).
//! One task follows the whole store. It keeps nothing that the store does not have, so that it goes on where it was after
//! a restart; several replicas may do it at once, and do the same.

mod namespaces;
mod owners;

pub(crate) use namespaces::new_namespace;

use std::time::Duration;

use config::schema::Definition;
use serde_json::Value;
use store::{Error, Key, Scope, Stored, WatchEvent};

use crate::api::Api;
use crate::failure::Failure;

use owners::Owners;

/// How long it waits before it begins anew after the store failed.
const PAUSE: Duration = Duration::from_secs(1);

impl Api {
    /// Makes the namespaces that are always there, if they are not. To be done once, before requests are answered.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn prepare(&self) -> Result<(), Failure> {
        namespaces::make_usual(self).await
    }

    /// Empties namespaces that are being deleted, and deletes what has lost its owners. Never ends by itself.
    pub async fn keep_house(&self) {
        let mut stop = self.0.stop.subscribe();
        loop {
            tokio::select! {
                () = crate::api::stopped(&mut stop) => return,
                result = follow(self) => match result {
                    Err(Error::Closed) => return,
                    Err(Error::Compacted { .. }) | Ok(()) => {}
                    Err(error) => {
                        tracing::warn!(%error, "housekeeping stops for a moment");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }
}

/// Looks at everything, then at every change, until the store fails or the watch falls behind.
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

/// What is to be looked at.
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
                // Something in it is held by finalizers: the next change looks again.
                Ok(false) => left.push(key),
                Err(failure) => {
                    tracing::warn!(namespace = %key.name, failure = %failure.message, "a namespace cannot be emptied now");
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
    value["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|all| all.iter().any(|finalizer| finalizer == name))
}
