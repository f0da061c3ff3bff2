//! The control plane binary and its command line.

mod demo;
mod log;

use std::io;
use std::process::ExitCode;

use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use settings::{Given, Settings};

fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("demo", matches)) => demo::run(matches).map(|held| if held { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
        Some(("completion", matches)) => {
            complete(matches);
            Ok(ExitCode::SUCCESS)
        }
        Some(("serve", matches)) => serve(matches),
        _ => Ok(ExitCode::from(2)),
    };
    result.unwrap_or_else(|error| {
        eprintln!("rutter: {error:#}");
        ExitCode::FAILURE
    })
}

/// The whole command line.
fn command() -> Command {
    let serve = Command::new("serve")
        .about("Run the control plane")
        .long_about("Reads resources from a directory, and tells every proxy that connects what to do. Runs until a signal ends it.");
    let shell = Arg::new("shell").required(true).value_parser(value_parser!(Shell)).help("The shell");
    Command::new("rutter")
        .about("A service-mesh control plane: Istio's resources in, Envoy's discovery protocol out")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::flags(serve))
        .subcommand(demo::command())
        .subcommand(Command::new("completion").about("Print a completion script for a shell").arg(shell))
}

fn complete(matches: &ArgMatches) {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        clap_complete::generate(*shell, &mut command(), "rutter", &mut io::stdout());
    }
}

fn serve(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let given = Given::gather(matches, &|name| std::env::var_os(name))?;
    let settings = Settings::from_given(&given)?;
    log::start(&settings)?;
    Ok(ExitCode::SUCCESS)
}
