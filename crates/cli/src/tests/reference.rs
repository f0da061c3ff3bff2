//! The generated page `docs/reference/cli.md`.

use clap::{Arg, Command};

use crate::{help, server};

const INTRODUCTION: &str = include_str!("reference.md");

/// The page: an introduction and a section for each command.
fn page() -> String {
    let root = crate::with_commands(Command::new("rutter"));
    let connection = server::arguments(Command::new("connection"));
    let mut page = INTRODUCTION.replace("CONNECTION_FLAGS\n", &table(&connection, |_| true));
    for (heading, names) in help::groups() {
        page.push_str(&format!("\n## {heading}\n"));
        for name in names {
            let Some(command) = root.get_subcommands().find(|command| command.get_name() == name) else {
                continue;
            };
            section(name, command, &connection, &mut page);
            for below in command.get_subcommands() {
                section(&format!("{name} {}", below.get_name()), below, &connection, &mut page);
            }
        }
        if heading == "Serve" {
            page.push_str("\n`rutter serve` runs the control plane; [settings.md](settings.md) lists its flags.\n");
        }
    }
    page
}

fn section(name: &str, command: &Command, connection: &Command, page: &mut String) {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    page.push_str(&format!("\n### rutter {name}\n\n{}.\n", about.trim_end_matches('.')));
    let usage = command.clone().bin_name(format!("rutter {name}")).render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ");
    page.push_str(&format!("\n```text\n{usage}\n```\n"));
    let is_own = |flag: &Arg| !connection.get_arguments().any(|known| known == flag);
    let flags = table(command, is_own);
    if !flags.is_empty() {
        page.push_str(&format!("\n{flags}"));
    }
    if command.get_arguments().any(|flag| !is_own(flag)) {
        page.push_str("\nAlso accepts the connection flags.\n");
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (text, examples) = help.split_once("Examples:\n").unwrap_or((&help, ""));
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        page.push_str(&format!("\n{}\n", paragraph.trim()));
    }
    if !examples.is_empty() {
        let lines: Vec<&str> = examples.lines().map(str::trim).collect();
        page.push_str(&format!("\n```sh\n{}\n```\n", lines.join("\n")));
    }
}

/// A table of the flags and arguments that a test chooses; nothing if there are none.
fn table(command: &Command, is_wanted: impl Fn(&Arg) -> bool) -> String {
    let mut rows = String::new();
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set() && is_wanted(flag)) {
        let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
        let default = flag.get_default_values().iter().map(|value| value.to_string_lossy());
        let default: Vec<String> =
            default.filter(|value| *value != "false").map(|value| format!("`{value}`")).collect();
        let default = if default.is_empty() { String::new() } else { format!(" Default: {}.", default.join(", ")) };
        rows.push_str(&format!("| {} | {}.{default} |\n", names(flag), escaped(help.trim_end_matches('.'))));
    }
    match rows.is_empty() {
        true => rows,
        false => format!("| flag | meaning |\n|---|---|\n{rows}"),
    }
}

/// `` `-n`, `--namespace NAME` ``.
fn names(flag: &Arg) -> String {
    let values: Vec<&str> = flag.get_value_names().into_iter().flatten().map(|name| name.as_str()).collect();
    let value = if flag.get_action().takes_values() { values.join(" ") } else { String::new() };
    let Some(long) = flag.get_long() else {
        return format!("`{}`", escaped(&value));
    };
    let short = flag.get_short().map_or(String::new(), |short| format!("`-{short}`, "));
    format!("{short}`{}`", escaped(format!("--{long} {value}").trim()))
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// `RUTTER_UPDATE_DOCS=1` writes the page.
#[test]
fn reference_page_of_commands_is_up_to_date() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let expected = page();
    if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == expected, "docs/reference/cli.md is out of date: `cargo xtask docs` writes it");
}
