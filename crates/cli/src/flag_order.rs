//! Connection flags may precede the command: `rutter -n shop get vs`.

use std::ffi::{OsStr, OsString};

use clap::{Arg, Command};

use crate::server;

/// Moves connection flags that precede the command behind it, where the parser expects them. The first argument is the
/// program's name.
pub(crate) fn command_first(arguments: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut arguments = arguments.into_iter();
    let mut ordered: Vec<OsString> = arguments.next().into_iter().collect();
    let flags = server::arguments(Command::new("flags"));
    let mut moved = Vec::new();
    while let Some(argument) = arguments.next() {
        let Some(takes_value) = argument.to_str().and_then(|text| connection_flag(&flags, text)) else {
            ordered.push(argument);
            break;
        };
        moved.push(argument);
        if takes_value {
            moved.extend(arguments.next());
        }
    }
    ordered.extend(moved);
    ordered.extend(arguments);
    ordered
}

/// Whether the argument after this connection flag is its value; none if it is not a connection flag.
fn connection_flag(flags: &Command, text: &str) -> Option<bool> {
    let (name, joined) = match text.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or_default();
            (name.to_owned(), long.len() > name.len())
        }
        None => {
            let mut short = text.strip_prefix('-')?.chars();
            (short.next()?.to_string(), short.next().is_some())
        }
    };
    let is_named = |flag: &&Arg| match text.starts_with("--") {
        true => flag.get_long() == Some(&name),
        false => flag.get_short().map(String::from).as_ref() == Some(&name),
    };
    let flag = flags.get_arguments().find(is_named)?;
    Some(flag.get_action().takes_values() && !joined)
}

/// The same for the words of a command line without the program's name.
pub(crate) fn words_command_first(words: &[String]) -> Vec<String> {
    let with_program = std::iter::once(OsString::new()).chain(words.iter().map(OsString::from));
    let ordered = command_first(with_program);
    let text = |word: &OsString| OsStr::to_string_lossy(word).into_owned();
    ordered.iter().skip(1).map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_flags_follow_the_command() {
        let ordered = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            words_command_first(&words).join(" ")
        };
        assert_eq!(ordered("get vs -n shop"), "get vs -n shop");
        assert_eq!(ordered("-n shop get vs"), "get -n shop vs");
        assert_eq!(ordered("-nshop --server=https://a get vs"), "get -nshop --server=https://a vs");
        assert_eq!(
            ordered("--insecure-skip-tls-verify --context c apply -f -"),
            "apply --insecure-skip-tls-verify --context c -f -"
        );
        assert_eq!(ordered("--help get"), "--help get");
        assert_eq!(ordered("-n shop"), "-n shop");
    }
}
