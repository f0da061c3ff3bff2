//! The control plane binary and its command line.

mod demo;
mod log;
mod serve;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Command};
use settings::{Given, Settings};

/// A control plane is many small objects of all threads, for which the system's allocator takes a third of the time of a
/// write (`docs/performance.md`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some(("serve", matches)) => serve(matches).map(|()| true),
        Some(("demo", matches)) => demo::run(matches),
        Some((name, matches)) => return cli::run(name, matches, command),
        // clap asks for a subcommand.
        None => Ok(false),
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
        "Takes resources from a store with a Kubernetes-shaped API, or from a directory, and tells every proxy that \
         connects what to do. Runs until a signal ends it.",
    );
    Command::new("rutter")
        .about("A service-mesh control plane: Istio's resources in, Envoy's discovery protocol out")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::flags(serve))
        .subcommand(demo::command())
        .subcommands(cli::commands())
}

fn serve(matches: &ArgMatches) -> Result<()> {
    let given = Given::gather(matches, &|name| std::env::var_os(name))?;
    let settings = Settings::from_given(&given)?;
    log::start(&settings)?;
    serve::run(&settings)
}
