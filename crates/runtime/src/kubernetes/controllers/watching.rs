//! Lists and watches objects of one kind.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use controllers::Watched;
use futures::StreamExt as _;
use kube::Client;
use kube::api::{Api, DynamicObject};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use serde_json::{Value, json};
use tokio::sync::mpsc;

/// The initial and the maximum backoff.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// An event of a watch. It has no `Debug`, because objects may be secret.
pub(in crate::kubernetes) enum Seen {
    /// An object was added or changed.
    Applied(Value),
    /// An object was deleted. It may have only its name and namespace.
    Deleted(Value),
    /// The initial list, or a relist, is complete.
    Synced,
    /// The kind cannot be read.
    Failing {
        /// The reason, as text.
        why: String,
        denied: bool,
    },
}

/// Lists and watches until the receiver is dropped. Objects that were deleted during an interruption are reported as
/// deleted.
pub(in crate::kubernetes) async fn follow(
    client: Client,
    watched: Watched,
    place: usize,
    events: mpsc::Sender<(usize, Seen)>,
) {
    let (group, version, kind) = watched.kind;
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), watched.plural);
    let api: Api<DynamicObject> = match &watched.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let config = watcher::Config {
        label_selector: watched.labels.clone(),
        field_selector: watched.fields.clone(),
        ..watcher::Config::default()
    };
    let mut stream = pin!(watcher(api, config));
    let mut pauses = 0;
    let mut known = BTreeSet::new();
    let mut before = BTreeSet::new();
    let mut failing = false;
    while let Some(event) = stream.next().await {
        let seen = match event {
            Ok(event) => {
                // The start of an attempt does not count as success.
                if !matches!(event, watcher::Event::Init) {
                    (failing, pauses) = (false, 0);
                }
                match event {
                    watcher::Event::Init => {
                        before = std::mem::take(&mut known);
                        continue;
                    }
                    watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                        known.insert(name(&object));
                        vec![Seen::Applied(value(&object))]
                    }
                    watcher::Event::Delete(object) => {
                        known.remove(&name(&object));
                        vec![Seen::Deleted(value(&object))]
                    }
                    watcher::Event::InitDone => {
                        let gone = std::mem::take(&mut before)
                            .into_iter()
                            .filter(|name| !known.contains(name));
                        let gone = gone.map(|(namespace, name)| {
                            Seen::Deleted(json!({"metadata": {"namespace": namespace, "name": name}}))
                        });
                        gone.chain([Seen::Synced]).collect()
                    }
                }
            }
            Err(error) => {
                let reported = std::mem::replace(&mut failing, true);
                if !reported {
                    tracing::warn!(%error, kind, "a controller cannot read what it needs; it tries again");
                    let seen = Seen::Failing {
                        why: error.to_string(),
                        denied: is_denied(&error),
                    };
                    if events.send((place, seen)).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep(pause(pauses)).await;
                pauses += 1;
                continue;
            }
        };
        for seen in seen {
            if events.send((place, seen)).await.is_err() {
                return;
            }
        }
    }
}

/// The backoff after this many failed attempts: it doubles each time. (The watcher's own backoff restarts with each
/// attempt.)
fn pause(attempts: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << attempts.min(16)).min(LONGEST_PAUSE)
}

/// Whether the API denied access.
fn is_denied(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => matches!(error, kube::Error::Api(status) if status.code == 403),
        watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::NoResourceVersion => false,
    }
}

fn name(object: &DynamicObject) -> (String, String) {
    let meta = &object.metadata;
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

/// The object as JSON without `managedFields`, which are large and not read here.
fn value(object: &DynamicObject) -> Value {
    let mut value = serde_json::to_value(object).unwrap_or_default();
    if let Some(meta) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        meta.remove("managedFields");
    }
    value
}
