//! A cluster for people: it runs on when the command that started it has ended, until another command ends it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::control_plane::{ControlPlane, Settings};
use super::node::Node;
use super::workdir::{WorkDir, end};
use crate::run::Result;

/// What says that a start went through.
const COMPLETE: &str = "complete";

/// A cluster that is kept in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Its programs.
    pub programs: Vec<Program>,
    /// Whether it has, or should have, a node.
    pub node: bool,
    /// Whether its start went through.
    pub complete: bool,
}

/// A program of a kept cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// What it is called, as is its log in `logs`.
    pub name: String,
    /// Its process id.
    pub pid: u32,
    /// Whether it runs.
    pub running: bool,
}

impl Kept {
    /// Whether everything is as it should be.
    pub fn is_whole(&self) -> bool {
        self.complete && self.programs.iter().all(|program| program.running)
    }
}

/// Starts a cluster that is kept in this directory, and waits until it is ready; one that is there is left as it is. What
/// is left of one that has ended is taken away first. `say` is told what is done.
///
/// # Errors
/// A program does not start (nothing is left then), or a cluster without a node is there and one is wanted.
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
    let settings = Settings {
        node,
        ..Settings::default()
    };
    let started = start(dir, &settings, say).await;
    if started.is_err() && dir.exists() {
        end(dir)?;
    }
    started?;
    status(dir)?.ok_or_else(|| "the cluster has ended".into())
}

/// What is kept in this directory; nothing if no cluster is.
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

/// Ends the cluster that is kept in this directory, and takes everything away; whether there was one.
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

/// Whether this process is ours: numbers are given out again.
fn runs(pid: u32, dir: &Path) -> Result<bool> {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let dir = dir.canonicalize()?;
    Ok(String::from_utf8_lossy(&command).contains(&*dir.to_string_lossy()))
}

/// One command at a time.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.with_extension("lock");
    if let Some(above) = path.parent() {
        fs::create_dir_all(above)?;
    }
    let file = File::create(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    file.lock()?;
    Ok(file)
}
