//! The directory of configuration files that the control plane watches, with atomic edits.

use std::fs;
use std::path::{Path, PathBuf};

use super::Result;

/// A directory of configuration files, which is removed when it is dropped.
#[derive(Debug)]
pub struct ConfigDir {
    root: tempfile::TempDir,
    config: PathBuf,
}

impl ConfigDir {
    /// Creates an empty directory.
    pub fn new() -> Result<ConfigDir> {
        let root = tempfile::Builder::new().prefix("rutter-config-").tempdir()?;
        let config = root.path().join("config");
        fs::create_dir(&config)?;
        Ok(ConfigDir { root, config })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.config
    }

    /// Writes a file atomically: outside of the directory first, then renamed into place.
    pub fn put(&self, name: &str, text: &str) -> Result<()> {
        let draft = self.root.path().join(format!("draft-{name}"));
        fs::write(&draft, text)?;
        fs::rename(draft, self.config.join(name))?;
        Ok(())
    }

    /// Removes a file.
    pub fn remove(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.config.join(name))?)
    }
}
