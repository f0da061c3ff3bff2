//! The command line: a client of any server that follows the conventions of the Kubernetes API, both Rutter's own server
//! and a real API server.
//!
//! The commands are those that a mesh, or a store without `kubectl`, needs. Generic object editing is left to `kubectl`.
//!
//! ```text
//! arguments ─command_first─► clap ─► run ─► commands::* ─► server (discovery, requests, watches)
//!                                               │
//!                                               └► output, rows, table, snippet ─► Io
//! ```
//!
//! Each command is one file in `commands`. They share `server` (connection, discovery, requests), `targets` (selected
//! objects), `manifests` (files), `output`, `rows` and `table` (formats), `write` (dry runs and reports), and
//! `error_location` and `snippet` (errors with the line of the file). A command reads and writes only through [`Io`], so
//! tests run it in their own process.
//!
//! Exit codes: [`SUCCESS`], [`FAILURE`], [`USAGE`], [`TIMEOUT`].

mod age;
mod chart;
mod commands;
mod completion;
mod error_location;
mod failure;
mod flag_order;
mod flags;
mod help;
mod io;
mod jsonpath;
mod manifests;
mod output;
mod rows;
mod server;
mod snippet;
mod style;
mod table;
mod targets;
#[cfg(test)]
mod tests;
mod write;
mod yaml;

pub use failure::{FAILURE, SUCCESS, TIMEOUT, USAGE};
pub use io::{Environment, Io, Terminal};

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};

use commands::{GROUPS, Verb, removed};

/// Adds the commands of this crate to the program's own, and grouped help.
pub fn with_commands(root: Command) -> Command {
    let verbs = verbs().map(|verb| (verb.command)());
    let all = verbs.chain(completion::commands()).chain(removed::commands());
    help::grouped(root.subcommands(all))
}

/// Moves connection flags that precede the command behind it, where the parser expects them.
pub fn command_first(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    flag_order::command_first(arguments)
}

fn verbs() -> impl Iterator<Item = &'static Verb> {
    GROUPS.iter().flat_map(|group| group.verbs)
}

/// Runs a command with the streams and the environment of this process.
///
/// `root` builds the whole command line, which completion needs.
pub fn run(name: &str, matches: &ArgMatches, root: fn() -> Command) -> ExitCode {
    ExitCode::from(run_with(name, matches, root, &mut Io::of_process()))
}

/// Runs a command with the given streams and environment; returns the exit code.
pub fn run_with(name: &str, matches: &ArgMatches, root: fn() -> Command, io: &mut Io) -> u8 {
    let result = execute(name, matches, root, io).and_then(|code| {
        io.out.flush()?;
        Ok(code)
    });
    io.print_warnings();
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error, io),
    }
}

fn execute(name: &str, matches: &ArgMatches, root: fn() -> Command, io: &mut Io) -> anyhow::Result<u8> {
    if let Some(error) = removed::error(name, matches, io) {
        return Err(error);
    }
    // One thread is enough: a command waits for one server.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start a runtime")?;
    if let Some(result) = completion::run(name, matches, root, &runtime, io) {
        return result;
    }
    let verb = verbs().find(|verb| verb.name == name);
    let verb = verb.ok_or_else(|| failure::usage(format!("unknown command `{name}`")))?;
    let code = runtime.block_on((verb.run)(matches, io));
    // Open connections need no orderly shutdown.
    runtime.shutdown_background();
    code
}
