//! What goes wrong with a control plane: ends, crashes, silence, and going back to older data.

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
    /// Ends the API server at once, as a crash would.
    ///
    /// # Errors
    /// The system does not end it.
    pub fn kill_api_server(&self) -> Result<()> {
        self.api.kill()
    }

    /// Asks the API server to end, and waits until it has: up to a minute while there are watches.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn end_api_server(&self) -> Result<()> {
        self.api.end().await
    }

    /// Stops the API server from running, or lets it go on: connections stay, and nothing is answered.
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze_api_server(&self, frozen: bool) -> Result<()> {
        self.api.signal(if frozen { "STOP" } else { "CONT" })
    }

    /// Starts the API server after it was ended or killed, and waits until it is ready.
    ///
    /// # Errors
    /// It does not start; the error has the end of its log.
    pub async fn begin_api_server(&self) -> Result<()> {
        self.api.start()?;
        self.ready().await
    }

    /// Ends etcd at once, as a crash would. What was written is kept.
    ///
    /// # Errors
    /// The system does not end it.
    pub fn kill_etcd(&self) -> Result<()> {
        self.etcd.kill()
    }

    /// Starts etcd after it was killed, and waits until it and the API server are ready.
    ///
    /// # Errors
    /// It does not start; the error has the end of its log.
    pub async fn begin_etcd(&self) -> Result<()> {
        self.start_etcd().await?;
        self.ready().await
    }

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
