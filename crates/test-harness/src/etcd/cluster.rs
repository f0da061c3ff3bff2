//! A cluster of real etcd processes on loopback. Its members can be killed and restarted.

use std::fs::OpenOptions;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::run::{Result, free_port, http, wait_for};

/// The start timeout, sufficient for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Settings that differ from etcd's defaults.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether each write waits for the disk. If not, a killed process still loses nothing, but a failing machine does.
    pub fsync: bool,
    /// The interval of progress notifications on idle watches.
    pub progress: Duration,
    /// Additional flags for every member.
    pub flags: Vec<String>,
}

impl Default for Settings {
    /// Settings for tests: no fsync, progress every 200 ms.
    fn default() -> Settings {
        Settings { fsync: false, progress: Duration::from_millis(200), flags: Vec::new() }
    }
}

/// A running cluster. Addresses stay the same when members restart. Dropping it stops its processes and removes its
/// data.
#[derive(Debug)]
pub struct Cluster {
    binary: PathBuf,
    dir: tempfile::TempDir,
    settings: Settings,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
}

impl Cluster {
    /// Starts a cluster of this many members and waits until all of them respond.
    ///
    /// # Errors
    /// A member does not start; the error contains the end of its log.
    pub async fn start(binary: &Path, members: usize, settings: Settings) -> Result<Cluster> {
        let address = || SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let member = |_| Member { client: address(), peer: address(), child: None };
        let mut cluster = Cluster {
            binary: binary.to_owned(),
            dir: tempfile::Builder::new().prefix("rutter-etcd-").tempdir()?,
            settings,
            members: (0..members).map(member).collect(),
        };
        // Starts all members before waiting: a member becomes ready only with a majority.
        for index in 0..members {
            cluster.spawn(index)?;
        }
        for index in 0..members {
            cluster.ready(index).await?;
        }
        Ok(cluster)
    }

    /// The client addresses, `http://127.0.0.1:PORT`, one per member.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|m| format!("http://{}", m.client)).collect()
    }

    /// The number of members, running or not.
    pub fn size(&self) -> usize {
        self.members.len()
    }

    /// Kills a member, as a crash would.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub async fn kill(&mut self, index: usize) -> Result<()> {
        if let Some(mut child) = self.members[index].child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Stops a member (SIGTERM) and waits until it has exited.
    ///
    /// # Errors
    /// The member does not exit in time.
    pub async fn end(&mut self, index: usize) -> Result<()> {
        let Some(mut child) = self.members[index].child.take() else {
            return Ok(());
        };
        if let Some(id) = child.id() {
            Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status().await?;
        }
        let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
        ended.map_err(|_| "it did not end in time")??;
        Ok(())
    }

    /// Kills a member and removes its data.
    ///
    /// # Errors
    /// The process cannot be killed, or its directory cannot be removed.
    pub async fn lose(&mut self, index: usize) -> Result<()> {
        self.kill(index).await?;
        std::fs::remove_dir_all(self.dir.path().join(format!("m{index}")))?;
        Ok(())
    }

    /// Starts a stopped or killed member and waits until it responds.
    ///
    /// # Errors
    /// The member does not start; the error contains the end of its log.
    pub async fn begin(&mut self, index: usize) -> Result<()> {
        self.spawn(index)?;
        self.ready(index).await
    }

    /// The process ID of a member; `None` if it is not running.
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.members[index].child.as_ref().and_then(Child::id)
    }

    fn spawn(&mut self, index: usize) -> Result<()> {
        let name = |index: usize| format!("m{index}");
        let peers: Vec<String> =
            self.members.iter().enumerate().map(|(i, m)| format!("{}=http://{}", name(i), m.peer)).collect();
        let member = &mut self.members[index];
        let (client, peer) = (format!("http://{}", member.client), format!("http://{}", member.peer));
        let log = OpenOptions::new().create(true).append(true).open(self.dir.path().join(name(index) + ".log"))?;
        let mut command = Command::new(&self.binary);
        command
            .args(["--name", &name(index), "--initial-cluster-state", "new", "--log-level", "warn"])
            .arg("--data-dir")
            .arg(self.dir.path().join(name(index)))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-token", "rutter"])
            // Elections are short, but the timeout is long enough not to trigger them on a busy machine.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .arg(format!("--experimental-watch-progress-notify-interval={}ms", self.settings.progress.as_millis()))
            .args(&self.settings.flags);
        if !self.settings.fsync {
            command.arg("--unsafe-no-fsync");
        }
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("{}: {e}", self.binary.display()))?;
        member.child = Some(child);
        Ok(())
    }

    async fn ready(&mut self, index: usize) -> Result<()> {
        let Member { client, child, .. } = &mut self.members[index];
        let healthy =
            || async { http::get(*client, "/health", &[]).await.ok().filter(|a| a.status.is_success()).map(drop) };
        let what = format!("member {index} of etcd to be healthy");
        let ended = async {
            match child {
                Some(child) => child.wait().await,
                None => std::future::pending().await,
            }
        };
        let problem = tokio::select! {
            waited = wait_for(&what, PATIENCE, healthy) => match waited {
                Ok(()) => return Ok(()),
                Err(error) => error.to_string(),
            },
            // Without a process nobody need wait.
            status = ended => format!("member {index} of etcd has ended ({status:?})"),
        };
        Err(format!("{problem}; its log ends:\n{}", self.log_end(index)?).into())
    }

    fn log_end(&self, index: usize) -> Result<String> {
        let log = std::fs::read_to_string(self.dir.path().join(format!("m{index}.log")))?;
        let lines: Vec<&str> = log.lines().collect();
        Ok(lines[lines.len().saturating_sub(20)..].join("\n"))
    }
}
