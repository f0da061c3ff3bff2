//! The images of the demo, made of programs of this machine.

use std::path::Path;

use test_harness::kubernetes::Image;
use test_harness::run::Result;

/// This program's: for Rutter itself, for the shop and for its client.
pub(super) const RUTTER: &str = "localhost/rutter-demo/rutter:1";
/// The sidecar's, and that of the container which sets up the capture.
pub(super) const PROXY: &str = "localhost/rutter-demo/proxy:1";

/// Where this program is in its image, and what it is told if a pod tells it nothing.
const PROGRAM: &str = "/usr/local/bin/rutter";
const COMMAND: [&str; 2] = ["serve", "--store=kubernetes"];
const USER: u32 = 1337;

/// Where names are looked up: in the file of hosts before anywhere else.
const LOOKUP: &str = "hosts: files dns\n";

/// This program, as `deploy/Containerfile` makes it.
pub(super) fn rutter() -> Result<Image> {
    Ok(Image::new(RUTTER)
        .program(&std::env::current_exe()?, PROGRAM)?
        .file("/etc/nsswitch.conf", LOOKUP.as_bytes(), 0o644)
        .entrypoint(&[PROGRAM])
        .command(&COMMAND)
        .user(USER))
}

/// Envoy, and what sets up and drains.
pub(super) fn proxy(envoy: &Path) -> Result<Image> {
    Ok(Image::new(PROXY)
        .program(envoy, "/usr/local/bin/envoy")?
        .tool("nft")?
        .tool("bash")?
        .file("/etc/nsswitch.conf", LOOKUP.as_bytes(), 0o644))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_that_of_the_containerfile() {
        let file = include_str!("../../../../deploy/Containerfile");
        for line in [
            format!("COPY rutter {PROGRAM}"),
            format!("USER {USER}:{USER}"),
            format!("ENTRYPOINT [\"{PROGRAM}\"]"),
            format!("CMD {COMMAND:?}"),
        ] {
            assert!(file.lines().any(|found| found == line), "{line}");
        }
    }
}
