//! The container images of the demo, built from programs of this machine.

use std::path::Path;

use test_harness::kubernetes::Image;
use test_harness::run::Result;

/// The image of this program: for Rutter, the shop and the client.
pub(super) const RUTTER: &str = "localhost/rutter-demo/rutter:1";
/// The image of the sidecar and of the init container that sets up traffic capture.
pub(super) const PROXY: &str = "localhost/rutter-demo/proxy:1";

/// The path of this program in its image, and its default arguments.
const PROGRAM: &str = "/usr/local/bin/rutter";
const COMMAND: [&str; 2] = ["serve", "--store=kubernetes"];
const USER: u32 = 1337;

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

/// The image with Envoy and the programs that set up capture and drain.
pub(super) fn proxy(envoy: &Path) -> Result<Image> {
    Ok(Image::new(PROXY).program(envoy, "/usr/local/bin/envoy")?.tool("nft")?.tool("bash")?.file(
        "/etc/nsswitch.conf",
        LOOKUP.as_bytes(),
        0o644,
    ))
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
