//! A cluster for interactive use. It keeps running after the command that started it, until another command stops it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::control_plane::{ControlPlane, Settings};
use super::node::Node;
use super::workdir::{WorkDir, end};
use crate::run::Result;

/// The file that marks a completed start.
const COMPLETE: &str = "complete";

/// A cluster that is kept in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Its programs.
    pub programs: Vec<Program>,
    /// Whether the cluster has, or should have, a node.
    pub node: bool,
    /// Whether its start completed.
    pub complete: bool,
}

/// A program of a kept cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The name of the program and of its log in `logs`.
    pub name: String,
    /// The process ID.
    pub pid: u32,
    /// Whether the program is running.
    pub running: bool,
}

impl Kept {
    /// Whether the start completed and all programs are running.
    pub fn is_whole(&self) -> bool {
        self.complete && self.programs.iter().all(|program| program.running)
    }
}

/// Starts a cluster in this directory and waits until it is ready. A running cluster is left as it is; the remains of a
/// stopped one are removed first. Reports progress to `say`.
///
/// # Errors
/// A program does not start (then nothing is left), or a cluster without a node is running and a node is requested.
pub async fn up(dir: &Path, node: bool, say: &mut dyn FnMut(&str)) -> Result<Kept> {
    let _turn = lock(dir)?;
    if let Some(kept) = status(dir)? {
        if kept.is_whole() && kept.node >= node {
            say("the cluster runs already");
            return Ok(kept);
        }
        if kept.is_whole() {
            return Err("the cluster runs without a node, and cannot get one: end it first (`cluster down`)".into());
        }
        say("a cluster that does not run any more is taken away first");
        end(dir)?;
    }
    say("starting etcd, kube-apiserver and kube-controller-manager");
    let settings = Settings { node, ..Settings::default() };
    let started = start(dir, &settings, say).await;
    if started.is_err() && dir.exists() {
        end(dir)?;
    }
    started?;
    status(dir)?.ok_or_else(|| "the cluster has ended".into())
}

/// Describes the cluster in this directory; `None` if there is none.
///
/// # Errors
/// The directory cannot be read.
pub fn status(dir: &Path) -> Result<Option<Kept>> {
    let pids = dir.join("pids");
    if !pids.is_dir() {
        return Ok(None);
    }
    let mut programs = Vec::new();
    for entry in fs::read_dir(&pids)? {
        let entry = entry?;
        let pid: u32 = fs::read_to_string(entry.path())?.trim().parse()?;
        programs.push(Program {
            name: entry.file_name().to_string_lossy().into_owned(),
            pid,
            running: runs(pid, dir)?,
        });
    }
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Some(Kept {
        kubeconfig: dir.join("kubeconfig"),
        programs,
        node: dir.join("netns").exists(),
        complete: dir.join(COMPLETE).exists(),
    }))
}

/// Stops the cluster in this directory and removes its data. Returns whether there was one.
///
/// # Errors
/// The directory cannot be removed.
pub fn down(dir: &Path) -> Result<bool> {
    let _turn = lock(dir)?;
    if status(dir)?.is_none() {
        return Ok(false);
    }
    end(dir)?;
    Ok(true)
}

async fn start(dir: &Path, settings: &Settings, say: &mut dyn FnMut(&str)) -> Result<()> {
    let plane = ControlPlane::start_in(WorkDir::lasting(dir)?, settings).await?;
    if settings.node {
        say("starting containerd, kubelet and kube-proxy");
        Node::start(&plane).await?.keep();
    }
    fs::write(dir.join(COMPLETE), "")?;
    plane.keep();
    Ok(())
}

/// Whether this process belongs to the cluster: process IDs are reused.
fn runs(pid: u32, dir: &Path) -> Result<bool> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let dir = dir.canonicalize()?;
    Ok(String::from_utf8_lossy(&command).contains(&*dir.to_string_lossy()))
}

/// Takes the lock that lets commands run one at a time.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.with_extension("lock");
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.lock()?;
    Ok(file)
}
