//! A program of a cluster, which can be started, killed, stopped and restarted.
//!
//! It uses the processes of the standard library rather than of an async runtime: a control plane that tests share
//! outlives the runtime of the test that started it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::run::{Result, wait_for};

/// The timeout of a graceful stop.
const PATIENCE: Duration = Duration::from_secs(90);
/// The number of log lines in an error.
const LINES: usize = 25;

/// A program with its arguments, running or not.
pub(super) struct Process {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    /// The cluster's directory, with the log and a file with the process ID.
    dir: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Process {
    /// Creates a process without starting it. The arguments must contain a path in `dir`, by which a process is
    /// recognized as ours before it is killed by its ID.
    pub(super) fn new(name: &'static str, program: &Path, arguments: Vec<String>, dir: &Path) -> Process {
        Process { name, program: program.to_owned(), arguments, dir: dir.to_owned(), child: Mutex::new(None) }
    }

    /// Starts the program unless it is running.
    pub(super) fn start(&self) -> Result<()> {
        if self.is_running() {
            return Ok(());
        }
        let log = OpenOptions::new().create(true).append(true).open(self.log())?;
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(&self.dir)
            // Ctrl-C in the terminal must not reach it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(|error| format!("{}: {error}", self.program.display()))?;
        fs::write(self.dir.join("pids").join(self.name), child.id().to_string())?;
        *self.lock() = Some(child);
        Ok(())
    }

    /// Whether the program is running.
    pub(super) fn is_running(&self) -> bool {
        self.lock().as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// The process ID; `None` if it is not running.
    pub(super) fn id(&self) -> Option<u32> {
        self.is_running().then(|| self.lock().as_ref().map(Child::id)).flatten()
    }

    /// Kills the program, as a crash would.
    pub(super) fn kill(&self) -> Result<()> {
        if let Some(mut child) = self.lock().take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Stops the program gracefully and waits until it has exited.
    pub(super) async fn end(&self) -> Result<()> {
        self.signal("TERM")?;
        let ended = || async { (!self.is_running()).then_some(()) };
        wait_for(&format!("{} to end", self.name), PATIENCE, ended).await?;
        self.kill()
    }

    /// Sends a signal, such as `STOP`.
    pub(super) fn signal(&self, signal: &str) -> Result<()> {
        let Some(id) = self.id() else {
            return Err(format!("{} does not run", self.name).into());
        };
        let sent = Command::new("sh").args(["-c", &format!("kill -{signal} {id}")]).status()?;
        if sent.success() { Ok(()) } else { Err(format!("{} cannot be sent the signal {signal}", self.name).into()) }
    }

    /// Fails if the program has exited, with its status and the end of its log.
    pub(super) fn check(&self) -> Result<()> {
        let status: Option<ExitStatus> = match self.lock().as_mut() {
            Some(child) => child.try_wait()?,
            None => return Err(format!("{} does not run", self.name).into()),
        };
        match status {
            None => Ok(()),
            Some(status) => Err(format!("{} ended ({status}); its log ends:\n{}", self.name, self.log_end()).into()),
        }
    }

    /// Keeps the program running after this value is dropped.
    pub(super) fn keep(&self) {
        self.lock().take();
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("logs").join(format!("{}.log", self.name))
    }

    /// The last lines of the log.
    pub(super) fn log_end(&self) -> String {
        let log = fs::read(self.log()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The directory's watcher kills it if this fails.
        let _ = self.kill();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("name", &self.name).field("id", &self.id()).finish()
    }
}
