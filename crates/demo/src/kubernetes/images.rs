//! The container images of the demo, built from programs of this machine.

use std::path::{Path, PathBuf};

use test_harness::kubernetes::Image;
use test_harness::run::Result;

/// The image of this program: for Rutter, the shop and the client.
pub(super) const RUTTER: &str = "localhost/rutter-demo/rutter:1";
/// The image of sidecars and of the init container that sets up traffic capture: the agent and Envoy.
pub(super) const PROXY: &str = "localhost/rutter-demo/proxy:1";

/// The path of this program in its image.
pub(super) const PROGRAM: &str = "/usr/local/bin/rutter";
/// The default arguments of the image, and its user.
const COMMAND: [&str; 2] = ["serve", "--store=kubernetes"];
const USER: u32 = 1337;

/// The programs of the other image. The agent also has the name of Istio's.
const AGENT: &str = "/usr/local/bin/rutter-agent";
const PILOT_AGENT: &str = "/usr/local/bin/pilot-agent";
const ENVOY: &str = "/usr/local/bin/envoy";

/// The order of name resolution: the hosts file before DNS.
const LOOKUP: &str = "hosts: files dns\n";

/// The image of this program, equal to that of `deploy/Containerfile`.
pub(super) fn rutter() -> Result<Image> {
    Ok(Image::new(RUTTER)
        .program(&std::env::current_exe()?, PROGRAM)?
        .file("/etc/nsswitch.conf", LOOKUP.as_bytes(), 0o644)
        .entrypoint(&[PROGRAM])
        .command(&COMMAND)
        .user(USER))
}

/// The image of the agent and this Envoy, like that of `deploy/Containerfile.proxy`. Of the programs that set up capture, it has
/// those for nftables.
pub(super) fn proxy(envoy: &Path) -> Result<Image> {
    Ok(Image::new(PROXY)
        .program(&agent()?, AGENT)?
        .program(envoy, ENVOY)?
        .link(PILOT_AGENT, AGENT)
        .tool("nft")?
        .tool("ip")?
        .file("/etc/nsswitch.conf", LOOKUP.as_bytes(), 0o644)
        .entrypoint(&[PILOT_AGENT]))
}

/// The agent, which is built into the directory of this program.
fn agent() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("rutter-agent");
    if path.is_file() {
        return Ok(path);
    }
    Err(format!("{} does not exist; build it with `cargo build --package rutter-agent`", path.display()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(file: &str, lines: &[String]) {
        for line in lines {
            assert!(file.lines().any(|found| found == line), "{line}");
        }
    }

    #[test]
    fn the_images_are_those_of_the_containerfiles() {
        let rutter = [
            format!("COPY rutter {PROGRAM}"),
            format!("USER {USER}:{USER}"),
            format!("ENTRYPOINT [\"{PROGRAM}\"]"),
            format!("CMD {COMMAND:?}"),
        ];
        has(include_str!("../../../../deploy/Containerfile"), &rutter);
        let proxy = [
            format!("COPY rutter-agent {AGENT}"),
            format!("COPY envoy {ENVOY}"),
            format!("RUN ln -s {AGENT} {PILOT_AGENT}"),
            format!("ENTRYPOINT [\"{PILOT_AGENT}\"]"),
        ];
        has(include_str!("../../../../deploy/Containerfile.proxy"), &proxy);
    }
}
