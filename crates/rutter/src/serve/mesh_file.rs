//! The file with the mesh configuration, read again when it changes.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use resources::{MeshConfig, ParseOptions};

use super::intake::log_diagnostic;

/// How often the file is looked at. It changes rarely, may be a link that is replaced (a mounted ConfigMap), and may be
/// missing for a moment: looking is simpler than watching, and soon enough.
const LOOK: Duration = Duration::from_secs(2);

/// The file, and what it held.
pub(super) struct MeshFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl MeshFile {
    /// Reads the file for the first time. It must be readable and valid: there is no last good version yet.
    pub(super) fn open(path: &Path) -> anyhow::Result<(MeshFile, MeshConfig)> {
        let mut file = MeshFile {
            path: path.to_owned(),
            bytes: Vec::new(),
        };
        let bytes = file
            .read()
            .map_err(|error| anyhow::anyhow!("{}: {error}", path.display()))?;
        let config = file.take(bytes);
        let config = config.ok_or_else(|| anyhow::anyhow!("{}: it is not valid; see the log", path.display()))?;
        Ok((file, config))
    }

    /// Calls `changed` with every valid new version, for ever. What cannot be read or is not valid is logged once.
    pub(super) async fn follow(mut self, mut changed: impl FnMut(MeshConfig)) {
        let mut looks = tokio::time::interval(LOOK);
        let mut failing = false;
        loop {
            looks.tick().await;
            match self.read() {
                Ok(bytes) => {
                    failing = false;
                    if bytes != self.bytes
                        && let Some(config) = self.take(bytes)
                    {
                        tracing::info!(file = %self.path.display(), "the mesh configuration changed");
                        changed(config);
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

    fn read(&self) -> io::Result<Vec<u8>> {
        let limit = ParseOptions::default().limits.file_bytes as u64 + 1;
        let mut bytes = Vec::new();
        fs::File::open(&self.path)?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Parses new content, and remembers it whether it is valid or not: it is reported once.
    fn take(&mut self, bytes: Vec<u8>) -> Option<MeshConfig> {
        let name = self.path.display().to_string();
        let (config, diagnostics) = resources::parse_mesh_config(&bytes, &name, &ParseOptions::default());
        diagnostics.iter().for_each(log_diagnostic);
        self.bytes = bytes;
        config
    }
}
