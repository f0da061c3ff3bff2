//! The control plane binary and its command line.

mod demo;
mod log;
mod serve;
mod validate;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Arg, ArgMatches, Command, value_parser};
use clap_complete::Shell;
use settings::{Given, Settings};

fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("serve", matches)) => serve(matches).map(|()| true),
        Some(("demo", matches)) => demo::run(matches),
        Some(("validate", matches)) => validate::run(matches),
        Some(("version", _)) => version().map(|()| true),
        Some(("completion", matches)) => complete(matches).map(|()| true),
        // clap asks for a subcommand and knows no others.
        _ => Ok(false),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rutter: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The whole command line.
fn command() -> Command {
    let serve = Command::new("serve").about("Run the control plane").long_about(
        "Reads resources from a directory, watches it, and tells every proxy that connects what to do. Runs until a \
         signal ends it.",
    );
    let shell = Arg::new("shell")
        .required(true)
        .value_parser(value_parser!(Shell))
        .help("The shell");
    Command::new("rutter")
        .about("A service-mesh control plane: Istio's resources in, Envoy's discovery protocol out")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::flags(serve))
        .subcommand(validate::command())
        .subcommand(demo::command())
        .subcommand(Command::new("version").about("Print the version"))
        .subcommand(
            Command::new("completion")
                .about("Print a completion script for a shell")
                .arg(shell),
        )
}

fn serve(matches: &ArgMatches) -> Result<()> {
    let given = Given::gather(matches, &|name| std::env::var_os(name))?;
    let settings = Settings::from_given(&given)?;
    log::start(&settings)?;
    serve::run(&settings)
}

fn version() -> Result<()> {
    Ok(writeln!(io::stdout(), "rutter {}", env!("CARGO_PKG_VERSION"))?)
}

fn complete(matches: &ArgMatches) -> Result<()> {
    if let Some(shell) = matches.get_one::<Shell>("shell") {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut command(), "rutter", &mut script);
        io::stdout().write_all(&script)?;
    }
    Ok(())
}
