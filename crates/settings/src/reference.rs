//! The reference page, made from the table.

use std::fmt::Write;

use crate::table::TABLE;

/// The text of `docs/reference/settings.md`.
pub fn reference() -> String {
    let mut page = String::from(
        "# Settings of `rutter serve`\n\n\
         <!-- Made from the table in crates/settings/src/table.rs by `cargo xtask docs`; do not edit. -->\n\n\
         Each setting can be given as a flag, as an environment variable, or in a YAML file of `name: value` lines that\n\
         `--settings FILE` or `RUTTER_SETTINGS` names. A flag wins over the environment, the environment over the file,\n\
         the file over the default. A value that is not accepted stops the start, with its name, where it came from and\n\
         what would be accepted.\n",
    );
    let mut group = "";
    for setting in TABLE {
        if setting.group != group {
            group = setting.group;
            let _ = write!(page, "\n## {group}\n");
        }
        let default = if setting.default.is_empty() {
            "none".to_owned()
        } else {
            format!("`{}`", setting.default)
        };
        let alias = setting
            .alias
            .map(|alias| format!(" · also `--{alias}`, as istiod has it"))
            .unwrap_or_default();
        let variable = setting
            .istio_variable
            .map(|variable| format!(", or `{variable}`, as for istiod"))
            .unwrap_or_default();
        let _ = write!(
            page,
            "\n### `--{}`\n\n{}\n\nType: {} · default: {default} · environment: `{}`{variable}{alias}\n",
            setting.name(),
            wrapped(&setting.paragraph()),
            setting.form,
            setting.variable(),
        );
    }
    page
}

/// The paragraph in lines of at most 118 characters.
fn wrapped(paragraph: &str) -> String {
    let mut lines: Vec<String> = vec![String::new()];
    for word in paragraph.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= 118 => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}
