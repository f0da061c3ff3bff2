//! The objects of one resource as JSON, for controllers.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::event::Raw;
use super::request::{RequestError, Resource};
use super::watch::{self, RecoverySignal};

/// Batches of events that may wait.
const QUEUE: usize = 4;

/// An event. It has no `Debug`, because the objects may be secret.
pub enum Seen {
    /// The object was added or modified.
    Applied(Value),
    /// The object was deleted. Only its name and namespace are set.
    Deleted(Value),
    /// The list is complete.
    Synced,
    /// The objects cannot be read at the moment.
    Failing {
        /// The error.
        why: String,
        /// Whether access is denied.
        denied: bool,
    },
}

/// Follows the objects of a resource until the receiver is dropped. Objects that were deleted while nothing could be read
/// are reported as deleted.
pub async fn objects<E>(
    resource: Resource,
    (api_version, kind): (&str, &'static str),
    events: mpsc::Sender<E>,
    wrap: impl Fn(Seen) -> E,
) {
    let (sender, mut batches) = mpsc::channel(QUEUE);
    let watching = watch::run(resource, (), sender, RecoverySignal::default());
    let reporting = async move {
        let (mut known, mut failing) = (Known::default(), false);
        while let Some(((), batch)) = batches.recv().await {
            for item in batch.into_iter().flat_map(|event| known.take(event)) {
                failing &= !matches!(item, Item::Listed | Item::Recovered);
                let seen = match item {
                    Item::Applied(raw) => {
                        let mut object = raw.value;
                        // Items of a list have no type fields.
                        object["apiVersion"] = api_version.into();
                        object["kind"] = kind.into();
                        Seen::Applied(object)
                    }
                    Item::Deleted(namespace, name) => {
                        Seen::Deleted(json!({"metadata": {"namespace": &*namespace, "name": &*name}}))
                    }
                    Item::Listed => Seen::Synced,
                    // An expired watch lists again at once.
                    Item::Failed(error) if !failing && !matches!(error, RequestError::Expired(_)) => {
                        failing = true;
                        let (why, denied) = (error.to_string(), matches!(error, RequestError::Denied(_)));
                        match error {
                            RequestError::NotFound => {
                                tracing::info!(kind, "the server does not have this kind, will retry")
                            }
                            _ => tracing::warn!(why, kind, "cannot read the objects of a kind, will retry"),
                        }
                        Seen::Failing { why, denied }
                    }
                    Item::Failed(_) | Item::Recovered => continue,
                };
                if events.send(wrap(seen)).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::join!(watching, reporting);
}

/// An event in which objects that are missing from a new list are deleted.
pub(super) enum Item {
    Applied(Raw),
    /// Namespace and name.
    Deleted(Arc<str>, Arc<str>),
    Listed,
    Failed(RequestError),
    Recovered,
}

/// The names of the existing objects.
#[derive(Default)]
pub(super) struct Known {
    names: BTreeSet<(Arc<str>, Arc<str>)>,
    /// The names before the current list; `None` if there is none.
    before: Option<BTreeSet<(Arc<str>, Arc<str>)>>,
}

impl Known {
    pub(super) fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether a list is incomplete.
    pub(super) fn is_listing(&self) -> bool {
        self.before.is_some()
    }

    pub(super) fn take(&mut self, event: watch::Event) -> Vec<Item> {
        let name = |raw: &Raw| (raw.namespace.clone(), raw.name.clone());
        vec![match event {
            watch::Event::Listing => {
                self.before.get_or_insert_default().append(&mut self.names);
                return Vec::new();
            }
            watch::Event::Applied(raw) => {
                self.names.insert(name(&raw));
                Item::Applied(raw)
            }
            watch::Event::Deleted(raw) => {
                self.names.remove(&name(&raw));
                Item::Deleted(raw.namespace, raw.name)
            }
            watch::Event::Listed => {
                let gone = self.before.take().unwrap_or_default().into_iter();
                let gone = gone.filter(|name| !self.names.contains(name));
                let gone = gone.map(|(namespace, name)| Item::Deleted(namespace, name));
                return gone.chain([Item::Listed]).collect();
            }
            watch::Event::Failed(error) => Item::Failed(error),
            watch::Event::Recovered => Item::Recovered,
        }]
    }
}
