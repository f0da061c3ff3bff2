//! Shell completion. The scripts call `rutter __complete`, which suggests flags of this build and kinds and names of the
//! server.

mod line;

use std::time::Duration;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use clap_complete::Shell;
use tokio::runtime::Runtime;

use crate::failure::SUCCESS;
use crate::io::Io;
use line::Line;

/// Maximum time to wait for the server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// `completion`, and `__complete` for the scripts.
pub(crate) fn commands() -> [Command; 2] {
    let shell = Arg::new("shell")
        .required(true)
        .value_name("SHELL")
        .value_parser(clap::value_parser!(Shell))
        .help("Name of the shell");
    [
        Command::new("completion")
            .about("Print a completion script for a shell")
            .after_help(
                "Completes commands, flags, kinds, names, namespaces and contexts.\n\n\
                 Examples:\n  source <(rutter completion bash)                      # this shell\n  \
                 rutter completion bash > ~/.local/share/bash-completion/completions/rutter\n  \
                 source <(rutter completion zsh)                       # after compinit\n  \
                 rutter completion fish > ~/.config/fish/completions/rutter.fish",
            )
            .arg(shell),
        Command::new("__complete")
            .hide(true)
            .arg(Arg::new("words").action(ArgAction::Append).num_args(0..).last(true).allow_hyphen_values(true)),
    ]
}

/// Runs one of [`commands`]; none if the name is another command's.
pub(crate) fn run(
    name: &str,
    matches: &ArgMatches,
    root: fn() -> Command,
    runtime: &Runtime,
    io: &mut Io,
) -> Option<Result<u8>> {
    match name {
        "completion" => {
            let shell = matches.get_one::<Shell>("shell").copied().unwrap_or(Shell::Bash);
            Some(io.out.write_all(&script(shell, root)).map(|()| SUCCESS).map_err(Into::into))
        }
        "__complete" => {
            let words: Vec<String> = matches.get_many::<String>("words").into_iter().flatten().cloned().collect();
            let mut root = root();
            root.build();
            let line = Line::read(&root, &words);
            let words = runtime.block_on(async { tokio::time::timeout(TIMEOUT, line.words(io)).await });
            let words = words.unwrap_or_default();
            Some(words.iter().try_for_each(|word| io.print(word)).map(|()| SUCCESS).map_err(Into::into))
        }
        _ => None,
    }
}

fn script(shell: Shell, root: fn() -> Command) -> Vec<u8> {
    match shell {
        Shell::Bash => BASH.as_bytes().to_vec(),
        Shell::Zsh => ZSH.as_bytes().to_vec(),
        Shell::Fish => FISH.as_bytes().to_vec(),
        // Scripts for other shells complete commands and flags only.
        shell => {
            let mut out = Vec::new();
            clap_complete::generate(shell, &mut root(), "rutter", &mut out);
            out
        }
    }
}

const BASH: &str = include_str!("rutter.bash");

const ZSH: &str = include_str!("rutter.zsh");

const FISH: &str = include_str!("rutter.fish");

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> Command {
        crate::with_commands(Command::new("rutter"))
    }

    #[test]
    fn there_is_a_script_for_every_shell() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::PowerShell, Shell::Elvish] {
            let text = String::from_utf8(script(shell, root)).unwrap();
            assert!(text.contains("rutter"), "{shell}");
        }
    }
}
