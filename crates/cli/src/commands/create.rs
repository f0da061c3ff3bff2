//! `rutter create` and `rutter replace`: write the objects of files.

use anyhow::{Result, ensure};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::delete;
use crate::error_location;
use crate::failure::{SUCCESS, StatusError, usage};
use crate::flags::flag;
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::output;
use crate::server::{self, Catalog, Request, Server};
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options, Report};

pub(super) fn create_command() -> Command {
    let command = Command::new("create")
        .about("Create the objects of files; fails for objects that exist")
        .override_usage("rutter create [OPTIONS] -f FILE\n       rutter create [OPTIONS] namespace NAME")
        .after_help(
            "Examples:\n  rutter create -f mesh.yaml\n  rutter create -f - --dry-run=server -o yaml < mesh.yaml\n  \
             rutter create namespace shop",
        )
        .arg(
            Arg::new("what")
                .value_names(["namespace", "NAME"])
                .num_args(2)
                .conflicts_with("filename")
                .required_unless_present("filename")
                .help("Create a namespace without a file"),
        );
    server::arguments(output::arguments(write::arguments(manifests::arguments(command, false))))
}

pub(super) fn replace_command() -> Command {
    let command = Command::new("replace")
        .about("Replace objects with those of files; fails for objects that do not exist")
        .after_help(
            "An object with metadata.resourceVersion replaces only that version.\n\n\
             Examples:\n  rutter replace -f mesh.yaml\n  rutter replace --force -f mesh.yaml",
        )
        .arg(flag("force", "Delete and recreate the objects").conflicts_with("dry-run"));
    server::arguments(output::arguments(write::arguments(manifests::arguments(command, true))))
}

pub(super) async fn create(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    run(matches, io, Verb::Create).await
}

pub(super) async fn replace(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let verb = match matches.get_flag("force") {
        true => Verb::Recreate,
        false => Verb::Replace,
    };
    run(matches, io, verb).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verb {
    Create,
    Replace,
    Recreate,
}

async fn run(matches: &ArgMatches, io: &mut Io, verb: Verb) -> Result<u8> {
    let options = Options::of(matches);
    let mut files = match from_arguments(matches)? {
        Some(namespace) => vec![namespace],
        None => manifests::read(matches, io)?,
    };
    files.sort_by_key(|manifest| write::creation_order(manifest.kind()));
    let server = Server::connect(matches, io).await?;
    let mut catalog = server.catalog().await?;
    let mut report = Report::new(matches, &options);
    let mut code = SUCCESS;
    for manifest in &files {
        targets::discover(manifest, &server, &mut catalog).await?;
        match one(&server, &catalog, &options, manifest, verb).await {
            Ok((target, object)) => {
                let effect = if verb == Verb::Create { "created" } else { "replaced" };
                report.add(io, &target.kind, object, effect)?;
            }
            Err(error) => code = error_location::report(&error, manifest, io),
        }
    }
    report.finish(io, matches)?;
    Ok(code)
}

/// The object of `create namespace NAME`.
fn from_arguments(matches: &ArgMatches) -> Result<Option<Manifest>> {
    let words = matches.try_get_many::<String>("what").ok().flatten();
    let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
    match words.as_slice() {
        ["namespace" | "namespaces" | "ns", name] => {
            let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            let mut read = manifests::parse(object.to_string().as_bytes(), "the command line")?;
            Ok(read.manifests.pop())
        }
        [kind, ..] => Err(usage(format!(
            "only namespaces can be created without a file: write the {kind} to a file and use `rutter create -f FILE`"
        ))),
        [] => Ok(None),
    }
}

/// Writes one object. Returns it as the server stored it.
async fn one(
    server: &Server,
    catalog: &Catalog,
    options: &Options,
    manifest: &Manifest,
    verb: Verb,
) -> Result<(Target, Json)> {
    let target = targets::of_manifest(manifest, server, catalog)?;
    let mut object = manifest.value.clone();
    let generated = verb == Verb::Create && object["metadata"]["generateName"].is_string();
    ensure!(generated || !target.name.is_empty(), "{}: `metadata.name` is missing", manifest.place());
    if !target.namespace.is_empty() {
        object["metadata"]["namespace"] = json!(target.namespace);
    }
    if options.dry == DryRun::Client {
        return Ok((target, object));
    }
    let request = match verb {
        Verb::Replace => {
            // Defaults to the current version.
            if object["metadata"]["resourceVersion"].is_null() {
                let current = target.get(server).await?;
                object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            }
            Request::put(target.path(), &object)
        }
        Verb::Recreate => {
            match delete::one(server, &target, options).await {
                Err(error) if !StatusError::is_not_found(&error) => return Err(error),
                _ => delete::until_gone(server, vec![target.clone()], None).await?,
            };
            write::without_server_fields(&mut object);
            Request::post(target.kind.collection(Some(&target.namespace)), &object)
        }
        Verb::Create => Request::post(target.kind.collection(Some(&target.namespace)), &object),
    };
    let object = server.send(options.on(request)).await?;
    Ok((target, object))
}
