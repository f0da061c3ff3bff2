//! What a machine must have for a node, beside what we build: root, a container runtime and plugins for its network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::place::is_program;

/// What Debian and its descendants call it.
pub const PACKAGES: &[&str] = &[
    "containerd",
    "runc",
    "containernetworking-plugins",
    "nftables",
    "iproute2",
];
/// The programs, each with its package.
const PROGRAMS: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("containerd-shim-runc-v2", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("ip", "iproute2"),
    ("unshare", "util-linux"),
    ("nsenter", "util-linux"),
    ("mount", "mount"),
];
/// The plugins of the network.
const PLUGINS: &[&str] = &["ptp", "host-local", "portmap", "loopback"];
/// Where distributions put them.
const PLUGIN_DIRS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// What this machine lacks for a node, in words; nothing if it can have one.
pub fn missing() -> Option<String> {
    if !is_root() {
        return Some("a node needs root".to_owned());
    }
    let mut packages = missing_packages();
    if packages.is_empty() {
        return missing_rights();
    }
    packages.dedup();
    Some(format!(
        "a node needs packages that are not installed: apt-get install {}",
        packages.join(" ")
    ))
}

/// Installs with `apt-get` the packages that a node needs and that are not there. `say` is told what is done.
///
/// # Errors
/// It is not root that asks, there is no `apt-get`, or it fails; the error says what to do.
pub fn install_packages(say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let packages = missing_packages();
    if packages.is_empty() {
        say("node: containerd, runc and the network's plugins are installed");
        return Ok(());
    }
    let command = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    if !is_root() || program("apt-get").is_none() {
        return Err(Error::Packages {
            command,
            output: "only root can do it, on a machine with apt-get".to_owned(),
        });
    }
    // The lists may be missing, as in fresh images, or be too old.
    for command in ["apt-get update".to_owned(), command] {
        say(&format!("node: {command}"));
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .map_err(Error::at("sh"))?;
        if !output.status.success() {
            let output = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Packages { command, output });
        }
    }
    Ok(())
}

/// The directory of the network's plugins.
pub(super) fn plugins() -> Option<&'static Path> {
    let complete = |dir: &Path| PLUGINS.iter().all(|plugin| is_program(&dir.join(plugin)));
    PLUGIN_DIRS.iter().map(Path::new).find(|dir| complete(dir))
}

/// A program of the search path, or of the directories of administrators' programs.
pub(super) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(beside);
    dirs.find_map(|dir| Some(dir.join(name)).filter(|path| is_program(path)))
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"))
}

fn missing_packages() -> Vec<&'static str> {
    let lacking = PROGRAMS.iter().filter(|(name, _)| program(name).is_none());
    let mut packages: Vec<&str> = lacking.map(|(_, package)| *package).collect();
    if plugins().is_none() {
        packages.push("containernetworking-plugins");
    }
    packages.dedup();
    packages
}

/// What root may not do here, as in some containers.
fn missing_rights() -> Option<String> {
    let probe = format!("rutter-probe-{}", std::process::id());
    let tried = [
        ("namespaces", "unshare --mount --pid --net --fork true".to_owned()),
        (
            "named network namespaces",
            format!("ip netns add {probe} && ip netns del {probe}"),
        ),
        (
            "groups of processes",
            format!(
                "for d in /sys/fs/cgroup /sys/fs/cgroup/memory; do [ ! -f $d/cgroup.procs ] || {{ mkdir $d/{probe} && rmdir $d/{probe}; }} || exit 1; done"
            ),
        ),
    ];
    tried.into_iter().find_map(|(what, command)| {
        let output = Command::new("sh").args(["-c", &command]).output().ok()?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        (!output.status.success()).then(|| format!("a node needs {what}, which cannot be made here: {said}"))
    })
}
