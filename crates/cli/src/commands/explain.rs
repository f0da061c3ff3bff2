//! `rutter explain`: what a kind's fields mean, from the server's OpenAPI or from what this build knows.

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value as Json;

use crate::failure::SUCCESS;
use crate::io::Io;
use crate::server::{self, Catalogue, Kind, Server};
use crate::style::Paint;

/// How wide texts are.
const WIDTH: usize = 80;
/// How deep `--recursive` goes.
const MAX_DEPTH: usize = 24;
/// How many references are followed from one to the next.
const MAX_REFERENCES: usize = 16;

pub(super) fn command() -> Command {
    let flag = |name: &'static str, help: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
    let command = Command::new("explain")
        .about("Print what a kind's fields mean")
        .after_help("Examples:\n  rutter explain virtualservices\n  rutter explain vs.spec.http.route\n  rutter explain vs --recursive\n  rutter explain --local dr.spec")
        .arg(Arg::new("field").required(true).value_name("KIND[.FIELD…]").help("The kind, and the way to a field"))
        .arg(flag("recursive", "The fields' names all the way down"))
        .arg(flag("local", "What this build knows, without a server"))
        .arg(
            Arg::new("api-version")
                .long("api-version")
                .value_name("VERSION")
                .help("GROUP/VERSION of the kind"),
        );
    server::arguments(command)
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let words = matches
        .get_one::<String>("field")
        .map(String::as_str)
        .unwrap_or_default();
    let version = matches.get_one::<String>("api-version").map(String::as_str);
    let (kind, fields, document) = if matches.get_flag("local") {
        let (kind, fields) = find(&Catalogue::local(), words, version)?;
        let document = resources::schema::openapi::document(&kind.group, &kind.version)
            .ok_or_else(|| anyhow!("this build knows no schemas of {}", kind.api_version()))?;
        (kind, fields, document)
    } else {
        let server = Server::connect(matches, io).await?;
        let (kind, fields) = find(&server.catalogue().await?, words, version)?;
        let document = remote_document(&server, &kind).await?;
        (kind, fields, document)
    };
    let schemas = Schemas { document: &document };
    let root = schemas
        .of_kind(&kind)
        .ok_or_else(|| anyhow!("there is no schema of {} in {}", kind.kind, kind.api_version()))?;
    let (path, found) = schemas.walk(root, &fields)?;
    let page = Page {
        schemas,
        colour: io.terminal.colour,
        recursive: matches.get_flag("recursive"),
        out: String::new(),
    };
    write!(io.out, "{}", page.write(&kind, &path, found))?;
    Ok(SUCCESS)
}

/// The kind at the beginning of `vs.networking.istio.io.spec.http`, and the fields that follow.
fn find(catalogue: &Catalogue, words: &str, version: Option<&str>) -> Result<(Kind, Vec<String>)> {
    let parts: Vec<&str> = words.split('.').filter(|part| !part.is_empty()).collect();
    // The longest beginning that is a kind: a group has dots, too.
    let found = (1..=parts.len().min(8)).rev().find_map(|length| {
        let kind = catalogue.one(&parts[..length].join(".")).ok()?;
        Some((kind, length))
    });
    let Some((kind, length)) = found else {
        return Err(match parts.first() {
            Some(first) => catalogue
                .one(first)
                .err()
                .unwrap_or_else(|| anyhow!("no kind `{words}`")),
            None => anyhow!("which kind?"),
        });
    };
    let kind = match version {
        Some(version) => catalogue
            .of_object(version, &kind.kind)
            .ok_or_else(|| anyhow!("there is no {} in {version}", kind.kind))?,
        None => kind,
    };
    Ok((
        kind.clone(),
        parts[length..].iter().map(|part| (*part).to_owned()).collect(),
    ))
}

async fn remote_document(server: &Server, kind: &Kind) -> Result<Json> {
    let index = server.get("/openapi/v3").await?;
    let name = match kind.group.as_str() {
        "" => format!("api/{}", kind.version),
        group => format!("apis/{group}/{}", kind.version),
    };
    let Some(url) = index["paths"][&name]["serverRelativeURL"]
        .as_str()
        .filter(|url| url.starts_with('/'))
    else {
        bail!(
            "the server has no OpenAPI document of {}; --local explains what this build knows",
            kind.api_version()
        );
    };
    server.get(url).await
}

#[derive(Clone, Copy)]
struct Schemas<'d> {
    document: &'d Json,
}

impl<'d> Schemas<'d> {
    fn of_kind(self, kind: &Kind) -> Option<&'d Json> {
        let is_kind = |schema: &&Json| {
            let kinds = schema["x-kubernetes-group-version-kind"].as_array();
            kinds.into_iter().flatten().any(|one| {
                one["group"].as_str().unwrap_or_default() == kind.group
                    && one["version"] == kind.version.as_str()
                    && one["kind"] == kind.kind.as_str()
            })
        };
        self.document["components"]["schemas"]
            .as_object()?
            .values()
            .find(is_kind)
    }

    /// The schema itself, where one refers to another.
    fn resolve(self, schema: &'d Json) -> &'d Json {
        let mut schema = schema;
        for _ in 0..MAX_REFERENCES {
            let Some(name) = reference(schema) else { break };
            schema = &self.document["components"]["schemas"][name];
        }
        schema
    }

    /// What the items of lists and the values of maps are, all the way.
    fn inner(self, schema: &'d Json) -> &'d Json {
        let mut schema = self.resolve(schema);
        for _ in 0..MAX_REFERENCES {
            let next = match schema["items"].is_object() {
                true => &schema["items"],
                false if schema["additionalProperties"].is_object() => &schema["additionalProperties"],
                false => break,
            };
            schema = self.resolve(next);
        }
        schema
    }

    /// Follows fields; returns the schema as it is written at the last of them.
    fn walk(self, root: &'d Json, fields: &[String]) -> Result<(Vec<String>, &'d Json)> {
        let mut at = root;
        let mut path = Vec::new();
        for field in fields {
            let name = field.trim_end_matches("[]");
            let properties = &self.inner(at)["properties"];
            at = properties.get(name).ok_or_else(|| {
                let all: Vec<&str> = properties
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                let here = if path.is_empty() {
                    "the kind".to_owned()
                } else {
                    path.join(".")
                };
                match all.is_empty() {
                    true => anyhow!("field \"{name}\" does not exist: {here} has no fields"),
                    false => anyhow!("field \"{name}\" does not exist\nhint: {here} has {}", all.join(", ")),
                }
            })?;
            path.push(name.to_owned());
        }
        Ok((path, at))
    }

    /// `string`, `[]Object`, `map[string]string`, `ObjectMeta`.
    fn type_of(self, schema: &'d Json, depth: usize) -> String {
        if depth > MAX_REFERENCES {
            return "Object".to_owned();
        }
        if let Some(name) = reference(schema) {
            let target = self.resolve(schema);
            return match target["properties"].is_object() {
                true => name.rsplit('.').next().unwrap_or(name).to_owned(),
                false => self.type_of(target, depth + 1),
            };
        }
        if schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string" {
            return "IntOrString".to_owned();
        }
        match schema["type"].as_str() {
            Some("array") => format!("[]{}", self.type_of(&schema["items"], depth + 1)),
            Some("object") if schema["additionalProperties"].is_object() => {
                format!(
                    "map[string]{}",
                    self.type_of(&schema["additionalProperties"], depth + 1)
                )
            }
            Some("object") | None => "Object".to_owned(),
            Some(name) => name.to_owned(),
        }
    }

    /// The text where a schema is used, or else that of the schema it refers to.
    fn description(self, schema: &'d Json) -> &'d str {
        let own = schema["description"].as_str().filter(|text| !text.is_empty());
        own.or_else(|| self.resolve(schema)["description"].as_str())
            .unwrap_or_default()
    }
}

fn reference(schema: &Json) -> Option<&str> {
    let direct = schema["$ref"].as_str();
    let in_all = || schema["allOf"].as_array().filter(|all| all.len() == 1)?[0]["$ref"].as_str();
    direct.or_else(in_all)?.strip_prefix("#/components/schemas/")
}

struct Page<'d> {
    schemas: Schemas<'d>,
    colour: bool,
    recursive: bool,
    out: String,
}

impl Page<'_> {
    fn write(mut self, kind: &Kind, path: &[String], schema: &Json) -> String {
        if !kind.group.is_empty() {
            self.line(&format!("GROUP:      {}", kind.group));
        }
        self.line(&format!("KIND:       {}", kind.kind));
        self.line(&format!("VERSION:    {}\n", kind.version));
        // The page does not outlive the document, but the borrow checker sees the argument alone.
        let schemas = Schemas {
            document: self.schemas.document,
        };
        if let Some(field) = path.last() {
            let kind = schemas.type_of(schema, 0);
            let field = Paint::Bold.apply(field, self.colour);
            self.line(&format!("FIELD: {field} <{kind}>\n"));
        }
        self.line("DESCRIPTION:");
        let text = schemas.description(schema);
        self.text(if text.is_empty() { "<empty>" } else { text }, 4);
        self.values(schema, 4);
        let inner = schemas.inner(schema);
        if inner["properties"].is_object() {
            self.line("\nFIELDS:");
            self.fields(inner, 2, 0);
        }
        self.out
    }

    fn fields(&mut self, schema: &Json, indent: usize, depth: usize) {
        let schemas = Schemas {
            document: self.schemas.document,
        };
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Json::as_str)
            .collect();
        let mut fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, field) in fields {
            let required = if required.contains(&name.as_str()) {
                " -required-"
            } else {
                ""
            };
            let kind = Paint::Cyan.apply(&format!("<{}>", schemas.type_of(field, 0)), self.colour);
            let name = Paint::Bold.apply(name, self.colour);
            self.line(&format!("{}{name}\t{kind}{required}", " ".repeat(indent)));
            if self.recursive {
                let inner = schemas.inner(field);
                if depth < MAX_DEPTH && inner["properties"].is_object() {
                    self.fields(inner, indent + 2, depth + 1);
                }
                continue;
            }
            self.values(field, indent + 2);
            self.text(schemas.description(field), indent + 2);
            self.line("");
        }
    }

    fn values(&mut self, schema: &Json, indent: usize) {
        let values: Vec<String> = schema["enum"]
            .as_array()
            .into_iter()
            .flatten()
            .map(crate::jsonpath::text)
            .collect();
        if !values.is_empty() {
            self.text(&format!("one of: {}", values.join(", ")), indent);
        }
    }

    fn text(&mut self, text: &str, indent: usize) {
        for paragraph in text.split('\n') {
            let mut line = String::new();
            for word in paragraph.split_whitespace() {
                if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
                    self.line(&format!("{}{line}", " ".repeat(indent)));
                    line.clear();
                }
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
            if !line.is_empty() {
                self.line(&format!("{}{line}", " ".repeat(indent)));
            }
        }
    }

    fn line(&mut self, line: &str) {
        self.out.push_str(&crate::style::printable_paint(line));
        self.out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Json {
        json!({"components": {"schemas": {
            "io.example.v1.Route": {
                "type": "object",
                "description": "A route.",
                "x-kubernetes-group-version-kind": [{"group": "example.io", "version": "v1", "kind": "Route"}],
                "required": ["spec"],
                "properties": {
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/io.k8s.ObjectMeta"}], "description": "Who it is."},
                    "spec": {"type": "object", "properties": {
                        "rules": {"type": "array", "items": {"type": "object", "properties": {
                            "port": {"x-kubernetes-int-or-string": true},
                            "mode": {"type": "string", "enum": ["A", "B"], "description": "How."}}}},
                        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}
                }
            },
            "io.k8s.ObjectMeta": {"type": "object", "properties": {"name": {"type": "string"}}},
            "loop": {"$ref": "#/components/schemas/loop"}
        }}})
    }

    fn page(fields: &[&str], recursive: bool) -> Result<String> {
        let document = document();
        let kind = Kind {
            group: "example.io".into(),
            version: "v1".into(),
            kind: "Route".into(),
            ..Kind::default()
        };
        let schemas = Schemas { document: &document };
        let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
        let (path, found) = schemas.walk(schemas.of_kind(&kind).unwrap(), &fields)?;
        Ok(Page {
            schemas,
            colour: false,
            recursive,
            out: String::new(),
        }
        .write(&kind, &path, found))
    }

    #[test]
    fn kinds_and_fields_are_explained() {
        let expected = "\
GROUP:      example.io
KIND:       Route
VERSION:    v1

DESCRIPTION:
    A route.

FIELDS:
  metadata\t<ObjectMeta>
    Who it is.

  spec\t<Object> -required-

";
        assert_eq!(page(&[], false).unwrap(), expected);
        let rules = page(&["spec", "rules"], false).unwrap();
        assert!(
            rules.contains("FIELD: rules <[]Object>")
                && rules.contains("  mode\t<string>\n    one of: A, B\n    How.\n"),
            "{rules}"
        );
        let all = page(&["spec"], true).unwrap();
        assert!(
            all.contains(
                "  labels\t<map[string]string>\n  rules\t<[]Object>\n    mode\t<string>\n    port\t<IntOrString>\n"
            ),
            "{all}"
        );
        assert!(
            page(&["metadata", "name"], false)
                .unwrap()
                .contains("FIELD: name <string>")
        );
        let said = page(&["spec", "rulez"], false).unwrap_err().to_string();
        assert!(
            said.contains("\"rulez\" does not exist") && said.contains("labels, rules"),
            "{said}"
        );
    }

    #[test]
    fn references_in_circles_end() {
        let document = document();
        let schemas = Schemas { document: &document };
        let looped = &document["components"]["schemas"]["loop"];
        assert_eq!(schemas.inner(looped), schemas.resolve(looped));
        assert_eq!(schemas.type_of(looped, 0), "Object");
    }
}
