//! `rutter patch`.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Arg, ArgMatches, Command, value_parser};
use serde_json::Value as Json;

use crate::failure::{self, FAILURE, Refusal, SUCCESS, usage};
use crate::io::Io;
use crate::manifests;
use crate::output;
use crate::server::{self, Request, Server};
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options, Report};

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const MERGE: &str = "application/merge-patch+json";

pub(super) fn command() -> Command {
    let command = Command::new("patch")
        .about("Change some fields of objects")
        .after_help(
            "Without --type, a patch is a strategic merge where the server has it for the kind, and a JSON merge otherwise.\n\n\
             Examples:\n  rutter patch vs reviews --type merge -p '{\"spec\":{\"hosts\":[\"reviews\"]}}'\n  \
             rutter patch vs reviews --type json -p '[{\"op\":\"remove\",\"path\":\"/spec/http/0/timeout\"}]'\n  \
             rutter patch svc web --patch-file change.yaml",
        )
        .arg(
            Arg::new("type")
                .long("type")
                .value_name("TYPE")
                .value_parser(["strategic", "merge", "json", "apply"])
                .help("The kind of patch"),
        )
        .arg(
            Arg::new("patch")
                .short('p')
                .long("patch")
                .value_name("PATCH")
                .required_unless_present("patch-file")
                .conflicts_with("patch-file")
                .help("The patch, in JSON or YAML"),
        )
        .arg(
            Arg::new("patch-file")
                .long("patch-file")
                .value_name("FILE")
                .value_parser(value_parser!(PathBuf))
                .help("A file with the patch; `-` is standard input"),
        )
        .arg(Arg::new("subresource").long("subresource").value_name("NAME").help("Patch a subresource: status"));
    server::arguments(output::arguments(write::arguments(targets::arguments(command))))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    ensure!(
        options.dry != DryRun::Client,
        usage("a patch is made by the server: --dry-run=server")
    );
    let patch = read(matches, io)?;
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let all = targets::all(matches, &server, &catalogue, io).await?;
    let mut report = Report::new(matches, &options);
    let mut code = SUCCESS;
    for target in all {
        match one(&server, &target, matches, &options, &patch).await {
            Ok((object, changed)) => {
                let what = if changed { "patched" } else { "patched (no change)" };
                report.add(io, &target.kind, object, what)?;
            }
            Err(error) => {
                failure::report(&error, io);
                code = FAILURE;
            }
        }
    }
    report.finish(io, matches)?;
    Ok(code)
}

fn read(matches: &ArgMatches, io: &mut Io) -> Result<Json> {
    let bytes = match (
        matches.get_one::<String>("patch"),
        matches.get_one::<PathBuf>("patch-file"),
    ) {
        (Some(text), _) => text.clone().into_bytes(),
        (None, Some(path)) => manifests::bytes_of(path, io)?,
        (None, None) => return Err(usage("-p or --patch-file is missing")),
    };
    let mut documents = manifests::parse_text(&bytes).context("the patch cannot be read")?;
    ensure!(documents.len() == 1, usage("the patch is one document"));
    let (patch, _) = documents.remove(0);
    let wanted = match matches.get_one::<String>("type").map(String::as_str) {
        Some("json") => patch.is_array(),
        _ => patch.is_object(),
    };
    ensure!(
        wanted,
        usage("a patch of type json is a list of operations, and one of another type is an object")
    );
    Ok(patch)
}

async fn one(
    server: &Server,
    target: &Target,
    matches: &ArgMatches,
    options: &Options,
    patch: &Json,
) -> Result<(Json, bool)> {
    let path = match matches.get_one::<String>("subresource") {
        Some(name) => format!("{}/{}", target.path(), server::encode(name)),
        None => target.path(),
    };
    let send = |content_type: &'static str| {
        let request = options.on(Request::patch(&path, content_type, patch.to_string()));
        server.send::<Json>(request)
    };
    let before = target.get(server).await;
    let after = match matches.get_one::<String>("type").map(String::as_str) {
        Some("json") => send("application/json-patch+json").await?,
        Some("merge") => send(MERGE).await?,
        Some("apply") => send("application/apply-patch+yaml").await?,
        Some(_) => send(STRATEGIC).await?,
        None => match send(STRATEGIC).await {
            Err(error) if is_unsupported(&error) => send(MERGE).await?,
            result => result?,
        },
    };
    let version = |object: &Json| object["metadata"]["resourceVersion"].clone();
    let changed = before.map_or(true, |before| version(&before) != version(&after));
    Ok((after, changed || options.dry != DryRun::No))
}

fn is_unsupported(error: &anyhow::Error) -> bool {
    error
        .downcast_ref::<Refusal>()
        .is_some_and(|refusal| refusal.code == 415)
}
