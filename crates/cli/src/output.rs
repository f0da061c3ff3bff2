//! The output formats of `-o`.

use anyhow::Result;
use clap::{ArgMatches, Command};
use config::json_path::JsonPathError;
use serde_json::{Value as Json, json};

use crate::flags::{self, flag};
use crate::io::Io;
use crate::jsonpath::Template;
use crate::server::Kind;
use crate::style::printable;
use crate::yaml;

/// An output format.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Format {
    /// A table; wide tables have more columns.
    Table {
        wide: bool,
    },
    Yaml,
    Json,
    /// `KIND.GROUP/NAME`.
    Name,
    JsonPath(Template),
}

/// An invalid value of `-o`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FormatError {
    #[error("`{0}` is not one of: wide, yaml, json, name, jsonpath=TEMPLATE")]
    Unknown(String),
    #[error("the template is missing: -o jsonpath='{{.metadata.name}}'")]
    NoTemplate,
    #[error(transparent)]
    Template(#[from] JsonPathError),
}

impl Format {
    /// Parses the value of `-o`.
    pub(crate) fn parse(text: &str) -> Result<Format, FormatError> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        match name {
            "" => Ok(Format::Table { wide: false }),
            "wide" => Ok(Format::Table { wide: true }),
            "yaml" => Ok(Format::Yaml),
            "json" => Ok(Format::Json),
            "name" => Ok(Format::Name),
            "jsonpath" if rest.is_empty() => Err(FormatError::NoTemplate),
            "jsonpath" => Ok(Format::JsonPath(Template::parse(rest)?)),
            _ => Err(FormatError::Unknown(text.to_owned())),
        }
    }

    pub(crate) fn is_table(&self) -> bool {
        matches!(self, Format::Table { .. })
    }
}

/// Adds `-o` and `--show-managed-fields`.
pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(flags::format("Output format: wide, yaml, json, name or jsonpath='{.a.b}'").value_parser(Format::parse))
        .arg(flag("show-managed-fields", "Include metadata.managedFields"))
}

/// The value of `-o`.
pub(crate) fn of(matches: &ArgMatches) -> Option<Format> {
    matches.get_one::<Format>("output").cloned()
}

/// Removes `managedFields` unless a flag asks for them.
pub(crate) fn tidy(object: &mut Json, matches: &ArgMatches) {
    let all = matches.try_get_one::<bool>("show-managed-fields").ok().flatten().copied();
    if all == Some(true) {
        return;
    }
    if let Some(items) = object.get_mut("items").and_then(Json::as_array_mut) {
        items.iter_mut().for_each(without_managed_fields);
    }
    without_managed_fields(object);
}

/// Removes `metadata.managedFields`.
pub(crate) fn without_managed_fields(object: &mut Json) {
    if let Some(meta) = object.get_mut("metadata").and_then(Json::as_object_mut) {
        meta.remove("managedFields");
    }
}

/// Prints one object, or one list, in a format that is not a table.
pub(crate) fn print(io: &mut Io, format: &Format, kind: Option<&Kind>, object: &Json) -> Result<()> {
    match format {
        // Commands that print tables do not call this for them.
        Format::Table { .. } | Format::Yaml => write!(io.out, "{}", safe(yaml::document(object), io))?,
        Format::Json => writeln!(io.out, "{}", serde_json::to_string_pretty(object)?)?,
        Format::Name => {
            for item in items_of(object) {
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                let line = match kind {
                    Some(kind) => kind.named(name),
                    None => plain_name(item),
                };
                io.print(line)?;
            }
        }
        Format::JsonPath(template) => write!(io.out, "{}", safe(template.render(object), io))?,
    }
    Ok(())
}

/// Prints objects as YAML documents, each after a separator.
pub(crate) fn documents<'o>(objects: impl IntoIterator<Item = &'o Json>, io: &mut Io) -> Result<()> {
    for object in objects {
        write!(io.out, "---\n{}", yaml::document(object))?;
    }
    Ok(())
}

/// Removes control characters if standard output is a terminal.
fn safe(text: String, io: &Io) -> String {
    match io.terminal.out {
        true => printable(&text, true),
        false => text,
    }
}

/// `KIND.GROUP/NAME`, from the object's `apiVersion` and `kind`.
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

/// A `List` of objects of any kinds.
pub(crate) fn list(items: Vec<Json>) -> Json {
    json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": items})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed() {
        assert_eq!(Format::parse("wide"), Ok(Format::Table { wide: true }));
        assert!(matches!(Format::parse("jsonpath={.a}"), Ok(Format::JsonPath(_))));
        for wrong in ["xml", "jsonpath", "jsonpath={.a", "custom-columns=A:.a", "go-template={{.}}"] {
            assert!(Format::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_have_the_group() {
        let object =
            json!({"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "a"}});
        assert_eq!(plain_name(&object), "virtualservice.networking.istio.io/a");
        assert_eq!(plain_name(&json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})), "pod/a");
    }
}
