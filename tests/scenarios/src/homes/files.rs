//! A watched directory of files.

use std::fs;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use config::{ChangeSet, Kind, ObjectKey, ParseOptions};
use sources::files::{Watch, watch};
use tempfile::TempDir;

use super::markers::MARKER;
use super::{Document, Home};

/// The maximum time until the source has reported an edit.
const PATIENCE: Duration = Duration::from_secs(30);

/// A directory with one file for each object, and the source that watches it.
pub struct Files {
    said: Receiver<ChangeSet>,
    turn: u64,
    // The watch ends before its directory is removed.
    _watch: Watch,
    dir: TempDir,
}

impl Files {
    /// Creates an empty directory.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn new() -> Result<Files> {
        let dir = tempfile::tempdir()?;
        let (sender, said) = channel();
        let watch = watch(dir.path(), &ParseOptions::default(), move |change| {
            // The test may have ended.
            let _ = sender.send(change);
        })?;
        Ok(Files { said, turn: 0, _watch: watch, dir })
    }

    fn path(&self, key: &ObjectKey) -> PathBuf {
        let group = key.kind.group();
        // Each setting exists once, whatever its name.
        let name = match key.kind {
            Kind::MeshConfig | Kind::MeshNetworks => format!("{}.yaml", key.kind.name()),
            kind => format!("{}.{group}-{}-{}.yaml", kind.name(), key.namespace, key.name),
        };
        self.dir.path().join(name)
    }

    /// The changes of the source until it has read all existing files.
    fn settle(&mut self) -> Result<ChangeSet> {
        let mut sum = ChangeSet::default();
        // The scan that finds the first marker may have passed other files before they were written. The scan that
        // finds the second began after the first was found.
        for _ in 0..2 {
            self.turn += 1;
            let host = format!("marker-{}.example.com", self.turn);
            let text = format!(
                "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {{name: {MARKER}, namespace: {MARKER}}}\n\
                 spec: {{hosts: [{host}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: DNS}}\n"
            );
            fs::write(self.dir.path().join("marker.yaml"), text)?;
            while !self.take(&host, &mut sum)? {}
        }
        Ok(sum)
    }

    /// Receives the next change. Returns whether it contains the marker.
    fn take(&mut self, host: &str, sum: &mut ChangeSet) -> Result<bool> {
        let mut change = self.said.recv_timeout(PATIENCE).context("the directory is not read")?;
        let mut found = false;
        change.upserts.retain(|_, object| {
            let marker = &*object.meta().namespace == MARKER;
            found |= marker && object.spec_json()["hosts"][0] == host;
            !marker
        });
        sum.merge(change);
        Ok(found)
    }
}

impl Home for Files {
    fn name(&self) -> &'static str {
        "files"
    }

    fn edit(&mut self, puts: Vec<Document>, gone: Vec<ObjectKey>) -> Result<ChangeSet> {
        let clusters = puts.iter().map(|put| &put.key).chain(&gone);
        ensure!(clusters.clone().all(|key| key.cluster.is_empty()), "files are of no cluster");
        for key in &gone {
            fs::remove_file(self.path(key)).with_context(|| key.to_string())?;
        }
        for put in &puts {
            fs::write(self.path(&put.key), &put.text)?;
        }
        self.settle()
    }

    fn clear(&mut self) -> Result<()> {
        for entry in fs::read_dir(self.dir.path())? {
            fs::remove_file(entry?.path())?;
        }
        self.settle().map(drop)
    }
}
