//! `rutter import`: all objects of files to a server.

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value as Json, json};
use tokio::task::JoinSet;

use crate::blame;
use crate::failure::{FAILURE, Refusal, SUCCESS};
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Catalogue, Request, Server};
use crate::targets;
use crate::write::{self, DryRun, Options};

/// How many objects are written at the same time.
const IN_FLIGHT: usize = 16;

pub(super) fn command() -> Command {
    let command = Command::new("import")
        .about("Write all objects of files, whether or not they are there, and say how many")
        .after_help("Examples:\n  rutter import -R -f backup/\n  rutter import -f all.yaml --dry-run=server\n  rutter import -f all.yaml --skip-existing")
        .arg(
            Arg::new("skip-existing")
                .long("skip-existing")
                .action(ArgAction::SetTrue)
                .help("Leave objects that are there already alone"),
        );
    server::arguments(write::arguments(manifests::arguments(command, true)))
}

/// What became of an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
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
    let bar = progress(files.len(), io.terminal.err);
    let (mut counts, mut failed) = ([0usize; 4], 0);
    // What others live in goes first, and what definitions bring is known only after them.
    for rank in 0..=1 {
        let catalogue = server.catalogue().await?;
        let mut files = files.iter().filter(|manifest| write::rank(manifest.kind()) == rank);
        let mut tasks: JoinSet<(Manifest, Result<Fate>)> = JoinSet::new();
        loop {
            while tasks.len() < IN_FLIGHT
                && let Some(manifest) = files.next()
            {
                let job = job(&server, &catalogue, &options, skip, manifest);
                let manifest = manifest.clone();
                tasks.spawn(async move { (manifest, job.await) });
            }
            let Some(done) = tasks.join_next().await else { break };
            let (manifest, result) = done.context("a task ended")?;
            bar.inc(1);
            match result {
                Ok(fate) => counts[fate as usize] += 1,
                Err(error) => {
                    failed += 1;
                    bar.suspend(|| blame::report(&error, &manifest, io));
                }
            }
        }
    }
    bar.finish_and_clear();
    let [created, replaced, unchanged, skipped] = counts;
    let skipped = if skip {
        format!(", {skipped} skipped")
    } else {
        String::new()
    };
    io.say(format!(
        "{created} created, {replaced} replaced, {unchanged} unchanged{skipped}, {failed} failed{}",
        options.suffix()
    ))?;
    Ok(if failed > 0 { FAILURE } else { SUCCESS })
}

fn job(
    server: &Server,
    catalogue: &Catalogue,
    options: &Options,
    skip: bool,
    manifest: &Manifest,
) -> impl Future<Output = Result<Fate>> + Send + 'static {
    let target = targets::of_manifest(manifest, server, catalogue);
    let (server, options, mut object) = (server.clone(), options.clone(), manifest.value.clone());
    async move {
        let target = target?;
        anyhow::ensure!(!target.name.is_empty(), "`metadata.name` is missing");
        write::without_server_fields(&mut object);
        if !target.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(target.namespace);
        }
        let current = match target.get(&server).await {
            Ok(current) => Some(current),
            Err(error) if Refusal::is_not_found(&error) => None,
            Err(error) => return Err(error),
        };
        let Some(current) = current else {
            if options.dry != DryRun::Client {
                let request = Request::post(target.kind.collection(Some(&target.namespace)), &object);
                server.send::<Json>(options.on(request)).await?;
            }
            return Ok(Fate::Created);
        };
        if skip {
            return Ok(Fate::Skipped);
        }
        if write::same_content(&current, &object) {
            return Ok(Fate::Unchanged);
        }
        if options.dry != DryRun::Client {
            object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
            let after: Json = server.send(options.on(Request::put(target.path(), &object))).await?;
            // Defaults may make two files of one object. A dry run has no version of its own to tell it by.
            if write::same_content(&current, &after) {
                return Ok(Fate::Unchanged);
            }
        }
        Ok(Fate::Replaced)
    }
}

fn progress(length: usize, terminal: bool) -> ProgressBar {
    if !terminal {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} {per_sec}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}
