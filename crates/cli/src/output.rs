//! The formats of `-o`.

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::io::Io;
use crate::jsonpath::{Path, Template};
use crate::server::Kind;
use crate::style::printable;
use crate::table::Table;
use crate::yaml;

/// How objects are printed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Format {
    /// For people, in columns; with more of them if wide.
    Table {
        wide: bool,
    },
    Yaml,
    Json,
    /// `KIND.GROUP/NAME`.
    Name,
    JsonPath(Template),
    /// Headings and paths.
    Columns(Vec<(String, Path)>),
}

impl Format {
    /// Reads the value of `-o`.
    pub(crate) fn parse(text: &str) -> Result<Format, String> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        match name {
            "" => Ok(Format::Table { wide: false }),
            "wide" => Ok(Format::Table { wide: true }),
            "yaml" => Ok(Format::Yaml),
            "json" => Ok(Format::Json),
            "name" => Ok(Format::Name),
            "jsonpath" if rest.is_empty() => Err("a template is missing: -o jsonpath='{.metadata.name}'".to_owned()),
            "jsonpath" => Template::parse(rest)
                .map(Format::JsonPath)
                .map_err(|error| error.to_string()),
            "custom-columns" => columns(rest).map(Format::Columns),
            _ => Err(format!(
                "`{text}` is none of: wide, yaml, json, name, jsonpath=…, custom-columns=…"
            )),
        }
    }

    /// Whether it is for people.
    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Format::Table { .. })
    }
}

fn columns(text: &str) -> Result<Vec<(String, Path)>, String> {
    let column = |column: &str| {
        let (heading, path) = column
            .split_once(':')
            .filter(|(heading, path)| !heading.is_empty() && !path.is_empty())
            .ok_or_else(|| "custom-columns are HEADING:PATH,HEADING:PATH".to_owned())?;
        Ok((
            heading.to_owned(),
            Path::parse(path).map_err(|error| error.to_string())?,
        ))
    };
    text.split(',').map(column).collect()
}

/// Adds `-o` and `--show-managed-fields`.
pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORMAT")
                .value_parser(Format::parse)
                .help("wide, yaml, json, name, jsonpath='{.a.b}' or custom-columns=HEADING:.a.b,…"),
        )
        .arg(
            Arg::new("show-managed-fields")
                .long("show-managed-fields")
                .action(ArgAction::SetTrue)
                .help("Print metadata.managedFields, too"),
        )
}

/// The format that was asked for; none if none was.
pub(crate) fn of(matches: &ArgMatches) -> Option<Format> {
    matches.get_one::<Format>("output").cloned()
}

/// Takes out what people seldom want to see.
pub(crate) fn tidy(object: &mut Json, matches: &ArgMatches) {
    let all = matches
        .try_get_one::<bool>("show-managed-fields")
        .ok()
        .flatten()
        .copied();
    if all == Some(true) {
        return;
    }
    if let Some(items) = object.get_mut("items").and_then(Json::as_array_mut) {
        items.iter_mut().for_each(without_managed_fields);
    }
    without_managed_fields(object);
}

/// Takes `metadata.managedFields` out.
pub(crate) fn without_managed_fields(object: &mut Json) {
    if let Some(meta) = object.get_mut("metadata").and_then(Json::as_object_mut) {
        meta.remove("managedFields");
    }
}

/// Prints one object, or one list, in a format that is not a table.
pub(crate) fn print(io: &mut Io, format: &Format, kind: Option<&Kind>, object: &Json) -> Result<()> {
    match format {
        // Whoever prints tables does so himself.
        Format::Table { .. } | Format::Yaml => write!(io.out, "{}", safe(yaml::document(object), io))?,
        Format::Json => writeln!(io.out, "{}", serde_json::to_string_pretty(object)?)?,
        Format::Name => {
            for item in items_of(object) {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let line = match kind {
                    Some(kind) => kind.named(name),
                    None => plain_name(item),
                };
                io.say(line)?;
            }
        }
        Format::JsonPath(template) => write!(io.out, "{}", safe(template.render(object)?, io))?,
        Format::Columns(columns) => {
            let mut table = Table::new(columns.iter().map(|(heading, _)| heading.as_str()));
            for item in items_of(object) {
                table.row(cells(columns, item)?);
            }
            for line in table.lines(true, io.terminal.colour) {
                io.say(line)?;
            }
        }
    }
    Ok(())
}

/// The cells of an object's row.
pub(crate) fn cells(columns: &[(String, Path)], item: &Json) -> Result<Vec<String>> {
    let cell = |(_, path): &(String, Path)| Ok(path.text(item)?.unwrap_or_else(|| "<none>".to_owned()));
    columns.iter().map(cell).collect()
}

/// On a terminal without what could play tricks on it; in a pipe byte by byte.
fn safe(text: String, io: &Io) -> String {
    match io.terminal.out {
        true => printable(&text, true),
        false => text,
    }
}

/// `KIND.GROUP/NAME` of an object, from what it says itself.
pub(crate) fn plain_name(object: &Json) -> String {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&object["kind"]).to_lowercase();
    let name = text(&object["metadata"]["name"]);
    match text(&object["apiVersion"]).split_once('/') {
        Some((group, _)) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

fn items_of(object: &Json) -> Vec<&Json> {
    match object["items"].as_array() {
        Some(items) => items.iter().collect(),
        None => vec![object],
    }
}

/// A list of objects as clients print them, of whatever kinds.
pub(crate) fn list(items: Vec<Json>) -> Json {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_read() {
        assert_eq!(Format::parse("wide"), Ok(Format::Table { wide: true }));
        assert!(matches!(Format::parse("jsonpath={.a}"), Ok(Format::JsonPath(_))));
        assert!(matches!(Format::parse("custom-columns=A:.a,B:b.c"), Ok(Format::Columns(c)) if c.len() == 2));
        for wrong in [
            "xml",
            "jsonpath",
            "jsonpath={.a",
            "custom-columns=",
            "custom-columns=A",
            "go-template={{.}}",
        ] {
            assert!(Format::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_carry_the_group() {
        let object =
            json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a"}});
        assert_eq!(plain_name(&object), "virtualservice.networking.istio.io/a");
        assert_eq!(
            plain_name(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})),
            "pod/a"
        );
    }
}
