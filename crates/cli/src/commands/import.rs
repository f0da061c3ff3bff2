//! `rutter import`: creates or replaces all objects of files.

use anyhow::{Context, Result};
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::error_location;
use crate::failure::{FAILURE, SUCCESS};
use crate::flags::flag;
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Catalog, Request, Server};
use crate::targets;
use crate::write::{self, DryRun, Options};

/// Maximum number of concurrent writes.
const IN_FLIGHT: usize = 16;

pub(super) fn command() -> Command {
    let command = Command::new("import")
        .about("Create or replace all objects of files")
        .after_help("Examples:\n  rutter import -R -f backup/\n  rutter import -f all.yaml --dry-run=server\n  rutter import -f all.yaml --skip-existing")
        .arg(flag("skip-existing", "Do not change existing objects"));
    server::arguments(write::arguments(manifests::arguments(command, true)))
}

/// The effect on an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Created,
    Replaced,
    Unchanged,
    Skipped,
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    let files = manifests::read(matches, io)?;
    let server = Server::connect(matches, io).await?;
    let skip = matches.get_flag("skip-existing");
    let (mut counts, mut failed) = ([0usize; 4], 0);
    // Namespaces and definitions come first. Discovery is repeated because definitions add kinds.
    for rank in 0..=1 {
        let catalog = server.catalog().await?;
        let mut files = files.iter().filter(|manifest| write::creation_order(manifest.kind()) == rank);
        let mut tasks: JoinSet<(Manifest, Result<Outcome>)> = JoinSet::new();
        loop {
            while tasks.len() < IN_FLIGHT
                && let Some(manifest) = files.next()
            {
                let job = job(&server, &catalog, &options, skip, manifest);
                let manifest = manifest.clone();
                tasks.spawn(async move { (manifest, job.await) });
            }
            let Some(done) = tasks.join_next().await else { break };
            let (manifest, result) = done.context("a task failed")?;
            match result {
                Ok(outcome) => counts[outcome as usize] += 1,
                Err(error) => {
                    failed += 1;
                    error_location::report(&error, &manifest, io);
                }
            }
        }
    }
    let [created, replaced, unchanged, skipped] = counts;
    let skipped = if skip { format!(", {skipped} skipped") } else { String::new() };
    io.print(format!(
        "{created} created, {replaced} replaced, {unchanged} unchanged{skipped}, {failed} failed{}",
        options.suffix()
    ))?;
    Ok(if failed > 0 { FAILURE } else { SUCCESS })
}

fn job(
    server: &Server,
    catalog: &Catalog,
    options: &Options,
    skip: bool,
    manifest: &Manifest,
) -> impl Future<Output = Result<Outcome>> + Send + 'static {
    let target = targets::of_manifest(manifest, server, catalog);
    let (server, options, mut object) = (server.clone(), options.clone(), manifest.value.clone());
    async move {
        let target = target?;
        anyhow::ensure!(!target.name.is_empty(), "`metadata.name` is missing");
        write::without_server_fields(&mut object);
        if !target.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        let current = target.get_if_exists(&server).await?;
        let Some(current) = current else {
            if options.dry != DryRun::Client {
                let request = Request::post(target.kind.collection(Some(&target.namespace)), &object);
                server.send::<Json>(options.on(request)).await?;
            }
            return Ok(Outcome::Created);
        };
        if skip {
            return Ok(Outcome::Skipped);
        }
        if write::same_content(&current, &object) {
            return Ok(Outcome::Unchanged);
        }
        if options.dry != DryRun::Client {
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            let after: Json = server.send(options.on(Request::put(target.path(), &object))).await?;
            // Defaulting may remove the differences. A dry run returns no new version to compare.
            if write::same_content(&current, &after) {
                return Ok(Outcome::Unchanged);
            }
        }
        Ok(Outcome::Replaced)
    }
}
