//! docs/reference/fields.md: every field of Istio's kinds and of the mesh settings.

mod effects;
mod tree;
mod types;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use effects::Section;
use tree::{Row, Table, tables};

use super::page;
use crate::effects::KINDS_NOT_YET;
use crate::schema::{Check, Schema, find_kind};

const INTRODUCTION: &str = "\
# Fields

<!-- Generated from the declarations in crates/config/src and from crates/config/tests/fields.txt by `cargo xtask docs`; do not edit. -->

Every field of Istio's kinds and of the mesh settings (MeshConfig, MeshNetworks). The page is generated from the declarations that
Rutter decodes and validates with; `kubectl explain KIND.FIELD` has the full descriptions. [Differences from
istiod](../differences-from-istio.md) lists deliberate differences in behavior.

- *Field*: the path from `spec`, or from the message. `[]` means every item of a list, `*` every key of a map.
- *Type*: the type, the allowed values and the default. A link leads to a message that several fields use; its fields are
  listed [once](#shared-messages).
- *Effect*: `yes`, or what the field sets in Envoy's configuration. `not yet`: the field is validated, has no effect, and gives
  a warning when it is used. `in part`: some of the fields below it have no effect yet. `none`: the field has no effect on the
  configuration of proxies.
";

/// The text of the page.
fn text(tables: &[Table], sections: &BTreeMap<&str, Section>) -> String {
    let mut out = String::from(INTRODUCTION);
    let kinds = tables.iter().filter(|table| table.kind.is_some());
    let links: Vec<String> = kinds.map(|table| link(table.name)).collect();
    let _ = write!(out, "\nKinds: {}.\n\n## Kinds\n", links.join(" · "));
    let mut in_messages = false;
    let nothing = Section::default();
    for table in tables {
        if table.kind.is_none() && !in_messages {
            in_messages = true;
            out.push_str("\n## Shared messages\n\nMessages that several fields use.\n");
        }
        let section = sections.get(table.name).unwrap_or(&nothing);
        let _ = write!(out, "\n### {}\n\n{}\n", table.name, about(table));
        for text in &section.text {
            let _ = write!(out, "\n{text}\n");
        }
        out.push_str("\n| Field | Type | Meaning | Effect |\n|---|---|---|---|\n");
        for row in &table.rows {
            let kind = types::describe(row, table);
            let _ = writeln!(out, "| `{}` | {kind} | {} | {} |", row.path, meaning(row), section.effect(row));
        }
    }
    out
}

/// The description of a kind or message.
fn about(table: &Table) -> String {
    let Some(kind) = table.kind else {
        return format!("{}{}", table.schema.description, one_of(&table.schema, &table.rows));
    };
    let versions = kind.versions().join(", ");
    let description = find_kind(kind.group(), kind.name()).map_or_else(
        || table.schema.description.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned() + ".",
        |definition| definition.schema.description.to_string(),
    );
    let mut out = match kind.is_setting() {
        true => description,
        false => format!("{description} API: `{}`, {versions}.", kind.group()),
    };
    if KINDS_NOT_YET.contains(&kind) {
        out.push_str(" The kind has no effect yet.");
    }
    out + &one_of(&table.schema, &table.rows)
}

/// The first sentence of a field's description, and the fields of which at most one may be set.
fn meaning(row: &Row) -> String {
    let text = row.schema.description.replace('|', "\\|");
    // A sentence such as "Deprecated." does not describe the field.
    let end = text.match_indices(". ").map(|(at, _)| at + 1).find(|at| *at > 15);
    let mut out = text[..end.unwrap_or(text.len())].to_owned();
    let deprecated = |check: &Check| matches!(check, Check::Unwanted(_, "deprecated", _));
    if row.schema.checks.iter().any(deprecated) && !out.contains("eprecated") {
        out.push_str(" Deprecated.");
    }
    out
}

/// A sentence about mutually exclusive fields.
fn one_of(schema: &Schema, rows: &[Row]) -> String {
    let groups = schema.fields().map_or(&[][..], |fields| &fields.exclusive);
    let is_row = |name: &&&str| rows.iter().any(|row| row.path == **name);
    let sentence = |group: &Vec<&'static str>| {
        let names: Vec<String> = group.iter().filter(is_row).map(|name| format!("`{name}`")).collect();
        format!(" At most one of {} may be set.", names.join(", "))
    };
    groups.iter().map(sentence).collect()
}

/// A link to a section of the page.
fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_ascii_lowercase())
}

#[test]
fn fields_reference_page_is_up_to_date() {
    page::check("fields.md", &text(&tables(), &effects::read()));
}

#[test]
fn every_field_with_an_effect_has_a_test() {
    let errors = effects::errors(&effects::read(), &tables());
    assert!(errors.is_empty(), "crates/config/tests/fields.txt:\n{}", errors.join("\n"));
}

#[test]
fn tests_of_fields_exist() {
    let tests = page::root().join("tests");
    let sources: String = fs::read_dir(tests.join("e2e/tests"))
        .expect("tests")
        .filter_map(|entry| fs::read_to_string(entry.expect("a file").path()).ok())
        .collect();
    for line in effects::read().values().flat_map(|section| &section.lines) {
        assert!(!line.tests.is_empty(), "{}: no test", line.path);
        for test in &line.tests {
            let exists = match test.split_once('/') {
                Some(_) => tests.join(format!("scenarios/data/{test}.scenario")).exists(),
                None if matches!(*test, "validation" | "mesh") => true,
                None => sources.contains(&format!("fn {test}(")),
            };
            assert!(exists, "there is no test {test}");
        }
    }
}

#[test]
fn messages_have_one_table_and_kinds_show_what_they_lack() {
    let tables = tables();
    let names: std::collections::BTreeSet<&str> = tables.iter().map(|table| table.name).collect();
    assert_eq!(names.len(), tables.len(), "two tables have one heading");
    let effect = |table: &str, path: &str| {
        let table = tables.iter().find(|one| one.name == table).unwrap_or_else(|| panic!("{table}"));
        table.rows.iter().find(|row| row.path == path).unwrap_or_else(|| panic!("{path}")).effect
    };
    assert_eq!(effect("MeshConfig", "extensionProviders"), tree::Effect::Yes);
    assert_eq!(effect("MeshConfig", "extensionProviders[].envoyExtAuthzHttp.service"), tree::Effect::Yes);
    assert_eq!(effect("AuthorizationPolicy", "rules"), tree::Effect::Yes);
    assert_eq!(effect("Telemetry", "tracing"), tree::Effect::NotYet);
    assert_eq!(effect("StringMatch", "exact"), tree::Effect::Yes);
}
