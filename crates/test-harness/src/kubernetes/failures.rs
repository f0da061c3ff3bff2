//! Failures of a control plane: stops, crashes, freezes, and restores of older data.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use super::ControlPlane;
use crate::run::Result;

/// A copy of etcd's data. It is removed with its control plane.
#[derive(Debug)]
pub struct Snapshot {
    data: PathBuf,
}

impl ControlPlane {
    /// Kills the API server, as a crash would.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub fn kill_api_server(&self) -> Result<()> {
        self.api.kill()
    }

    /// Stops the API server and waits until it has exited, which takes up to a minute while there are watches.
    ///
    /// # Errors
    /// The API server does not exit in time.
    pub async fn end_api_server(&self) -> Result<()> {
        self.api.end().await
    }

    /// Freezes or resumes the API server. Connections stay open, but no request is answered.
    ///
    /// # Errors
    /// The API server is not running.
    pub fn freeze_api_server(&self, frozen: bool) -> Result<()> {
        self.api.signal(if frozen { "STOP" } else { "CONT" })
    }

    /// Starts the API server after it was stopped or killed, and waits until it is ready.
    ///
    /// # Errors
    /// The API server does not start; the error contains the end of its log.
    pub async fn begin_api_server(&self) -> Result<()> {
        self.api.start()?;
        self.ready().await
    }

    /// Kills etcd, as a crash would. Written data is kept.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub fn kill_etcd(&self) -> Result<()> {
        self.etcd.kill()
    }

    /// Starts etcd after it was killed, and waits until it and the API server are ready.
    ///
    /// # Errors
    /// A program does not start; the error contains the end of its log.
    pub async fn begin_etcd(&self) -> Result<()> {
        self.start_etcd().await?;
        self.ready().await
    }

    /// Copies etcd's data. Clients notice a pause of milliseconds.
    ///
    /// # Errors
    /// etcd is not running, or the copy fails.
    pub fn snapshot(&self) -> Result<Snapshot> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let data = self.dir().join("snapshots").join(number.to_string());
        // etcd is paused, so the copy equals the state after a crash at this moment.
        self.while_etcd_pauses(|from| copy(from, &data))?;
        Ok(Snapshot { data })
    }

    /// Restores a snapshot, as an operator does after a data loss: kills all programs, replaces etcd's data, and starts
    /// them again. Resource versions go back too.
    ///
    /// # Errors
    /// A program does not start; the error contains the end of its log.
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<()> {
        let restored = |data: &Path| {
            std::fs::remove_dir_all(data)?;
            copy(&snapshot.data, data)
        };
        self.over_a_stop(restored).await
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    // `cp` preserves holes: etcd preallocates its files.
    let output = Command::new("cp").args(["-a", "--sparse=always"]).arg(from).arg(to).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("cp: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
}
