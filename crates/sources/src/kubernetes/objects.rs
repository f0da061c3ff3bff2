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
    There(Value),
    /// The object was deleted. It has at least its name and namespace.
    Gone(Value),
    /// The list is complete.
    Everything,
    /// The objects cannot be read at the moment.
    Failing {
        /// The error.
        why: String,
        /// Whether access is denied.
        denied: bool,
    },
}

/// Follows the objects of a resource until the receiver is dropped. Objects that were deleted while nothing could be read
/// are reported as gone.
pub async fn objects<E>(
    resource: Resource,
    (api_version, kind): (&str, &'static str),
    events: mpsc::Sender<E>,
    wrap: impl Fn(Seen) -> E,
) {
    let (sender, mut batches) = mpsc::channel(QUEUE);
    let watching = watch::run(resource, (), sender, RecoverySignal::default());
    let telling = async move {
        let mut known = Known::default();
        while let Some(((), batch)) = batches.recv().await {
            for mut seen in batch.into_iter().flat_map(|event| known.seen(event)) {
                match &mut seen {
                    // Items of a list have no type fields.
                    Seen::There(object) => {
                        object["apiVersion"] = api_version.into();
                        object["kind"] = kind.into();
                    }
                    Seen::Failing { why, .. } => {
                        tracing::warn!(why, kind, "cannot read the objects of a kind, will retry")
                    }
                    Seen::Gone(_) | Seen::Everything => {}
                }
                if events.send(wrap(seen)).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::join!(watching, telling);
}

/// Namespace and name.
type Name = (Arc<str>, Arc<str>);

/// The names of the existing objects.
#[derive(Default)]
struct Known {
    names: BTreeSet<Name>,
    /// The names before the current list.
    before: BTreeSet<Name>,
    failing: bool,
}

impl Known {
    fn seen(&mut self, event: watch::Event) -> Vec<Seen> {
        let name = |raw: &Raw| (raw.namespace.clone(), raw.name.clone());
        match event {
            watch::Event::Listing => {
                self.before.append(&mut self.names);
                Vec::new()
            }
            watch::Event::Applied(raw) => {
                self.names.insert(name(&raw));
                vec![Seen::There(raw.value)]
            }
            watch::Event::Deleted(raw) => {
                self.names.remove(&name(&raw));
                vec![Seen::Gone(raw.value)]
            }
            watch::Event::Listed => {
                self.failing = false;
                let gone = std::mem::take(&mut self.before).into_iter();
                let gone = gone.filter(|name| !self.names.contains(name)).map(|(namespace, name)| {
                    Seen::Gone(json!({"metadata": {"namespace": &*namespace, "name": &*name}}))
                });
                gone.chain([Seen::Everything]).collect()
            }
            // Listed again at once.
            watch::Event::Failed(RequestError::Expired(_)) => Vec::new(),
            watch::Event::Failed(error) => {
                let denied = matches!(error, RequestError::Denied(_));
                let why = error.to_string();
                match std::mem::replace(&mut self.failing, true) {
                    true => Vec::new(),
                    false => vec![Seen::Failing { why, denied }],
                }
            }
            watch::Event::Recovered => {
                self.failing = false;
                Vec::new()
            }
        }
    }
}
