//! The command line of `rutter-demo`. This test also makes `cargo test --workspace` build the program, which the
//! end-to-end tests start.

use std::process::Command;

#[test]
fn help_lists_the_flags_and_an_unknown_flag_is_an_error() {
    let run = |argument: &str| {
        Command::new(env!("CARGO_BIN_EXE_rutter-demo")).arg(argument).output().expect("rutter-demo starts")
    };
    let help = run("--help");
    assert!(help.status.success());
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(text.contains("--once") && text.contains("--envoy"), "{text}");
    assert_eq!(run("--no-such-flag").status.code(), Some(2));
}
