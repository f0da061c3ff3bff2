//! Flags in the forms that most commands use.

use clap::{Arg, ArgAction};

use crate::age;

/// A flag without a value.
pub(crate) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

/// A flag with a value: `--name VALUE`.
pub(crate) fn option(name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name(value).help(help)
}

/// `-o FORMAT`.
pub(crate) fn format(help: &'static str) -> Arg {
    option("output", "FORMAT", help).short('o')
}

/// `-o` of commands that print whole objects.
pub(crate) fn yaml_or_json() -> Arg {
    format("Output format: yaml or json").value_parser(["yaml", "json"]).default_value("yaml")
}

/// `--timeout` of commands that wait.
pub(crate) fn timeout() -> Arg {
    option("timeout", "DURATION", "Maximum time to wait").value_parser(age::parse).default_value("60s")
}
