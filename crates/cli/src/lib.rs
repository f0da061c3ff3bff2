//! The command line, in the manner of `kubectl`: a client of any server that speaks Kubernetes' REST conventions, Rutter's
//! own as well as a real API server.
//!
//! [`commands`] are the commands for the program's parser, [`run`] does one of them. Each command is a file in `commands`;
//! what they share is beside it: `server` (connection, discovery, requests), `targets` (which objects), `manifests` (files),
//! `output`, `rows` and `table` (formats), `write` (dry runs and reports), `jsonpath`, `yaml`, `snippet`.
//!
//! Exit codes: [`SUCCESS`], [`FAILURE`], [`USAGE`], [`TIMEOUT`].

mod age;
mod blame;
mod chart;
mod commands;
mod completion;
mod failure;
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
mod words;
mod write;
mod yaml;

pub use failure::{FAILURE, SUCCESS, TIMEOUT, USAGE};
pub use io::{Environment, Io, Terminal};

use std::process::ExitCode;

use anyhow::Context;
use clap::{ArgMatches, Command};

use commands::VERBS;

/// The commands, to be added to the program's own.
pub fn commands() -> Vec<Command> {
    let verbs = VERBS.iter().map(|verb| (verb.command)());
    verbs.chain(completion::commands()).collect()
}

/// Runs one of [`commands`] with the streams and the environment of this process.
///
/// `root` makes the whole command line, which completion needs.
pub fn run(name: &str, matches: &ArgMatches, root: fn() -> Command) -> ExitCode {
    ExitCode::from(run_with(name, matches, root, &mut Io::of_process()))
}

/// The same with other streams and another environment; returns the exit code.
pub fn run_with(name: &str, matches: &ArgMatches, root: fn() -> Command, io: &mut Io) -> u8 {
    let result = work(name, matches, root, io).and_then(|code| {
        io.out.flush()?;
        Ok(code)
    });
    io.tell_warnings();
    match result {
        Ok(code) => code,
        Err(error) => failure::report(&error, io),
    }
}

fn work(name: &str, matches: &ArgMatches, root: fn() -> Command, io: &mut Io) -> anyhow::Result<u8> {
    // One thread does: a command waits for one server.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("no runtime could be started")?;
    if let Some(result) = completion::run(name, matches, root, &runtime, io) {
        return result;
    }
    let verb = VERBS.iter().find(|verb| (verb.command)().get_name() == name);
    let verb = verb.ok_or_else(|| failure::usage(format!("there is no command `{name}`")))?;
    let code = runtime.block_on((verb.run)(matches, io));
    // Connections that are still open need no farewell.
    runtime.shutdown_background();
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_sound_and_have_help() {
        let mut root = Command::new("rutter").subcommands(commands());
        root.build();
        root.clone().debug_assert();
        for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
                assert!(
                    argument.get_help().is_some(),
                    "{} --{}",
                    command.get_name(),
                    argument.get_id()
                );
            }
        }
    }
}
