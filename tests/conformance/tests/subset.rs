//! A few tests of the conformance suite, as the runner runs them: one for each kind of route, and ListenerSets.

use std::process::Command;

use e2e::{agent_binary, rutter_binary};

const TESTS: [&str; 6] = [
    "GRPCExactMethodMatching",
    "HTTPRouteMatching",
    "ListenerSetProtocolConflict",
    "TCPRouteParentRefAttachAll",
    "TLSRouteSimpleSameNamespace",
    "UDPRoute",
];

#[test]
fn some_tests_of_the_suite_pass() -> Result<(), Box<dyn std::error::Error>> {
    if let Some(missing) = test_harness::kubernetes::missing() {
        eprintln!("skipped: {missing}");
        return Ok(());
    }
    // Go needs minutes to build it, which is too long for a run of all tests by a person.
    let is_wanted = std::env::var_os("RUTTER_CONFORMANCE").is_some();
    if !is_wanted && !test_harness::tools_dir().join("conformance/suite").is_file() {
        eprintln!("skipped: the suite is not built; `cargo xtask conformance` or RUTTER_CONFORMANCE=1 builds it");
        return Ok(());
    }
    let output = tempfile::tempdir()?;
    let status = Command::new(env!("CARGO_BIN_EXE_conformance"))
        .args(["--run", &format!("^({})$", TESTS.join("|"))])
        .arg("--output")
        .arg(output.path())
        .env("RUTTER_BIN", rutter_binary())
        .env("RUTTER_AGENT_BIN", agent_binary())
        .status()?;
    if !status.success() {
        for log in ["suite.log", "rutter.log"] {
            eprintln!("{log}:\n{}", std::fs::read_to_string(output.path().join(log)).unwrap_or_default());
        }
    }
    assert!(status.success());
    Ok(())
}
