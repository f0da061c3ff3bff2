//! A Kubernetes API as a source.
//!
//! Every kind that the mesh reads and the server serves is listed and watched in one version. A kind defined by a
//! CustomResourceDefinition is read when it is established, and removed with its definition. The first change set is
//! complete, so nothing acts on a partial mesh. While the server is unavailable, the last state stays in effect. After
//! a gap a kind is relisted and missing objects are deleted: after any failure the objects are those of a fresh list.
//!
//! From bytes to objects: [`request`] sends requests, [`event`] parses only what [`slim`] keeps, [`watch`] lists and
//! watches, [`table`] compares with the known objects, [`follower`] combines the kinds.

mod crds;
pub(crate) mod event;
mod follower;
mod mesh;
mod objects;
mod progress;
mod request;
mod revision;
pub(crate) mod slim;
mod snapshot;
pub(crate) mod table;
pub(crate) mod trim;
mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{AnyObject, Kind, ParseOptions};
use kube::Client;

use crate::ChangeSender;

pub use mesh::MeshOptions;
pub use objects::{Seen, objects};
pub use progress::Report;
pub use request::Resource;
pub use revision::Kinds;
pub use snapshot::SnapshotOptions;

/// An error of the client configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig, or the configuration of the pod, is invalid.
    #[error("cannot configure a client of the Kubernetes API: {0}")]
    Configuration(String),
}

/// Options of a Kubernetes source.
#[derive(Clone)]
pub struct Options {
    /// The client.
    pub client: Client,
    /// The cluster id of the objects ([`ObjectKey::cluster`](config::ObjectKey::cluster)); empty for the config
    /// cluster.
    pub cluster: Arc<str>,
    /// The kinds to read; `None` for all kinds of the mesh.
    pub kinds: Option<BTreeSet<Kind>>,
    /// Kinds to ignore.
    pub filter: Kinds,
    /// Whether to read Secrets and ConfigMaps with credentials for proxies.
    pub credentials: bool,
    /// The revision of this control plane (empty for the default revision), by which objects are selected. `None`
    /// selects all objects.
    pub revision: Option<String>,
    /// The location of the mesh configuration; `None` if it is not in this cluster.
    pub mesh: Option<MeshOptions>,
    /// Where to keep a snapshot for starts without the server; `None` for no snapshot.
    pub snapshot: Option<SnapshotOptions>,
    /// The parser options.
    pub parse: ParseOptions,
}

impl Options {
    /// Reads everything, without revision and mesh configuration.
    pub fn new(client: Client) -> Options {
        Options {
            client,
            cluster: Arc::default(),
            kinds: None,
            filter: Kinds::default(),
            credentials: false,
            revision: None,
            mesh: None,
            snapshot: None,
            parse: ParseOptions::default().degrading(),
        }
    }
}

/// Creates a client as `kubectl` does: from `KUBECONFIG`, the user's kubeconfig, or the pod's service account.
///
/// # Errors
/// None of them is usable.
pub async fn client() -> Result<Client, Error> {
    Client::try_default().await.map_err(|error| Error::Configuration(error.to_string()))
}

/// Reads the objects of a snapshot, for a cluster whose connection is not known. Empty if there is no usable snapshot.
/// Blocks.
pub fn recall(options: &SnapshotOptions, cluster: &Arc<str>) -> Vec<AnyObject> {
    let mut texts = trim::Texts::default();
    match snapshot::read(options) {
        Ok(entries) => entries.into_iter().map(|(_, object)| texts.trim(object, cluster)).collect(),
        Err(error) => {
            tracing::warn!(file = %options.file.display(), "a snapshot is not usable: {error}");
            Vec::new()
        }
    }
}

/// Follows the API until the receiver is dropped. A full channel slows the source down. `report` always has the current
/// state. The future ends when no snapshot is being written any more.
pub async fn follow(options: Options, changes: ChangeSender, report: tokio::sync::watch::Sender<Report>) {
    follower::Follower::new(options, report).run(changes).await;
}
