//! The directory of a cluster, and the watcher that removes it, and ends what runs in it, when its owner is gone.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::run::Result;

/// Ends the processes of a directory, and removes it.
const END: &str = include_str!("end.sh");

/// A directory with all that a cluster has: keys, logs, process ids, data.
#[derive(Debug)]
pub(super) struct WorkDir {
    path: PathBuf,
    /// Reads from a pipe that this process has the other end of. It ends when this process does, whatever the cause.
    watcher: Option<Child>,
}

impl WorkDir {
    /// A temporary one, which goes with this value, or at the latest with this process.
    pub(super) fn temporary() -> Result<WorkDir> {
        let path = tempfile::Builder::new().prefix("rutter-cluster-").tempdir()?.keep();
        furnish(&path)?;
        // Once more in a file that is not in the directory: a shell reads a script while it runs it.
        let watcher = Command::new("sh")
            .args(["-c", &format!("read -r _\n{END}"), "end.sh"])
            .arg(&path)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("sh: {error}"))?;
        Ok(WorkDir {
            path,
            watcher: Some(watcher),
        })
    }

    /// One that stays until [`end`].
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
            // The end of its input is the sign; what it does takes milliseconds.
            drop(watcher.stdin.take());
            let _ = watcher.wait();
        }
    }
}

/// Ends the processes of a lasting directory, and removes it.
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
    // By it a directory is known as a cluster's.
    fs::write(path.join("end.sh"), END)?;
    Ok(())
}
