//! The grouped help of the program.

use clap::Command;

use crate::commands::{GROUPS, SERVE};

/// Replaces the list of commands in the help of the whole command line by groups.
pub(crate) fn grouped(root: Command) -> Command {
    let about = |name: &str| {
        let command = root.get_subcommands().find(|command| command.get_name() == name);
        command.and_then(|command| command.get_about().map(ToString::to_string))
    };
    let mut list = String::new();
    for (heading, names) in groups() {
        list.push_str(&format!("{heading}:\n"));
        for name in names {
            if let Some(about) = about(name) {
                list.push_str(&format!("  {name:<21} {about}\n"));
            }
        }
        list.push('\n');
    }
    root.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}{{after-help}}"
    ))
    .after_help(
        "Connection flags such as --namespace and --server may precede the command.\n\
         `rutter COMMAND --help` prints the flags of a command with examples.",
    )
}

/// The headings of the help with the names of their commands.
pub(crate) fn groups() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let serve = ("Serve", SERVE.to_vec());
    let others = GROUPS.iter().map(|group| {
        let mut names: Vec<&str> = group.verbs.iter().map(|verb| verb.name).collect();
        if group.heading == "Setup" {
            names.push("completion");
        }
        (group.heading, names)
    });
    std::iter::once(serve).chain(others)
}
