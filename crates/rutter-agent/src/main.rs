//! The agent beside a proxy. It accepts the commands of Istio's `pilot-agent`.

mod capture;
mod logging;
mod proxy;
mod queries;

use std::io::{self, Write as _};
use std::process::ExitCode;

use agent_core::environment::Environment;
use anyhow::{Result, anyhow};
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;

/// The number of threads. The agent mostly waits; a second one serves while the first makes a key.
const THREADS: usize = 2;
const COMPLETION: &str = "completion";

fn command() -> Command {
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell");
    logging::arguments(
        Command::new("rutter-agent")
            .about("The agent beside a proxy: certificates, configuration, health and traffic capture")
            .version(env!("CARGO_PKG_VERSION"))
            .subcommand_required(true)
            .arg_required_else_help(true),
    )
    .subcommand(proxy::command())
    .subcommand(queries::request_command())
    .subcommand(queries::wait_command())
    .subcommand(capture::command())
    .subcommand(Command::new("version").about("Print the version").arg(
        // Istio's programs have it.
        Arg::new("short").long("short").short('s').num_args(0..=1).require_equals(true).hide(true),
    ))
    .subcommand(Command::new(COMPLETION).about("Print the completion script of a shell").arg(shell))
}

fn main() -> ExitCode {
    let arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let mut command = command();
    let matches = command.clone().get_matches_from(proxy::known(&command, arguments));
    logging::start(&matches);
    let result = run(&matches, &mut command);
    result.unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        ExitCode::FAILURE
    })
}

fn run(matches: &ArgMatches, command: &mut Command) -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    let environment = Environment::of_process();
    match matches.subcommand() {
        Some((proxy::NAME, matches)) => {
            runtime.block_on(proxy::execute(matches, environment, logging::is_json(matches)))
        }
        Some((queries::REQUEST, matches)) => runtime.block_on(queries::execute_request(matches, &environment)),
        Some((queries::WAIT, matches)) => runtime.block_on(queries::execute_wait(matches)),
        Some((capture::NAME, matches)) => runtime.block_on(capture::execute(matches, &environment)),
        Some((COMPLETION, matches)) => {
            let shell = *matches.get_one::<Shell>("shell").ok_or_else(|| anyhow!("no shell was given"))?;
            clap_complete::generate(shell, command, "rutter-agent", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        _ => {
            writeln!(io::stdout(), "rutter-agent {}", env!("CARGO_PKG_VERSION"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
