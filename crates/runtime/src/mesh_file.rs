//! The file with the mesh configuration, read again when it changes.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::log_diagnostic;
use config::{MeshConfig, Object, ParseOptions};
use sources::Change;

use super::elsewhere;
use super::intake::Voice;

/// How often the file is looked at. It changes rarely, may be a link that is replaced (a mounted ConfigMap), and may be
/// missing for a moment: looking is simpler than watching, and soon enough.
const LOOK: Duration = Duration::from_secs(2);

/// The file, and what it held.
pub(super) struct MeshFile {
    path: PathBuf,
    bytes: Vec<u8>,
    config: MeshConfig,
}

impl MeshFile {
    /// Reads the file for the first time. It must be readable and valid: there is no last good version yet.
    pub(super) fn open(path: &Path) -> anyhow::Result<MeshFile> {
        let mut file = MeshFile {
            path: path.to_owned(),
            bytes: Vec::new(),
            config: MeshConfig::default(),
        };
        let bytes = file
            .read()
            .map_err(|error| anyhow::anyhow!("--mesh-config {}: {error}", path.display()))?;
        let config = file.take(bytes);
        file.config =
            config.ok_or_else(|| anyhow::anyhow!("--mesh-config {}: it is not valid; see the log", path.display()))?;
        Ok(file)
    }

    /// What it says.
    pub(super) fn config(&self) -> &MeshConfig {
        &self.config
    }

    /// Says what is in it, and every valid new version from then on, until the control plane ends. What cannot be read or
    /// is not valid is logged once.
    pub(super) async fn follow(mut self, voice: Voice) {
        let mut looks = tokio::time::interval(LOOK);
        let mut failing = false;
        if voice.say(change(&self.config), Vec::new()).await.is_err() {
            return;
        }
        loop {
            looks.tick().await;
            match self.read() {
                Ok(bytes) => {
                    failing = false;
                    if bytes != self.bytes
                        && let Some(config) = self.take(bytes)
                    {
                        self.compare(&config);
                        if voice.say(change(&config), Vec::new()).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) if !failing => {
                    failing = true;
                    tracing::error!(file = %self.path.display(), %error, "the mesh configuration cannot be read; it stays as it is");
                }
                Err(_) => {}
            }
        }
    }

    /// Sources begin at the start: says so when the file names others now.
    fn compare(&self, config: &MeshConfig) {
        if config.config_sources == self.config.config_sources {
            return;
        }
        match elsewhere::read(config) {
            Ok(_) => tracing::warn!(
                file = %self.path.display(),
                "MeshConfig.configSources changed: this takes effect at the next start of this process"
            ),
            Err(error) => tracing::error!(
                file = %self.path.display(),
                "MeshConfig.configSources changed, and this process will not start with it: {error}"
            ),
        }
    }

    fn read(&self) -> io::Result<Vec<u8>> {
        let limit = ParseOptions::default().limits.file_bytes as u64 + 1;
        let mut bytes = Vec::new();
        fs::File::open(&self.path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Parses new content, and remembers it whether it is valid or not: it is reported once.
    fn take(&mut self, bytes: Vec<u8>) -> Option<MeshConfig> {
        let name = self.path.display().to_string();
        let (config, diagnostics) = config::parse_mesh_config(&bytes, &name, &ParseOptions::default());
        diagnostics.iter().for_each(log_diagnostic);
        self.bytes = bytes;
        config
    }
}

fn change(config: &MeshConfig) -> Change {
    Change {
        upserts: vec![Object::new("", MeshConfig::NAME, config.clone()).into()],
        ..Change::default()
    }
}
