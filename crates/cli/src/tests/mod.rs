//! Tests of the whole command line, and its reference page.

mod convert;
mod reference;

use super::*;

#[test]
fn commands_are_consistent_and_have_help() {
    let mut root = with_commands(Command::new("rutter"));
    root.build();
    root.clone().debug_assert();
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        assert!(command.get_about().is_some(), "{}", command.get_name());
        for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
            assert!(argument.get_help().is_some(), "{} --{}", command.get_name(), argument.get_id());
        }
    }
}

#[test]
fn each_command_is_in_one_group() {
    let root = with_commands(Command::new("rutter"));
    let mut grouped: Vec<&str> = help::groups().flat_map(|(_, names)| names).collect();
    grouped.retain(|name| !commands::SERVE.contains(name));
    let visible = root.get_subcommands().filter(|command| !command.is_hide_set());
    assert_eq!(grouped, visible.map(Command::get_name).collect::<Vec<_>>());
    assert!(verbs().all(|verb| (verb.command)().get_name() == verb.name));
}
