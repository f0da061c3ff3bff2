//! The directory that the control plane watches, edited as a careful operator would.

use std::fs;
use std::path::{Path, PathBuf};

use super::Result;

/// A directory of configuration files, removed at the end.
#[derive(Debug)]
pub struct ConfigDir {
    root: tempfile::TempDir,
    config: PathBuf,
}

impl ConfigDir {
    /// A new, empty one.
    pub fn new() -> Result<ConfigDir> {
        let root = tempfile::Builder::new().prefix("rutter-config-").tempdir()?;
        let config = root.path().join("config");
        fs::create_dir(&config)?;
        Ok(ConfigDir { root, config })
    }

    /// The directory to hand to the control plane.
    pub fn path(&self) -> &Path {
        &self.config
    }

    /// Writes a file whole: beside the directory first, then moved into place.
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
