//! The command line, as a user meets it who has no server.

// A failure here must fail the test, so the code may unwrap.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::process::{Command, Output};

/// Runs it in an empty directory, where no setting and no kubeconfig of the person who runs the tests matters.
fn rutter(arguments: &[&str]) -> Output {
    let empty = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_rutter"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RUTTER_") || name.starts_with("KUBE")) {
        command.env_remove(name);
    }
    command.env("HOME", empty.path()).current_dir(empty.path()).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn version_and_completion_print_and_succeed() {
    let version = rutter(&["version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout).trim(), format!("rutter {}", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        let script = rutter(&["completion", shell]);
        assert!(script.status.success() && text(&script.stdout).contains("__complete"), "{shell}");
    }
}

#[test]
fn every_command_has_help_with_examples() {
    let help = text(&rutter(&["--help"]).stdout);
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Serve:"))
        .take_while(|line| !line.starts_with("Options:"))
        .filter(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "serve")
        .collect();
    assert!(commands.len() > 15, "{help}");
    for name in commands {
        let page = rutter(&[name, "--help"]);
        let said = text(&page.stdout);
        assert!(page.status.success() && said.contains("Examples:"), "{name}: {said}");
    }
}

#[test]
fn without_a_server_it_is_said_how_to_get_one() {
    let get = rutter(&["get", "services"]);
    assert_eq!(get.status.code(), Some(1));
    let said = text(&get.stderr);
    assert!(said.contains("no server is configured") && said.contains("rutter serve"), "{said}");
    let flag_first = rutter(&["-n", "shop", "get", "services"]);
    assert_eq!(text(&flag_first.stderr), said);
    let removed = rutter(&["explain", "virtualservice.spec.hosts"]);
    assert_eq!(removed.status.code(), Some(2));
    assert!(text(&removed.stderr).contains("use `kubectl explain virtualservice.spec.hosts`"));
}

#[test]
fn a_wrong_command_line_ends_with_two() {
    for arguments in [
        &["nonsense"] as &[&str],
        &["get", "--nonsense"],
        &["get", "-o", "xml", "services"],
        &["wait", "vs/a", "--for=soon"],
        &["create", "configmap", "a"],
        &["apply", "-f", "a.yaml", "-l", "a=b"],
        &["validate"],
    ] {
        let output = rutter(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(output.stdout.is_empty(), "{arguments:?}");
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
    assert!(text(&fine.stdout).contains("1 valid object, 0 errors"));

    fs::write(&file, good.replace("http:", "http:\n  - timeout: soon")).unwrap();
    for arguments in [["validate", path], ["validate", dir.path().to_str().unwrap()]] {
        let bad = rutter(&arguments);
        assert!(!bad.status.success());
        let said = text(&bad.stdout);
        assert!(said.contains(&format!("{path}:7:")) && said.contains("error"), "{said}");
    }
    assert!(!rutter(&["validate", "/no/such/file"]).status.success());
}

#[test]
fn serve_refuses_settings_that_make_no_sense_and_says_why() {
    let bad = rutter(&["serve", "--config-dir", "/", "--grpc-addr", "nowhere", "--shutdown-duration", "soon"]);
    assert!(!bad.status.success());
    let said = text(&bad.stderr);
    assert!(said.contains("grpc-addr is `nowhere` (from the command line)"), "{said}");
    assert!(said.contains("shutdown-duration is `soon`"), "all problems at once: {said}");
    let none = refused(&["--store", "none"]);
    assert!(none.contains("--config-dir"), "{none}");
    let missing = refused(&["--config-dir", "/no/such/directory"]);
    assert!(missing.contains("cannot read the directory /no/such/directory: No such file"), "{missing}");
}

#[test]
fn serve_says_where_objects_cannot_be_kept_and_what_would_help() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    // Nobody may make a directory there, not even root.
    let read_only = refused(&["--data-dir", "/proc/rutter"]);
    assert!(read_only.contains("--data-dir /proc/rutter: cannot open the store"), "{read_only}");
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let not_a_directory = refused(&["--data-dir", file.to_str().unwrap()]);
    assert!(not_a_directory.contains("Not a directory"), "{not_a_directory}");
    let etcd = refused(&["--store", "etcd", "--etcd-endpoints", "http://127.0.0.1:1", "--data-dir", path]);
    assert!(etcd.contains("--etcd-endpoints http://127.0.0.1:1: "), "{etcd}");
    // A directory belongs to one process, here to this one.
    let taken = dir.path().join("taken");
    fs::create_dir_all(taken.join("store")).unwrap();
    let lock = fs::File::create(taken.join("store/store.lock")).unwrap();
    lock.lock().unwrap();
    let second = refused(&["--data-dir", taken.to_str().unwrap()]);
    assert!(second.contains("is in use"), "{second}");
}

#[test]
fn serve_says_which_address_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    for flag in ["--grpc-addr", "--api-addr"] {
        let taken = refused(&["--data-dir", data.to_str().unwrap(), &format!("{flag}={address}")]);
        assert!(taken.contains(&address) && taken.contains(flag), "{taken}");
    }
}

#[test]
fn serve_names_the_source_that_it_cannot_use() {
    let dir = tempfile::tempdir().unwrap();
    let mesh = dir.path().join("mesh.yaml");
    let with = |sources: &str| {
        fs::write(&mesh, format!("configSources: {sources}\n")).unwrap();
        refused(&["--store", "none", "--mesh-config", mesh.to_str().unwrap()])
    };
    let wrong = with("[{ address: 'xds://a:1' }, { address: 'xds://b' }]");
    assert!(wrong.contains("MeshConfig.configSources[1].address: \"xds://b\": the port is missing"), "{wrong}");
    let tls = with("[{ address: 'xds://a:1', tlsSettings: { mode: MUTUAL } }]");
    assert!(tls.contains("configSources[0].tlsSettings.clientCertificate: the mode MUTUAL requires"), "{tls}");
    let directory = with("[{ address: 'fs:///no/such/directory' }]");
    assert!(
        directory.contains("MeshConfig.configSources[0].address") && directory.contains("No such file"),
        "{directory}"
    );
}

/// The output of `serve` on free ports with these flags, which it must refuse.
fn refused(flags: &[&str]) -> String {
    let free = ["grpc", "http", "monitoring", "api"].map(|name| format!("--{name}-addr"));
    let mut all = vec!["serve".to_owned()];
    for name in free {
        // A flag is given once.
        if !flags.iter().any(|flag| flag.starts_with(&name)) {
            all.push(format!("{name}=127.0.0.1:0"));
        }
    }
    let all: Vec<&str> = all.iter().map(String::as_str).chain(flags.iter().copied()).collect();
    let output = rutter(&all);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}
