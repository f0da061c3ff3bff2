//! The API of a Kubernetes cluster, or anything shaped like it, as a source.
//!
//! Every kind that the mesh reads and the server serves is listed and watched, through one version each. A kind that a
//! CustomResourceDefinition brings is waited for, used as soon as it is established, and forgotten with its definition.
//! The first [`News`] hold everything, so that nobody acts on half a mesh. While the server is away, what was there stays;
//! after a gap a kind is listed anew, and what is gone then is deleted: after every fault the objects are those of a
//! fresh list.
//!
//! From bytes to objects: [`request`] asks, [`event`] parses no more than [`slim`] keeps, [`watch`] lists and goes on,
//! [`table`] compares with what is known, [`follower`] joins the kinds.

mod crds;
mod event;
mod follower;
mod mesh;
mod progress;
mod request;
mod revision;
mod slim;
mod snapshot;
mod table;
mod trim;
mod watch;

use std::collections::BTreeSet;
use std::sync::Arc;

use config::{AnyObject, Diagnostic, Kind, ObjectKey, ParseOptions};
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;

use crate::Change;

pub use mesh::MeshOptions;
pub use progress::Report;
pub use revision::Kinds;
pub use snapshot::SnapshotOptions;

/// Why a source could not be begun.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kubeconfig, or the configuration of the pod, cannot be used.
    #[error("no way to the Kubernetes API: {0}")]
    Configuration(String),
}

/// What is read, and how.
#[derive(Clone)]
pub struct Options {
    /// The way to the API.
    pub client: Client,
    /// The cluster's id, which its objects get ([`ObjectKey::cluster`]); empty for the home of the configuration.
    pub cluster: Arc<str>,
    /// The kinds that are read; none: all that a mesh reads.
    pub kinds: Option<BTreeSet<Kind>>,
    /// Which of these are left out.
    pub filter: Kinds,
    /// Secrets and ConfigMaps are read, for proxies that get them.
    pub credentials: bool,
    /// Our revision (empty: the default one), by which objects choose; none: they do not.
    pub revision: Option<String>,
    /// Where the mesh's settings are; none: not here.
    pub mesh: Option<MeshOptions>,
    /// Where what was read is kept for a start without the server; none: nowhere.
    pub snapshot: Option<SnapshotOptions>,
    /// How objects are parsed.
    pub parse: ParseOptions,
}

impl Options {
    /// Everything, without selection and without the mesh's settings.
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
            parse: ParseOptions::default(),
        }
    }
}

/// What changed, and what was seen of objects that have a status.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct News {
    /// What changed of the objects that are in force.
    pub change: Change,
    /// Objects that are there, valid or not.
    pub seen: Vec<Seen>,
    /// Objects that are gone, or are meant for another control plane by now.
    pub gone: Vec<ObjectKey>,
}

/// An object as whoever writes its status needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Which.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Arc<str>,
    /// `metadata.generation`.
    pub generation: i64,
    /// What is wrong with it.
    pub diagnostics: Vec<Diagnostic>,
    /// `status` as it is stored.
    pub status: Option<Value>,
}

/// A client as `kubectl` would make it: from `KUBECONFIG`, the user's kubeconfig, or the pod that this runs in.
///
/// # Errors
/// None of them is there or usable.
pub async fn client() -> Result<Client, Error> {
    Client::try_default()
        .await
        .map_err(|error| Error::Configuration(error.to_string()))
}

/// What a snapshot of a cluster has, for when the way to the cluster is not known; nothing where there is none that can be
/// used. Blocks while it is read.
pub fn recall(options: &SnapshotOptions, cluster: &Arc<str>) -> Vec<AnyObject> {
    let mut texts = trim::Texts::default();
    match snapshot::read(options) {
        Ok(entries) => entries
            .into_iter()
            .map(|(_, object)| texts.trim(object, cluster))
            .collect(),
        Err(error) => {
            tracing::warn!(file = %options.file.display(), "a snapshot cannot be used: {error}");
            Vec::new()
        }
    }
}

/// Follows the API until nobody takes the news any more. The channel's bound is what slows the source down when they come
/// faster than they are taken. `report` says all the while how it stands.
pub async fn follow(options: Options, news: mpsc::Sender<News>, report: tokio::sync::watch::Sender<Report>) {
    follower::Follower::new(options, report).run(news).await;
}
