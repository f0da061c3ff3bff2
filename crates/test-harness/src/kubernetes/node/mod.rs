//! A node that runs real pods: containerd, kubelet and kube-proxy in Linux namespaces of their own.
//!
//! The node has its own mount, PID and network namespaces: killing its first process ends everything in it, and this
//! machine needs no cleanup. Pods and Services are reachable from this machine by their addresses.

mod files;

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::control_plane::ControlPlane;
use super::image::Image;
use super::kubeconfig::{Proof, kubeconfig, write_private};
use super::machine::program;
pub use super::machine::{PACKAGES, missing};
use super::network::Network;
use super::process::Process;
use crate::run::{Result, wait_for};

/// The timeout of a start or an image import, sufficient for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running node. It ends when it or its control plane is dropped.
#[derive(Debug)]
pub struct Node {
    process: Process,
    network: Network,
    dir: PathBuf,
}

impl Node {
    /// Starts the node of a control plane that was started with [`super::Settings::node`], and waits until pods can
    /// run, which takes about 10 seconds. A control plane has at most one node.
    ///
    /// # Errors
    /// This machine lacks a requirement ([`missing`] describes it), or a program does not start; the error contains the
    /// end of a log.
    pub async fn start(plane: &ControlPlane) -> Result<Node> {
        if let Some(missing) = missing() {
            return Err(missing.into());
        }
        let network = plane.network.ok_or("the control plane was not started for a node: set `Settings::node`")?;
        let (dir, name) = (plane.dir(), network.name());
        files::write(dir, network, &name, snapshotter(dir)?, plane.dns())?;
        for (file, user, group) in [
            ("kubelet.kubeconfig", format!("system:node:{name}"), Some("system:nodes")),
            ("kube-proxy.kubeconfig", "system:kube-proxy".to_owned(), None),
        ] {
            let identity = plane.authority.user(&user, group)?;
            let proof = Proof::Certificate(&identity);
            let text = kubeconfig(&plane.url(), plane.authority.certificate(), &user, &proof);
            write_private(&dir.join(file), &text)?;
        }
        let pause = Image::new(files::PAUSE).tool("sleep")?.command(&["sleep", "infinity"]);
        pause.write(&dir.join("pause.tar"))?;
        fs::write(dir.join("boot.sh"), include_str!("boot.sh"))?;
        make_group(dir, &name)?;
        let node = Node { process: first_process(&plane.program, network, dir), network, dir: dir.to_owned() };
        node.process.start()?;
        node.ready(plane).await?;
        Ok(node)
    }

    /// The name of the node and of its Node object.
    pub fn name(&self) -> String {
        self.network.name()
    }

    /// The address of the node.
    pub fn ip(&self) -> IpAddr {
        self.network.node().into()
    }

    /// The directories of the CNI configuration and of the CNI plugins. Nothing outside of the cluster reads them.
    pub fn network_directories(&self) -> (PathBuf, PathBuf) {
        (self.dir.join(files::NETWORK), self.dir.join(files::PLUGINS))
    }

    /// Imports an image. Pods use it by its name with `imagePullPolicy: Never` or `IfNotPresent`.
    ///
    /// # Errors
    /// A file of the image cannot be read, or the runtime rejects it.
    pub async fn import(&self, image: &Image) -> Result<()> {
        let file = tempfile::Builder::new().prefix("image-").suffix(".tar").tempfile_in(&self.dir)?;
        let (wanted, path) = (image.clone(), file.path().to_owned());
        let written = tokio::task::spawn_blocking(move || wanted.write(&path)).await??;
        self.ctr(&["images", "import", &file.path().display().to_string()]).await?;
        // The kubelet notices the image only after the import.
        let known = || async {
            let listed = self.ctr(&["images", "list", "--quiet"]).await.ok()?;
            listed.lines().any(|line| line == written.id).then_some(())
        };
        wait_for(&format!("the image {}", image.name()), PATIENCE, known).await
    }

    /// Kills the first process of a container, as a crash would. The ID is the one in the pod's status, with or without
    /// the prefix of the runtime.
    ///
    /// # Errors
    /// The container does not exist or is not running.
    pub async fn kill_container(&self, id: &str) -> Result<()> {
        let id = id.rsplit('/').next().unwrap_or(id);
        self.ctr(&["tasks", "kill", "--signal", "SIGKILL", id]).await.map(drop)
    }

    /// Kills the node with all its pods, as a power failure would.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub fn kill(&self) -> Result<()> {
        self.process.kill()
    }

    /// The process ID; `None` if the node is not running.
    pub fn pid(&self) -> Option<u32> {
        self.process.id()
    }

    /// Keeps the node running after this value is dropped.
    pub(super) fn keep(&self) {
        self.process.keep();
    }

    /// Runs the command line of the container runtime in the node and returns its output.
    async fn ctr(&self, arguments: &[&str]) -> Result<String> {
        let pid = self.process.id().ok_or("the node does not run")?.to_string();
        let output = tokio::process::Command::new("nsenter")
            .args(["--target", &pid, "--mount", "--net", "ctr", "--namespace", "k8s.io"])
            .args(arguments)
            .output()
            .await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(format!("ctr {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into())
    }

    async fn ready(&self, plane: &ControlPlane) -> Result<()> {
        let path = format!("/api/v1/nodes/{}", self.name());
        let ready = || async {
            if self.process.check().is_err() {
                return Some(());
            }
            let answer = plane.request(Method::GET, &path, &Value::Null).await.ok()?;
            is_ready(&answer.json().ok()?).then_some(())
        };
        let waited = wait_for("the node to be ready", PATIENCE, ready).await;
        self.process.check()?;
        waited.map_err(|error| {
            let log = fs::read_to_string(self.dir.join("logs/kubelet.log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(20)..].join("\n");
            format!("{error}; the kubelet's log ends:\n{end}").into()
        })
    }
}

/// Whether pods can be scheduled on this node.
fn is_ready(node: &Value) -> bool {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready.next().is_some() && node["spec"]["taints"].is_null()
}

fn first_process(kubernetes: &Path, network: Network, dir: &Path) -> Process {
    let name = network.name();
    let mut arguments: Vec<String> = vec![format!("--net=/run/netns/{name}")];
    // New mount, PID and UTS namespaces. The child is killed with the parent, and all other processes with the child.
    let unshare = "unshare --mount --uts --ipc --pid --fork --kill-child=KILL --mount-proc sh";
    arguments.extend(unshare.split(' ').map(str::to_owned));
    arguments
        .extend([dir.join("boot.sh"), dir.to_owned(), kubernetes.to_owned()].map(|path| path.display().to_string()));
    arguments.extend([name.clone(), name, network.node().to_string()]);
    Process::new("node", Path::new("nsenter"), arguments, dir)
}

/// Creates the cgroup of the pods in every hierarchy. The directory's watcher removes it.
fn make_group(dir: &Path, name: &str) -> Result<()> {
    fs::write(dir.join("cgroup"), name)?;
    let root = Path::new("/sys/fs/cgroup");
    let below = fs::read_dir(root)?.filter_map(|entry| Some(entry.ok()?.path()));
    // cgroup v2 has one hierarchy at the root; v1 has one per controller below it.
    for hierarchy in std::iter::once(root.to_owned()).chain(below) {
        let heads = hierarchy == root || !root.join("cgroup.procs").exists();
        if heads && hierarchy.join("cgroup.procs").exists() {
            fs::create_dir_all(hierarchy.join(name))?;
        }
    }
    Ok(())
}

/// Chooses the snapshotter: containers share layers with overlayfs, but not every file system supports it.
fn snapshotter(dir: &Path) -> Result<&'static str> {
    let probe = dir.join("overlay");
    for part in ["lower", "upper", "work", "merged"] {
        fs::create_dir_all(probe.join(part))?;
    }
    // Tested in a temporary mount namespace.
    let mount = "cd \"$1\" && mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged";
    let tried = Command::new(program("unshare").unwrap_or_else(|| "unshare".into()))
        .args(["--mount", "sh", "-c", mount, "sh"])
        .arg(&probe)
        .output()?;
    fs::remove_dir_all(&probe)?;
    Ok(if tried.status.success() { "overlayfs" } else { "native" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_with_a_taint_is_not_ready() {
        let mut node = json!({"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert!(is_ready(&node));
        node["spec"] = json!({"taints": [{"key": "node.kubernetes.io/not-ready"}]});
        assert!(!is_ready(&node));
        assert!(!is_ready(&json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}})));
    }
}
