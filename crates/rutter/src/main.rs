//! The control plane and its command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = cli::command_first(std::env::args_os());
    rutter::run(&rutter::command().get_matches_from(arguments))
}
