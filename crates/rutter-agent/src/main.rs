//! The agent beside a proxy. It accepts the commands of Istio's `pilot-agent`.

mod capture;
mod logging;

use std::process::ExitCode;

use agent_core::environment::Environment;
use clap::Command;

fn command() -> Command {
    let version = env!("CARGO_PKG_VERSION");
    logging::arguments(
        Command::new("rutter-agent")
            .about("The agent beside a proxy: certificates, configuration, health and traffic capture")
            .version(version)
            .subcommand_required(true)
            .arg_required_else_help(true),
    )
    .subcommand(capture::command())
    .subcommand(Command::new("version").about("Print the version"))
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let environment = Environment::of_process();
    logging::start(&matches);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!("cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match matches.subcommand() {
        Some((capture::NAME, matches)) => runtime.block_on(capture::execute(matches, &environment)),
        _ => version(),
    };
    result.unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        ExitCode::FAILURE
    })
}

fn version() -> anyhow::Result<ExitCode> {
    use std::io::Write as _;
    writeln!(std::io::stdout(), "rutter-agent {}", env!("CARGO_PKG_VERSION"))?;
    Ok(ExitCode::SUCCESS)
}
