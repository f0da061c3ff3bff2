//! Snapshots of other clusters from earlier runs, for when these clusters or the Secrets that name them cannot be read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use config::{AnyObject, ChangeSet, Kind};
use kube::Client;
use sources::Closed;
use sources::kubernetes::{self, SnapshotOptions};

use super::super::PATIENCE;
use super::{Fleet, Options};

/// The kinds that are read of another cluster: its workloads, Gateways, because they may lead into its network, and Secrets of
/// its proxies. Other configuration comes from the home cluster.
const KINDS: [Kind; 10] = [
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Pod,
    Kind::Node,
    Kind::Namespace,
    Kind::WorkloadEntry,
    Kind::KubeGateway,
    Kind::ServiceExport,
    Kind::ServiceImport,
    Kind::Secret,
];
/// The prefix and suffix of a snapshot's file name, around the cluster's id.
const NAME: (&str, &str) = ("cluster-", ".snapshot");

impl Options {
    /// The options of a cluster's follower. If objects of the cluster are `known`, they are newer than any snapshot.
    pub(super) fn source(&self, cluster: &Arc<str>, way: &Client, known: bool) -> kubernetes::Options {
        let patience = if known { Duration::MAX } else { PATIENCE };
        kubernetes::Options {
            cluster: cluster.clone(),
            kinds: Some(KINDS.into()),
            filter: self.filter.clone(),
            credentials: self.credentials,
            snapshot: self.snapshot(cluster, patience),
            ..kubernetes::Options::new(way.clone())
        }
    }

    /// Removes the snapshot of a cluster.
    pub(super) async fn forget(&self, cluster: &str) {
        let Some((directory, ..)) = &self.kept else { return };
        let file = file(directory, cluster);
        let gone = tokio::task::spawn_blocking(move || match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tracing::warn!(file = %file.display(), %error, "the snapshot of a cluster that is gone stays");
            }
            _ => {}
        });
        // Fails only after a panic, which is logged.
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
    /// Serves the snapshots of all clusters. The Secrets cannot be read, so the set of clusters is unknown.
    pub(super) async fn remember(&mut self) -> Result<(), Closed> {
        let options = self.options.clone();
        let read = tokio::task::spawn_blocking(move || recall(&options)).await;
        let mut remembered = BTreeSet::new();
        for (cluster, objects) in read.unwrap_or_default() {
            tracing::warn!(cluster = %cluster, objects = objects.len(), "serving what an earlier run read of this cluster");
            let change = objects.into_iter().collect();
            self.listeners.changes.replace_cluster(&cluster, change).await?;
            remembered.insert(cluster);
        }
        self.remembered = Some(remembered);
        Ok(())
    }

    /// Drops the snapshots of clusters that no Secret names, once the Secrets are listed.
    pub(super) async fn forget_others(&mut self) -> Result<(), Closed> {
        let mut others = self.remembered.replace(BTreeSet::new()).unwrap_or_default();
        let options = self.options.clone();
        let kept = tokio::task::spawn_blocking(move || options.kept.map(|(directory, ..)| ids(&directory)));
        others.extend(kept.await.ok().flatten().unwrap_or_default());
        others.retain(|cluster| !self.members.contains_key(cluster));
        for cluster in others {
            self.options.forget(&cluster).await;
            self.listeners.changes.replace_cluster(&cluster, ChangeSet::default()).await?;
        }
        Ok(())
    }
}

/// Reads all snapshots, by cluster.
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

/// The file name of a cluster's snapshot. Keys of Secrets consist of letters, digits, dots, dashes and underscores;
/// other characters in an id are encoded as hexadecimal digits.
fn file(directory: &Path, cluster: &str) -> PathBuf {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let encoded: String = cluster
        .bytes()
        .map(|byte| match plain(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02x}"),
        })
        .collect();
    directory.join(format!("{}{encoded}{}", NAME.0, NAME.1))
}

/// Decodes the id from a file name without prefix and suffix. `None` if it is not such a name.
fn id(encoded: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = encoded.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// The clusters that have a snapshot file.
fn ids(directory: &Path) -> Vec<Arc<str>> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let of = |name: &str| Some(id(name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?)?.into());
    entries.filter_map(|entry| of(entry.file_name().to_str()?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_ids_and_file_names_correspond() {
        let directory = tempfile::tempdir().unwrap();
        let ids = ["east", "arn:aws:eks:eu/shop", "../a", "%41", "A", "m\u{fc}nchen"];
        for id in ids {
            let file = file(directory.path(), id);
            assert_eq!(file.parent(), Some(directory.path()));
            std::fs::write(file, "").unwrap();
        }
        let mut found: Vec<String> = super::ids(directory.path()).iter().map(ToString::to_string).collect();
        let mut wanted: Vec<String> = ids.map(str::to_owned).to_vec();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted);
        assert_eq!((id("%4"), id("%zz"), id("%ff")), (None, None, None));
    }
}
