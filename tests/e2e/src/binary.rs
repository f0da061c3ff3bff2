//! The programs under test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The pinned Envoy, installed if it is missing.
pub fn envoy_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| test_harness::envoy(&mut |line| eprintln!("{line}")).unwrap_or_else(|error| panic!("{error}")))
}

/// `kubectl`, built if it is missing.
pub fn kubectl_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        test_harness::kubectl(&mut |line| eprintln!("{line}")).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// `rutter`, built from this repository, or the program in `RUTTER_BIN`.
pub fn rutter_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("RUTTER_BIN").map_or_else(|| build("rutter", "rutter"), PathBuf::from))
}

/// `rutter-agent`, built from this repository, or the program in `RUTTER_AGENT_BIN`.
pub fn agent_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        std::env::var_os("RUTTER_AGENT_BIN").map_or_else(|| build("rutter-agent", "rutter-agent"), PathBuf::from)
    })
}

/// `rutter-cni`, built from this repository, or the program in `RUTTER_CNI_BIN`.
pub fn cni_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        std::env::var_os("RUTTER_CNI_BIN").map_or_else(|| build("rutter-cni", "rutter-cni"), PathBuf::from)
    })
}

/// `rutter-demo`, built from this repository, or the program in `RUTTER_DEMO_BIN`.
pub fn demo_binary() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::var_os("RUTTER_DEMO_BIN").map_or_else(|| build("demo", "rutter-demo"), PathBuf::from))
}

/// Builds a program, so that a test that runs alone does not use an outdated one.
fn build(package: &str, program: &str) -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let built = Command::new(cargo).args(["build", "--quiet", "--package", package]).current_dir(root).status();
    assert!(built.is_ok_and(|status| status.success()), "`cargo build --package {package}` failed");
    // This program is TARGET/debug/deps/NAME.
    let here = std::env::current_exe().unwrap_or_else(|error| panic!("{error}"));
    let target = here.ancestors().nth(2).unwrap_or(Path::new("."));
    target.join(program)
}
