//! Effects of fields on proxies and the tests that show them, from `crates/config/tests/fields.txt`.

use std::collections::BTreeMap;

use super::tree::{Effect, Row, Table};

const FILE: &str = include_str!("../../../../tests/fields.txt");

/// A line of the file. It is about a field and everything below it; the path `.` is a whole kind or message.
pub(super) struct Line {
    pub(super) path: String,
    /// The effect; empty if there is nothing to say besides that there is one.
    pub(super) effect: &'static str,
    pub(super) tests: Vec<&'static str>,
}

impl Line {
    /// Whether a field is the one of the line or below it.
    fn covers(&self, path: &str) -> bool {
        let below = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[']);
        self.path == "." || path.strip_prefix(&*self.path).is_some_and(below)
    }

    /// Whether neither the field nor anything below it has an effect.
    fn is_none(&self) -> bool {
        self.effect.starts_with("None")
    }
}

/// The lines of one kind or message.
#[derive(Default)]
pub(super) struct Section {
    /// The text at its start.
    pub(super) text: Vec<&'static str>,
    pub(super) lines: Vec<Line>,
}

impl Section {
    /// The effect of a row: what the declaration says, and the text of the file.
    pub(super) fn effect(&self, row: &Row) -> String {
        let covers = |line: &&Line| line.covers(&row.path);
        let line = self.lines.iter().filter(covers).max_by_key(|line| line.path.len());
        let text = line.filter(|line| line.path == row.path).map_or("", |line| line.effect);
        match (row.effect, text) {
            (Effect::Yes, "") if line.is_some_and(Line::is_none) => "none".to_owned(),
            (Effect::Yes, "") => "yes".to_owned(),
            (Effect::InPart, "") => "in part".to_owned(),
            (Effect::NotYet, "") => "not yet".to_owned(),
            (Effect::None, "") => "none".to_owned(),
            (Effect::Rejected, "") => "none; rejected".to_owned(),
            (Effect::InPart, text) => format!("In part: {text}"),
            (Effect::NotYet, text) => format!("Not yet: {text}"),
            (_, text) => text.to_owned(),
        }
    }
}

/// The sections, by the name of the kind or message.
pub(super) fn read() -> BTreeMap<&'static str, Section> {
    let mut sections: BTreeMap<&str, Section> = BTreeMap::new();
    let mut name = "";
    for line in FILE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name = heading;
            assert!(sections.insert(name, Section::default()).is_none(), "[{name}] is there twice");
            continue;
        }
        let section = sections.get_mut(name).expect("the file starts with a section");
        if let Some(text) = line.strip_prefix("> ") {
            section.text.push(text);
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [path, effect, tests] = cells[..] else { panic!("not `PATH | EFFECT | TESTS`: {line}") };
        section.lines.push(Line { path: path.to_owned(), effect, tests: tests.split_whitespace().collect() });
    }
    sections
}

/// Errors in the file: sections and paths that do not exist, and fields with an effect that no line covers.
pub(super) fn errors(sections: &BTreeMap<&str, Section>, tables: &[Table]) -> Vec<String> {
    let unknown = sections.keys().filter(|name| !tables.iter().any(|table| table.name == **name));
    let mut errors: Vec<String> = unknown.map(|name| format!("[{name}] is no kind or shared message")).collect();
    for table in tables {
        let lines = sections.get(table.name).map_or(&[][..], |section| &section.lines);
        for line in lines {
            if line.path != "." && !table.rows.iter().any(|row| row.path == line.path) {
                errors.push(format!("[{}] has no field {}", table.name, line.path));
            }
        }
        for row in &table.rows {
            let has_inner = table.rows.iter().any(|other| other.path.starts_with(&format!("{}.", row.path)));
            let has_items = table.rows.iter().any(|other| other.path.starts_with(&format!("{}[", row.path)));
            let is_leaf = !has_inner && !has_items && row.message.is_none();
            let is_covered = lines.iter().any(|line| line.covers(&row.path));
            if is_leaf && row.effect == Effect::Yes && !is_covered {
                errors.push(format!("[{}]: no line covers {}", table.name, row.path));
            }
        }
    }
    errors
}
