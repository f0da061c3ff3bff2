//! Going back: etcd's data as they were.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ControlPlane;
use crate::run::Result;

/// What etcd had at one moment. It goes with its control plane.
#[derive(Debug)]
pub struct Snapshot {
    data: PathBuf,
}

impl ControlPlane {
    /// Takes a copy of etcd's data. Clients notice a pause of milliseconds.
    ///
    /// # Errors
    /// etcd does not run, or there is no room for the copy.
    pub fn snapshot(&self) -> Result<Snapshot> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let data = self.dir().join("snapshots").join(number.to_string());
        // Nothing is written meanwhile: the copy is what a crash at this moment would leave.
        self.while_etcd_pauses(|from| copy(from, &data))?;
        Ok(Snapshot { data })
    }

    /// Goes back to a snapshot, as an operator does after a loss: everything is ended at once, etcd gets the older data, and
    /// all starts again. Resource versions go back with it.
    ///
    /// # Errors
    /// A program does not start; the error has the end of its log.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        let restored = |data: &Path| {
            std::fs::remove_dir_all(data)?;
            copy(&snapshot.data, data)
        };
        self.over_a_stop(restored).await
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // `cp` keeps holes: etcd's files are allocated in advance.
    let output = Command::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(from)
        .arg(to)
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("cp: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
