//! `rutter uninstall`.

use std::io::Read as _;

use anyhow::{Result, anyhow};
use clap::{ArgMatches, Command};
use serde_json::Value as Json;

use super::apply::{delete, made};
use super::plan::{crd_path, optional};
use super::{INSTANCE, MANAGED_BY, REVISION, RUTTER, label, named, namespace};
use crate::failure::{FAILURE, SUCCESS};
use crate::flags::{flag, option};
use crate::io::Io;
use crate::server::{self, Catalog, Request, Server, encode};

/// The Secret with the key of the self-signed authority.
const AUTHORITY: &str = "istio-ca-secret";
/// The ConfigMaps with root certificates, in every namespace.
const ROOTS: [&str; 2] = ["istio-ca-root-cert", "istio-ca-crl"];
const TAG: &str = "istio.io/tag";
/// Maximum length of an answer to a question.
const ANSWER: u64 = 64;

pub(in super::super) fn uninstall_command() -> Command {
    let command = Command::new("uninstall")
        .about("Remove what `rutter install` has made; keeps CustomResourceDefinitions and the certificate authority")
        .after_help("Examples:\n  rutter uninstall --revision canary\n  rutter uninstall --purge --yes")
        .arg(option("revision", "REVISION", "Revision of the control plane").short('r').default_value("default"))
        .arg(option("name", "NAME", "Name of the installation").default_value(RUTTER))
        .arg(flag(
            "purge",
            "Also remove the tags of the revision, the certificate authority with the root certificates, and the \
             CustomResourceDefinitions that Rutter has made, with all objects of these kinds",
        ))
        .arg(flag("dry-run", "Print what would be removed"))
        .arg(flag("yes", "Do not ask").short('y'));
    server::arguments(command)
}

pub(in super::super) async fn uninstall(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let word = |name: &str| matches.get_one::<String>(name).map_or("", String::as_str);
    let (name, revision, purge) = (word("name"), word("revision"), matches.get_flag("purge"));
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let namespace = namespace(&server);
    let selector = format!("{MANAGED_BY}={RUTTER},{INSTANCE}={name},{REVISION}={revision}");
    let mut objects = made(&server, &catalog, &namespace, &selector).await?;
    if objects.is_empty() && !purge {
        return Err(anyhow!(
            "`rutter install` has made no installation {name} of revision {revision} in namespace {namespace}"
        ));
    }
    let tags = made(&server, &catalog, &namespace, &format!("{TAG},{REVISION}={revision}")).await?;
    let tags: Vec<Json> =
        tags.into_iter().filter(|tag| objects.iter().all(|object| named(object) != named(tag))).collect();
    for tag in tags.iter().filter(|tag| !purge && tag["kind"] == "MutatingWebhookConfiguration") {
        io.warn(format!(
            "the tag {} keeps standing for revision {revision}: pods of its namespaces cannot be created until `rutter tag set` \
             or `rutter tag remove` changes it",
            label(tag, TAG)
        ));
    }
    if purge {
        objects.extend(tags);
        objects.extend(rest(&server, &catalog, &namespace).await?);
    }
    for object in &objects {
        io.print(named(object))?;
    }
    if matches.get_flag("dry-run") {
        return Ok(SUCCESS);
    }
    if !matches.get_flag("yes") && !confirmed(objects.len(), io)? {
        io.eprint("nothing was removed");
        return Ok(FAILURE);
    }
    for object in &objects {
        delete(&server, &catalog, object, false, io).await?;
    }
    io.print(format!("removed revision {revision}"))?;
    Ok(SUCCESS)
}

/// What an installation leaves behind: the authority, root certificates, and CustomResourceDefinitions of Rutter.
async fn rest(server: &Server, catalog: &Catalog, namespace: &str) -> Result<Vec<Json>> {
    let mut rest = Vec::new();
    let secret = format!("/api/v1/namespaces/{}/secrets/{AUTHORITY}", encode(namespace));
    rest.extend(optional(server, &secret).await?);
    for name in ROOTS {
        let maps = Request::get("/api/v1/configmaps").with("fieldSelector", format!("metadata.name={name}"));
        let list = server.list(maps).await?;
        rest.extend(server::opened(list, catalog.one("configmaps")?));
    }
    for definition in config::schema::definitions().iter().filter(|definition| !definition.builtin) {
        let name = format!("{}.{}", definition.plural, definition.group);
        let found = optional(server, &crd_path(&name)).await?;
        rest.extend(found.filter(|found| label(found, MANAGED_BY) == RUTTER));
    }
    // An object does not name its kind everywhere, and the value of a Secret is not needed.
    for object in &mut rest {
        object["data"] = Json::Null;
    }
    Ok(rest)
}

/// Asks on the terminal.
fn confirmed(count: usize, io: &mut Io) -> Result<bool> {
    io.eprint(format!("remove these {count} objects? [y/N]"));
    let mut answer = Vec::new();
    let mut one = [0];
    let mut input = (&mut io.stdin).take(ANSWER);
    while input.read(&mut one)? == 1 && one[0] != b'\n' {
        answer.push(one[0]);
    }
    Ok(matches!(answer.to_ascii_lowercase().trim_ascii(), b"y" | b"yes"))
}
