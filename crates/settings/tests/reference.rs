//! The generated page `docs/reference/settings.md`.

// Failures fail the test.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::Path;

use settings::TABLE;

/// The text of `docs/reference/settings.md`.
fn reference() -> String {
    let mut page = String::from(
        "# Settings of `rutter serve`\n\n\
         <!-- Generated from crates/settings/src/table.rs by `cargo xtask docs`; do not edit. -->\n\n\
         Each setting can be given as a flag, as an environment variable, or in a YAML file with `name: value` lines, named by\n\
         `--settings FILE` or `RUTTER_SETTINGS`. A flag takes precedence over the environment, the environment over the file,\n\
         and the file over the default. An invalid value prevents the start; the error names the setting, the source of the\n\
         value and the accepted form.\n",
    );
    let mut group = "";
    for setting in TABLE {
        if setting.group != group {
            group = setting.group;
            let _ = write!(page, "\n## {group}\n");
        }
        let default = if setting.default.is_empty() { "none".to_owned() } else { format!("`{}`", setting.default) };
        let alias = setting.alias.map(|alias| format!(" · istiod's name: `--{alias}`")).unwrap_or_default();
        let variable = setting.istio_variable.map(|variable| format!(" or istiod's `{variable}`")).unwrap_or_default();
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

/// Wraps a paragraph at 118 characters.
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

/// `RUTTER_UPDATE_DOCS` (which `cargo xtask docs` sets) writes the page instead of checking it.
#[test]
fn the_reference_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/settings.md");
    if std::env::var_os("RUTTER_UPDATE_DOCS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(page == reference(), "docs/reference/settings.md differs from the table; run `cargo xtask docs`");
}
