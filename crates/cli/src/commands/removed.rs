//! Verbs that `kubectl` implements and Rutter does not: each one fails with the `kubectl` command to run instead.

use anyhow::Error;
use clap::{Arg, ArgAction, ArgMatches, Command};

use crate::failure::usage;
use crate::io::Io;
use crate::server;

/// The verbs of `kubectl` that people are most likely to try.
const VERBS: [&str; 9] =
    ["annotate", "api-resources", "api-versions", "auth", "config", "edit", "explain", "label", "patch"];

/// A hidden command for each verb, which accepts any arguments.
pub(crate) fn commands() -> impl Iterator<Item = Command> {
    let arguments = || {
        Arg::new("arguments").action(ArgAction::Append).num_args(0..).trailing_var_arg(true).allow_hyphen_values(true)
    };
    let command = move |name| Command::new(name).hide(true).disable_help_flag(true).arg(arguments());
    VERBS.into_iter().map(command)
}

/// The error for one of these verbs; none for other commands.
pub(crate) fn error(name: &str, matches: &ArgMatches, io: &Io) -> Option<Error> {
    let name = VERBS.into_iter().find(|verb| *verb == name)?;
    let arguments = matches.get_many::<String>("arguments").into_iter().flatten();
    let arguments: String = arguments.map(|argument| format!(" {}", quoted(argument))).collect();
    let kubeconfig = kubeconfig(io);
    Some(usage(format!("rutter has no command `{name}`: use `kubectl{kubeconfig} {name}{arguments}`")))
}

/// The flag by which `kubectl` finds the embedded server's kubeconfig, if it would not find it by itself.
fn kubeconfig(io: &Io) -> String {
    let files = server::kubeconfig_files(None, io).unwrap_or_default();
    match files.as_slice() {
        [own] if io.var("KUBECONFIG").is_none() && !own.ends_with(".kube/config") => {
            format!(" --kubeconfig {}", quoted(&own.display().to_string()))
        }
        _ => String::new(),
    }
}

/// An argument as a shell reads it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubectl_command_is_named() {
        let io = Io::to(std::io::sink(), std::io::sink());
        let message = |arguments: &[&str]| {
            let root = Command::new("rutter").subcommands(commands());
            let matches = root.get_matches_from([&["rutter"], arguments].concat());
            let (name, matches) = matches.subcommand().unwrap();
            error(name, matches, &io).unwrap().to_string()
        };
        assert_eq!(
            message(&["patch", "vs", "a", "-p", "{\"a\": 1}"]),
            "rutter has no command `patch`: use `kubectl patch vs a -p '{\"a\": 1}'`"
        );
        assert_eq!(message(&["edit", "--help"]), "rutter has no command `edit`: use `kubectl edit --help`");
    }
}
