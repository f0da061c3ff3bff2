//! The program `rutter`: its command line, and the start of logging.
//!
//! `serve` runs the control plane ([`runtime`]); every other command is a client of an API ([`cli`]). The program is a library
//! so that the demonstration, a program of its own, can start itself as a control plane and needs no second build.

mod log;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Command};
use settings::{Given, LogFormat, Settings};

/// A control plane allocates many small objects on all threads. With the system's allocator that takes a third of the time of
/// a write (`docs/performance.md`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The whole command line.
pub fn command() -> Command {
    let serve = Command::new("serve").about("Run the control plane").long_about(
        "Reads resources from a store with a Kubernetes-compatible API, from Kubernetes or from a directory, and configures \
         every proxy that connects. Runs until it receives SIGTERM or SIGINT.",
    );
    let root = Command::new("rutter")
        .about("A service-mesh control plane: Istio's resources in, Envoy's discovery protocol out")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(settings::flags(serve));
    cli::with_commands(root)
}

/// Runs the command that was given.
pub fn run(matches: &ArgMatches) -> ExitCode {
    let result = match matches.subcommand() {
        Some(("serve", matches)) => serve(matches),
        Some(("gateway", matches)) => match logged(matches) {
            Ok(()) => return cli::run("gateway", matches, command),
            Err(error) => Err(error),
        },
        Some((name, matches)) => return cli::run(name, matches, command),
        // clap requires a subcommand.
        None => return ExitCode::FAILURE,
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rutter: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Starts logging for a client that runs for a long time.
fn logged(matches: &ArgMatches) -> Result<()> {
    let level = matches.subcommand().and_then(|(_, matches)| matches.get_one::<String>("log-level"));
    log::start_with(level.map_or("info", String::as_str), LogFormat::Text).map(drop)
}

fn serve(matches: &ArgMatches) -> Result<()> {
    let given = Given::gather(matches, &|name| std::env::var_os(name))?;
    let settings = Settings::from_given(&given)?;
    let levels = log::start(&settings)?;
    runtime::run(&settings, levels)
}
