//! Precedence and error messages.

// Failures fail the test.
#![allow(clippy::unwrap_used)]

use std::ffi::OsString;
use std::time::Duration;

use settings::{Given, Settings, TABLE};

fn settings(flags: &[&str], environment: &[(&str, &str)]) -> Result<Settings, String> {
    let arguments = std::iter::once("serve").chain(flags.iter().copied());
    let matches =
        settings::flags(clap::Command::new("serve")).try_get_matches_from(arguments).map_err(|e| e.to_string())?;
    let look_up = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
    Given::gather(&matches, &look_up).and_then(|given| Settings::from_given(&given)).map_err(|e| e.to_string())
}

fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn default_ports_are_those_of_istiod() {
    let settings = settings(&[], &[]).unwrap();
    assert_eq!(settings.grpc_addr.0, None, "it depends on where the process runs");
    assert_eq!(settings.secure_grpc_addr.0.map(|a| a.to_string()).as_deref(), Some(":15012"));
    assert_eq!(settings.http_addr.to_string(), ":8080");
    assert_eq!((settings.domain.as_str(), settings.cluster_id.as_str()), ("cluster.local", "Kubernetes"));
    assert_eq!(settings.shutdown_duration, Duration::from_secs(10));
    assert_eq!(settings.config_dir, None);
}

#[test]
fn flags_override_environment_file_and_default() {
    let file = file("domain: from-file\ncluster-id: from-file\nthreads: 3\n");
    let path = file.path().to_str().unwrap();
    let environment = [("RUTTER_DOMAIN", "from-env"), ("RUTTER_CLUSTER_ID", "from-env"), ("RUTTER_SETTINGS", path)];
    let settings = settings(&["--domain", "from-flag"], &environment).unwrap();
    assert_eq!(settings.domain, "from-flag");
    assert_eq!(settings.cluster_id, "from-env");
    assert_eq!(settings.threads, 3);
}

#[test]
fn istiods_flag_names_are_accepted() {
    let settings = settings(&["--grpcAddr=127.0.0.1:0", "--clusterID", "c1"], &[]).unwrap();
    assert_eq!(settings.grpc_addr.0.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:0"));
    assert_eq!(settings.cluster_id, "c1");
}

#[test]
fn errors_name_setting_source_and_form() {
    assert_eq!(
        settings(&["--shutdown-duration", "soon"], &[]).unwrap_err(),
        "shutdown-duration is `soon` (from the command line): `soon` is not a duration; expected DURATION, such as 500ms, 10s or 1m30s"
    );
    let error = settings(&[], &[("RUTTER_GRPC_ADDR", "15010"), ("RUTTER_LOG_FORMAT", "xml")]).unwrap_err();
    assert_eq!(error.lines().count(), 2, "all problems at once: {error}");
    assert!(error.contains("from the environment variable RUTTER_LOG_FORMAT"), "{error}");
}

#[test]
fn settings_files_are_checked() {
    let with = |text: &str| {
        let file = file(text);
        let path = file.path().to_str().unwrap().to_owned();
        settings(&["--settings", &path], &[]).map_err(|e| e.replace(&path, "FILE"))
    };
    assert_eq!(with("grpcaddr: ':1'").unwrap_err(), "FILE: unknown setting `grpcaddr`; did you mean `grpc-addr`?");
    assert!(with("threads: [1]").unwrap_err().starts_with("FILE: "));
    assert_eq!(
        with("threads: many").unwrap_err().split(';').next().unwrap(),
        "threads is `many` (from FILE): `many` is not a whole number in range"
    );
    assert!(with("").is_ok());
    assert!(settings(&["--settings", "/no/such/file"], &[]).unwrap_err().starts_with("/no/such/file: "));
}

#[test]
fn every_setting_is_in_the_help_and_its_default_is_accepted() {
    let help = settings::flags(clap::Command::new("serve")).render_long_help().to_string();
    for setting in TABLE {
        assert!(help.contains(&format!("--{}", setting.name())), "{} is not in the help", setting.name());
        assert!(!setting.paragraph().is_empty());
    }
    settings(&[], &[]).unwrap();
}

#[test]
fn users_of_the_socket_have_a_namespace_each() {
    let parsed = |text: &str| settings(&["--xds-socket-users", text], &[]).map(|settings| settings.xds_socket_users.0);
    assert_eq!(parsed(""), Ok(Vec::new()));
    assert_eq!(parsed("101:shop, 102:bank"), Ok(vec![(101, "shop".to_owned()), (102, "bank".to_owned())]));
    for (wrong, why) in [("101", "namespace"), ("101:", "namespace"), ("envoy:shop", "`envoy` is not a user ID")] {
        let error = parsed(wrong).unwrap_err();
        assert!(error.contains(why), "{wrong}: {error}");
    }
    let error = settings(&["--secrets-for", "local"], &[]).unwrap_err();
    assert!(error.contains("expected auto, none or authenticated"), "{error}");
}
