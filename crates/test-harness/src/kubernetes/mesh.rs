//! Images of Rutter and of proxies, like those of `deploy/`, made of programs of this machine.

use std::path::Path;

use super::image::Image;
use crate::run::Result;

/// The path of Rutter in its image.
pub const RUTTER: &str = "/usr/local/bin/rutter";
/// The default arguments of Rutter's image, and its user.
const COMMAND: [&str; 2] = ["serve", "--store=kubernetes"];
const USER: u32 = 1337;

/// The programs of the other image. The agent also has the name of Istio's.
const AGENT: &str = "/usr/local/bin/rutter-agent";
const PILOT_AGENT: &str = "/usr/local/bin/pilot-agent";
const ENVOY: &str = "/usr/local/bin/envoy";

/// The order of name resolution: the hosts file before DNS.
const LOOKUP: &str = "hosts: files dns\n";

/// The image of this Rutter, like that of `deploy/Containerfile`, without certificate authorities.
///
/// # Errors
/// The program cannot be read.
pub fn control_plane(name: &str, program: &Path) -> Result<Image> {
    Ok(Image::new(name)
        .program(program, RUTTER)?
        .file("/etc/nsswitch.conf", LOOKUP.as_bytes(), 0o644)
        .entrypoint(&[RUTTER])
        .command(&COMMAND)
        .user(USER))
}

/// The image of this agent and this Envoy, like that of `deploy/Containerfile.proxy`. Of the programs that set up capture, it has
/// those for nftables.
///
/// # Errors
/// A program cannot be read, or `nft` or `ip` is missing.
pub fn proxy(name: &str, agent: &Path, envoy: &Path) -> Result<Image> {
    Ok(Image::new(name)
        .program(agent, AGENT)?
        .program(envoy, ENVOY)?
        .link(PILOT_AGENT, AGENT)
        .tool("nft")?
        .tool("ip")?
        .file("/etc/nsswitch.conf", LOOKUP.as_bytes(), 0o644)
        .entrypoint(&[PILOT_AGENT]))
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
            format!("COPY rutter {RUTTER}"),
            format!("USER {USER}:{USER}"),
            format!("ENTRYPOINT [\"{RUTTER}\"]"),
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
