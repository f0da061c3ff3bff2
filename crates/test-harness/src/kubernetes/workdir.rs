//! The directory of a cluster, and the watcher process that kills its processes and removes it when its owner is gone.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::Result;

/// The script that kills the processes of a directory and removes it.
const END: &str = include_str!("end.sh");

/// A directory with all files of a cluster: keys, logs, process IDs, data.
#[derive(Debug)]
pub(super) struct WorkDir {
    path: PathBuf,
    /// The watcher. It reads from a pipe that closes when this process ends, for whatever reason.
    watcher: Option<Child>,
}

impl WorkDir {
    /// Creates a temporary directory, which is removed when this value is dropped or this process ends.
    pub(super) fn temporary() -> Result<WorkDir> {
        let path = tempfile::Builder::new().prefix("rutter-cluster-").tempdir()?.keep();
        furnish(&path)?;
        // The script is passed by a copy outside of the directory, because a shell reads a script while it runs it.
        let watcher = Command::new("sh")
            .args(["-c", &format!("read -r _\n{END}"), "end.sh"])
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        Ok(WorkDir { path, watcher: Some(watcher) })
    }

    /// Creates a directory that exists until [`end`].
    pub(super) fn lasting(path: &Path) -> Result<WorkDir> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let path = path.canonicalize()?;
        furnish(&path)?;
        Ok(WorkDir { path, watcher: None })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Some(mut watcher) = self.watcher.take() {
            // Closing its input starts the cleanup, which takes milliseconds.
            drop(watcher.stdin.take());
            let _ = watcher.wait();
        }
    }
}

/// Kills the processes of a lasting directory and removes it.
pub(super) fn end(path: &Path) -> Result<()> {
    let status = Command::new("sh").args(["-c", END, "end.sh"]).arg(path).status()?;
    if path.exists() {
        return Err(format!("{} could not be removed ({status})", path.display()).into());
    }
    Ok(())
}

fn furnish(path: &Path) -> Result<()> {
    for part in ["pids", "logs", "snapshots"] {
        fs::create_dir_all(path.join(part))?;
    }
    // The script identifies the directory as that of a cluster.
    fs::write(path.join("end.sh"), END)?;
    Ok(())
}
