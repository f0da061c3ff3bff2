//! The mesh configuration file (`--mesh-config`), which is polled for changes.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{ChangeSet, MeshConfig, Object, ParseOptions};
use server::log_diagnostics;

use super::config_sources;
use sources::ChangeSender;

/// The polling interval. Polling is simpler than a watch here: the file changes rarely, may be a symbolic link that is
/// replaced (a mounted ConfigMap), and may be missing for a moment.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The file and its last content.
pub(super) struct MeshFile {
    path: PathBuf,
    bytes: Vec<u8>,
    config: MeshConfig,
}

impl MeshFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    /// The file cannot be read or is invalid: there is no last valid version yet.
    pub(super) fn open(path: &Path) -> anyhow::Result<MeshFile> {
        let mut file = MeshFile { path: path.to_owned(), bytes: Vec::new(), config: MeshConfig::default() };
        let bytes = file.read().map_err(|error| anyhow::anyhow!("--mesh-config {}: {error}", path.display()))?;
        let config = file.take(bytes);
        file.config = config.ok_or_else(|| {
            anyhow::anyhow!("--mesh-config {}: the mesh configuration is invalid; see the log", path.display())
        })?;
        Ok(file)
    }

    /// The last valid content.
    pub(super) fn config(&self) -> &MeshConfig {
        &self.config
    }

    /// Reports the content and every valid new version, until the control plane stops. Errors are logged once.
    pub(super) async fn follow(mut self, changes: ChangeSender) {
        let mut polls = tokio::time::interval(POLL_INTERVAL);
        let mut failing = false;
        if changes.send(change(&self.config)).await.is_err() {
            return;
        }
        loop {
            polls.tick().await;
            match self.read() {
                Ok(bytes) => {
                    failing = false;
                    if bytes != self.bytes
                        && let Some(config) = self.take(bytes)
                    {
                        self.compare(&config);
                        if changes.send(change(&config)).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::error!(file = %self.path.display(), %error, "cannot read the mesh configuration; the last version stays in effect");
                }
                Err(_) => {}
            }
        }
    }

    /// Logs a change of `configSources`, which takes effect only after a restart.
    fn compare(&self, config: &MeshConfig) {
        if config.config_sources == self.config.config_sources {
            return;
        }
        match config_sources::read(config) {
            Ok(_) => tracing::warn!(
                file = %self.path.display(),
                "MeshConfig.configSources changed; restart to apply the change"
            ),
            Err(error) => tracing::error!(
                file = %self.path.display(),
                "MeshConfig.configSources changed and is invalid; the next start will fail: {error}"
            ),
        }
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let limit = ParseOptions::default().limits.file_bytes as u64 + 1;
        let mut bytes = Vec::new();
        fs::File::open(&self.path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Parses new content. Invalid content is remembered too, so that it is reported once.
    fn take(&mut self, bytes: Vec<u8>) -> Option<MeshConfig> {
        let name = self.path.display().to_string();
        let options = ParseOptions::default().degrading();
        let (config, diagnostics) = config::parse_mesh_config(&bytes, &name, &options);
        log_diagnostics(&diagnostics);
        self.bytes = bytes;
        config
    }
}

fn change(config: &MeshConfig) -> ChangeSet {
    let object = Object::new("", MeshConfig::NAME, config.clone()).into();
    [object].into_iter().collect()
}
