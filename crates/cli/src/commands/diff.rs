//! `rutter diff`: compares files with the server's objects, as a server-side apply would change them.

use anyhow::{Context, Result};
use clap::{ArgMatches, Command};
use similar::TextDiff;

use super::apply::Applier;
use crate::failure::{FAILURE, SUCCESS, USAGE};
use crate::flags::flag;
use crate::io::Io;
use crate::manifests::{self, Manifest};
use crate::server::{self, Server};
use crate::style::{Paint, printable};
use crate::write::{self, DryRun, Options};
use crate::{error_location, failure, yaml};

pub(super) fn command() -> Command {
    let command = Command::new("diff")
        .about("Print how `apply` would change the server's objects")
        .after_help(
            "Prints a unified diff for each object that `apply` would create or change. The server computes the result with a \
             dry run. Server-set fields and the status are left out.\n\n\
             Exit codes: 0 no differences, 1 differences, 2 an error.\n\n\
             Examples:\n  rutter diff -f mesh.yaml\n  rutter diff -Rf config/ -n shop",
        )
        .arg(flag("force-conflicts", "Take over fields that another manager owns"));
    server::arguments(write::field_manager(manifests::arguments(command, true)))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    match all(matches, io).await {
        Ok(code) => Ok(code),
        // Exit code 1 means that there are differences.
        Err(error) => {
            failure::report(&error, io);
            Ok(USAGE)
        }
    }
}

async fn all(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let mut files = manifests::read(matches, io)?;
    files.sort_by_key(|manifest| write::creation_order(manifest.kind()));
    let server = Server::connect(matches, io).await?;
    let options = Options { dry: DryRun::Server, ..Options::of(matches) };
    let mut applier = Applier::new(server, options, matches).await?;
    let mut code = SUCCESS;
    for manifest in &files {
        match one(&mut applier, manifest, io).await {
            Ok(true) => code = code.max(FAILURE),
            Ok(false) => {}
            Err(error) => {
                error_location::report(&error, manifest, io);
                code = USAGE;
            }
        }
    }
    Ok(code)
}

/// Prints the diff of one object. Returns whether there is a difference.
async fn one(applier: &mut Applier, manifest: &Manifest, io: &mut Io) -> Result<bool> {
    let applied = applier.apply(manifest).await?;
    let text = |object: Option<serde_json::Value>| match object {
        Some(mut object) => {
            write::without_server_fields(&mut object);
            yaml::document(&object)
        }
        None => String::new(),
    };
    let (before, after) = (text(applied.before), text(Some(applied.after)));
    if before == after {
        return Ok(false);
    }
    let label = applied.target.label();
    let diff = TextDiff::from_lines(&before, &after);
    let diff = diff
        .unified_diff()
        .header(&format!("{label} (server)"), &format!("{label} ({})", manifest.place()))
        .to_string();
    for line in diff.lines() {
        let line = if io.terminal.out { printable(line, true) } else { line.to_owned() };
        let painted = match line.as_bytes().first() {
            Some(b'+') => Paint::Green.apply(&line, io.terminal.color),
            Some(b'-') => Paint::Red.apply(&line, io.terminal.color),
            _ => line,
        };
        io.print(painted).context("standard output")?;
    }
    Ok(true)
}
