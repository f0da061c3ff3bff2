//! Watches of controllers and of the Secrets that name clusters.

use controllers::Watched;
use kube::Client;
use sources::kubernetes::{self, Resource, Seen};
use tokio::sync::mpsc;

/// Follows the objects of a watch until the receiver is dropped.
pub(crate) async fn follow<E>(client: Client, watched: Watched, events: mpsc::Sender<E>, wrap: impl Fn(Seen) -> E) {
    let of = watched.resource;
    let resource = Resource::selected(
        &client,
        (of.group, of.version, of.plural),
        watched.namespace.as_deref(),
        watched.labels.as_deref(),
        watched.fields.as_deref(),
    );
    kubernetes::objects(resource, (&of.api_version(), of.kind), events, wrap).await;
}
