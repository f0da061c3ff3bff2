//! `rutter explain`: what a kind's fields mean, from the server's OpenAPI or from what this build knows.

mod page;
mod schemas;

use anyhow::{Result, anyhow, bail};
use clap::{Arg, ArgMatches, Command};
use serde_json::Value as Json;

use page::Page;
use schemas::Schemas;

use super::flag;
use crate::failure::{NoServer, SUCCESS};
use crate::io::Io;
use crate::server::{self, Catalogue, Kind, Server};

pub(super) fn command() -> Command {
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
    let (kind, fields, document) = match matches.get_flag("local") {
        true => local(words, version)?,
        false => match remote(matches, words, version, io).await {
            // Nothing is lost where no server can be asked: most kinds are known here, too.
            Err(error) if error.is::<NoServer>() => {
                let found = local(words, version).map_err(|_| error)?;
                io.warn("no server can be asked: this is what this build knows");
                found
            }
            result => result?,
        },
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

/// A kind, the way to one of its fields, and the document with its schema.
type Explained = (Kind, Vec<String>, Json);

fn local(words: &str, version: Option<&str>) -> Result<Explained> {
    let (kind, fields) = find(&Catalogue::local(), words, version)?;
    let document = config::schema::openapi::document(&kind.group, &kind.version)
        .ok_or_else(|| anyhow!("this build knows no schemas of {}", kind.api_version()))?;
    Ok((kind, fields, document))
}

async fn remote(matches: &ArgMatches, words: &str, version: Option<&str>, io: &mut Io) -> Result<Explained> {
    let server = Server::connect(matches, io).await?;
    let (kind, fields) = find(&server.catalogue().await?, words, version)?;
    let document = remote_document(&server, &kind).await?;
    Ok((kind, fields, document))
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
