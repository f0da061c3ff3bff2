//! What earlier runs read of other clusters, for when they, or the Secrets that name them, cannot be read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use resources::{AnyObject, Kind};
use server::Closed;
use sources::Change;
use sources::clusters::Connection;
use sources::kubernetes::{self, SnapshotOptions};

use super::super::PATIENCE;
use super::{Fleet, Options};

/// What is read of another cluster: what runs there, and Gateways, for they may lead into its network. Other configuration
/// is that of the home cluster.
const KINDS: [Kind; 9] = [
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Pod,
    Kind::Node,
    Kind::Namespace,
    Kind::WorkloadEntry,
    Kind::KubeGateway,
    Kind::ServiceExport,
    Kind::ServiceImport,
];
/// What the files of snapshots are called, around the cluster's id.
const NAME: (&str, &str) = ("cluster-", ".snapshot");

impl Options {
    /// What a follower of a cluster is to do. Where something is `known` of it already, that is newer than any snapshot.
    pub(super) fn source(&self, cluster: &Arc<str>, way: &Connection, known: bool) -> kubernetes::Options {
        let patience = if known { Duration::MAX } else { PATIENCE };
        kubernetes::Options {
            cluster: cluster.clone(),
            kinds: Some(KINDS.into()),
            filter: self.filter.clone(),
            snapshot: self.snapshot(cluster, patience),
            ..kubernetes::Options::new(way.client.clone())
        }
    }

    /// Removes what is kept of a cluster.
    pub(super) async fn forget(&self, cluster: &str) {
        let Some((directory, ..)) = &self.kept else { return };
        let file = file(directory, cluster);
        let gone = tokio::task::spawn_blocking(move || match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(file = %file.display(), %error, "the snapshot of a cluster that is gone stays");
            }
            _ => {}
        });
        // It cannot fail but by a panic, which is logged.
        let _ = gone.await;
    }

    fn snapshot(&self, cluster: &str, patience: Duration) -> Option<SnapshotOptions> {
        let (directory, whose, interval) = self.kept.as_ref()?;
        Some(SnapshotOptions {
            file: file(directory, cluster),
            of: format!("cluster {cluster:?} of {whose}"),
            interval: *interval,
            patience,
        })
    }
}

impl Fleet {
    /// Serves the snapshots of all clusters: the home cluster is away, so that nobody can say which there are.
    pub(super) async fn remember(&mut self) -> Result<(), Closed> {
        let options = self.options.clone();
        let read = tokio::task::spawn_blocking(move || recall(&options)).await;
        let mut remembered = BTreeSet::new();
        for (cluster, objects) in read.unwrap_or_default() {
            tracing::warn!(cluster = %cluster, objects = objects.len(), "serving what an earlier run read of this cluster");
            let change = Change {
                upserts: objects,
                ..Change::default()
            };
            self.listeners.voice.say_all_of(&cluster, change).await?;
            remembered.insert(cluster);
        }
        self.remembered = Some(remembered);
        Ok(())
    }

    /// Forgets what was remembered of clusters that no Secret names, now that the Secrets are known.
    pub(super) async fn forget_others(&mut self) -> Result<(), Closed> {
        let mut others = self.remembered.replace(BTreeSet::new()).unwrap_or_default();
        let options = self.options.clone();
        let kept = tokio::task::spawn_blocking(move || options.kept.map(|(directory, ..)| ids(&directory)));
        others.extend(kept.await.ok().flatten().unwrap_or_default());
        others.retain(|cluster| !self.members.contains_key(cluster));
        for cluster in others {
            self.options.forget(&cluster).await;
            self.listeners.voice.say_all_of(&cluster, Change::default()).await?;
        }
        Ok(())
    }
}

/// Everything that is kept, by cluster.
fn recall(options: &Options) -> Vec<(Arc<str>, Vec<AnyObject>)> {
    let Some((directory, ..)) = &options.kept else {
        return Vec::new();
    };
    let one = |cluster: Arc<str>| {
        let snapshot = options.snapshot(&cluster, Duration::ZERO)?;
        let objects = kubernetes::recall(&snapshot, &cluster);
        (!objects.is_empty()).then_some((cluster, objects))
    };
    ids(directory).into_iter().filter_map(one).collect()
}

/// A cluster's id is a key of a Secret, which has letters, digits, dots, dashes and underscores only.
fn file(directory: &Path, cluster: &str) -> PathBuf {
    directory.join(format!("{}{cluster}{}", NAME.0, NAME.1))
}

/// The clusters of which there are files.
fn ids(directory: &Path) -> Vec<Arc<str>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let id = |name: &str| Some(name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?.into());
    entries.filter_map(|entry| id(entry.file_name().to_str()?)).collect()
}
