//! `rutter export`: writes objects to files.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::Value as Json;

use crate::failure::{self, FAILURE, SUCCESS};
use crate::flags::{flag, option, yaml_or_json};
use crate::io::Io;
use crate::server::{self, Catalog, Kind, Server};
use crate::targets::{self, Selection};
use crate::{output, write, yaml};

/// Kinds whose objects are not configuration.
const TRANSIENT: [&str; 4] = ["Event", "Lease", "Node", "ComponentStatus"];

pub(super) fn command() -> Command {
    let command = Command::new("export")
        .about("Write objects as files that can be imported or applied")
        .after_help(
            "Without kinds, exports all objects, including Secrets, except events, leases, nodes and objects with an owner.\n\n\
             Examples:\n  rutter export -A > all.yaml\n  rutter export istio-io,gateway-api -A --to backup/\n  rutter export vs -n shop --full",
        )
        .arg(Arg::new("kinds").value_name("KINDS").help("Kinds or categories, separated by commas"))
        .arg(
            option("to", "DIRECTORY", "Write a file for each object: NAMESPACE/KIND/NAME.yaml")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(flag("full", "Include the status, server-set fields and objects with an owner"))
        .arg(yaml_or_json());
    server::arguments(targets::selectors(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let kinds: Vec<Kind> = match matches.get_one::<String>("kinds") {
        Some(words) => catalog.many(words)?.into_iter().cloned().collect(),
        None => all_kinds(&catalog),
    };
    let full = matches.get_flag("full");
    let (mut objects, mut code) = (Vec::new(), SUCCESS);
    for kind in &kinds {
        let namespace = (!matches.get_flag("all-namespaces")).then(|| server.namespace.clone());
        if namespace.is_some() && !kind.namespaced && matches.get_one::<String>("kinds").is_none() {
            continue;
        }
        let all = Selection { kind: kind.clone(), namespace, names: Vec::new() };
        match server.list(all.list(matches)).await {
            Ok(list) => objects.extend(server::opened(list, kind).into_iter().map(|object| (kind, object))),
            Err(error) => {
                io.warn(format!("{} were not exported: {}", kind.plural, failure::describe(&error)));
                code = FAILURE;
            }
        }
    }
    if !full {
        objects.retain(|(_, object)| !is_generated(object));
        for (_, object) in &mut objects {
            write::without_server_fields(object);
            without_addresses(object);
        }
    }
    objects.sort_by_key(|(kind, _)| write::creation_order(&kind.kind));
    let json = matches.get_one::<String>("output").is_some_and(|format| format == "json");
    match matches.get_one::<PathBuf>("to") {
        Some(directory) => to_directory(directory, &objects, json)?,
        None => to_stream(objects.iter().map(|(_, object)| object), json, io)?,
    }
    if matches.contains_id("to") || !io.terminal.out {
        let kinds: BTreeSet<String> = objects.iter().map(|(kind, _)| kind.qualified()).collect();
        let (objects, kinds) = (objects.len(), kinds.len());
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        io.eprint(format!("{objects} object{} of {kinds} kind{} exported", plural(objects), plural(kinds)));
    }
    Ok(code)
}

/// Whether a controller creates the object from others and would create it again.
fn is_generated(object: &Json) -> bool {
    let meta = &object["metadata"];
    let owned = meta["ownerReferences"].as_array().is_some_and(|owners| !owners.is_empty());
    owned || meta["labels"]["endpoints.kubernetes.io/managed-by"] == "endpoint-controller"
}

/// Removes the cluster IPs of a Service, which each cluster allocates itself.
fn without_addresses(object: &mut Json) {
    let is_service = object["kind"] == "Service" && object["apiVersion"] == "v1";
    let Some(spec) = object.get_mut("spec").and_then(Json::as_object_mut).filter(|_| is_service) else {
        return;
    };
    if spec.get("clusterIP").is_some_and(|address| address != "None") {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    spec.remove("healthCheckNodePort");
}

fn all_kinds(catalog: &Catalog) -> Vec<Kind> {
    let kinds = || catalog.preferred().filter(|kind| kind.can("list") && !TRANSIENT.contains(&kind.kind.as_str()));
    // A read-only server offers to create none.
    let read_only = !kinds().any(|kind| kind.can("create"));
    let wanted = |kind: &&Kind| kind.can("create") || read_only && kind.kind != "CustomResourceDefinition";
    kinds().filter(wanted).cloned().collect()
}

fn to_stream<'o>(objects: impl Iterator<Item = &'o Json>, json: bool, io: &mut Io) -> Result<()> {
    if json {
        let list = output::list(objects.cloned().collect());
        writeln!(io.out, "{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(());
    }
    output::documents(objects, io)
}

fn to_directory(directory: &Path, objects: &[(&Kind, Json)], json: bool) -> Result<()> {
    for (kind, object) in objects {
        let part = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let namespace = match part("namespace") {
            "" => "_cluster".to_owned(),
            namespace => file_name(namespace),
        };
        let folder = directory.join(namespace).join(file_name(&kind.qualified()));
        fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let end = if json { "json" } else { "yaml" };
        let path = folder.join(format!("{}.{end}", file_name(part("name"))));
        let text = match json {
            true => serde_json::to_string_pretty(object)? + "\n",
            false => yaml::document(object),
        };
        write_file(&path, &text, kind.kind == "Secret").with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Encodes a name from the server as a file name, so that it cannot leave the directory.
fn file_name(name: &str) -> String {
    match server::encode(name) {
        dots if dots.starts_with('.') => format!("%2E{}", &dots[1..]),
        name => name,
    }
}

/// Writes a file; a secret one is readable only by its owner.
fn write_file(path: &Path, text: &str, secret: bool) -> std::io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    if secret {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    options.open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cluster_ips_are_left_out() {
        let mut chosen = json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}});
        without_addresses(&mut chosen);
        assert_eq!(chosen["spec"], json!({}));
        let mut headless = json!({"apiVersion": "v1", "kind": "Service", "spec": {"clusterIP": "None"}});
        without_addresses(&mut headless);
        assert_eq!(headless["spec"], json!({"clusterIP": "None"}));
    }

    #[test]
    fn names_cannot_leave_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let kind = Kind { plural: "secrets".into(), kind: "Secret".into(), ..Kind::default() };
        let object = |namespace: &str, name: &str| json!({"metadata": {"namespace": namespace, "name": name}});
        let objects = [(&kind, object("..", "../../x")), (&kind, object("", "a"))];
        let inside = dir.path().join("inside");
        to_directory(&inside, &objects, false).unwrap();
        assert!(inside.join("%2E.").join("secrets").join("%2E.%2F..%2Fx.yaml").is_file());
        assert!(inside.join("_cluster").join("secrets").join("a.yaml").is_file());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(inside.join("_cluster/secrets/a.yaml")).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
        }
    }
}
