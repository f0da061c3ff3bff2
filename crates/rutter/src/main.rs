//! The control plane and its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    rutter::run(&rutter::command().get_matches())
}
