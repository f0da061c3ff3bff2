//! The requirements of a node on this machine: root, a container runtime and CNI plugins.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::Error;
use crate::place::is_program;

/// The Debian packages.
pub const PACKAGES: &[&str] = &["containerd", "runc", "containernetworking-plugins", "nftables", "iproute2"];
/// The programs and their packages.
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
/// The CNI plugins.
const PLUGINS: &[&str] = &["ptp", "host-local", "portmap", "loopback"];
/// The directories in which distributions install them.
const PLUGIN_DIRS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// Describes what this machine lacks for a node; `None` if it meets all requirements.
pub fn missing() -> Option<String> {
    if !is_root() {
        return Some("a node needs root".to_owned());
    }
    let mut packages = missing_packages();
    if packages.is_empty() {
        // Probes of one process would disturb each other.
        static MISSING: OnceLock<Option<String>> = OnceLock::new();
        return MISSING.get_or_init(missing_rights).clone();
    }
    packages.dedup();
    Some(format!("a node needs packages that are not installed: apt-get install {}", packages.join(" ")))
}

/// Installs the missing packages of a node with `apt-get`. Reports progress to `say`.
///
/// # Errors
/// The process is not root, `apt-get` is missing or fails; the error names a remedy.
pub fn install_packages(say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let packages = missing_packages();
    if packages.is_empty() {
        say("node: containerd, runc and the network's plugins are installed");
        return Ok(());
    }
    let command = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    if !is_root() || program("apt-get").is_none() {
        return Err(Error::Packages { command, output: "only root can do it, on a machine with apt-get".to_owned() });
    }
    // The package lists may be missing, as in fresh images, or outdated.
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

/// The directory of the CNI plugins.
pub(super) fn plugins() -> Option<&'static Path> {
    let complete = |dir: &Path| PLUGINS.iter().all(|plugin| is_program(&dir.join(plugin)));
    PLUGIN_DIRS.iter().map(Path::new).find(|dir| complete(dir))
}

/// Finds a program in the search path or the `sbin` directories.
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

/// Describes the privileges that root lacks here, as in some containers.
fn missing_rights() -> Option<String> {
    let probe = format!("rutter-probe-{}", std::process::id());
    let tried = [
        ("namespaces", "unshare --mount --pid --net --fork true".to_owned()),
        ("named network namespaces", format!("ip netns add {probe} && ip netns del {probe}")),
        (
            "groups of processes",
            format!(
                "for d in /sys/fs/cgroup /sys/fs/cgroup/memory; do [ ! -f $d/cgroup.procs ] || {{ mkdir $d/{probe} && rmdir $d/{probe}; }} || exit 1; done"
            ),
        ),
    ];
    tried.into_iter().find_map(|(what, command)| {
        let output = Command::new("sh").args(["-c", &command]).output().ok()?;
        let error = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        (!output.status.success()).then(|| format!("a node needs {what}, which cannot be made here: {error}"))
    })
}
