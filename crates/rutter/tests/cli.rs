//! The command line, as a user meets it.

// What fails here fails a test, which is what unwrapping is for.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output};

fn rutter(arguments: &[&str]) -> Output {
    // Settings of the person who runs the tests shall not matter.
    let mut command = Command::new(env!("CARGO_BIN_EXE_rutter"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RUTTER_")) {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn version_and_completion_print_and_succeed() {
    let version = rutter(&["version"]);
    assert!(version.status.success());
    assert_eq!(
        text(&version.stdout).trim(),
        format!("rutter {}", env!("CARGO_PKG_VERSION"))
    );
    for shell in ["bash", "zsh", "fish"] {
        let script = rutter(&["completion", shell]);
        assert!(
            script.status.success() && text(&script.stdout).contains("__complete"),
            "{shell}"
        );
    }
}

#[test]
fn validate_says_file_line_and_column_and_fails() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("route.yaml");
    let good = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: { name: a }\n\
                spec:\n  hosts: [a.example]\n  http:\n  - route: [{ destination: { host: a.example } }]\n";
    fs::write(&file, good).unwrap();
    let path = file.to_str().unwrap();
    let fine = rutter(&["validate", path]);
    assert!(fine.status.success(), "{}", text(&fine.stdout));
    assert!(text(&fine.stdout).contains("1 valid objects, 0 errors"));

    fs::write(&file, good.replace("http:", "http:\n  - timeout: soon")).unwrap();
    for arguments in [["validate", path], ["validate", dir.path().to_str().unwrap()]] {
        let bad = rutter(&arguments);
        assert!(!bad.status.success());
        let said = text(&bad.stdout);
        assert!(said.contains("route.yaml:7:") && said.contains("error"), "{said}");
    }
    assert!(!rutter(&["validate", "/no/such/file"]).status.success());
    assert!(!rutter(&["validate"]).status.success());
}

#[test]
fn serve_refuses_settings_that_make_no_sense_and_says_why() {
    let bad = rutter(&[
        "serve",
        "--config-dir",
        "/",
        "--grpc-addr",
        "nowhere",
        "--shutdown-duration",
        "soon",
    ]);
    assert!(!bad.status.success());
    let said = text(&bad.stderr);
    assert!(
        said.contains("grpc-addr is `nowhere` (from the command line)"),
        "{said}"
    );
    assert!(
        said.contains("shutdown-duration is `soon`"),
        "all problems at once: {said}"
    );
    let none = rutter(&["serve"]);
    assert!(!none.status.success());
    assert!(text(&none.stderr).contains("--config-dir"), "{}", text(&none.stderr));
    let free = [
        "--grpc-addr=127.0.0.1:0",
        "--http-addr=127.0.0.1:0",
        "--monitoring-addr=127.0.0.1:0",
    ];
    let missing = rutter(&[&["serve", "--config-dir", "/no/such/directory"], &free[..]].concat());
    assert!(!missing.status.success());
    assert!(
        text(&missing.stderr).contains("/no/such/directory"),
        "{}",
        text(&missing.stderr)
    );
}
