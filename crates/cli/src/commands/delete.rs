//! `rutter delete`: deletes objects and waits until they are gone.

use std::time::Duration;

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use super::wait::{self, Goal};
use crate::failure::{self, FAILURE, SUCCESS, StatusError};
use crate::flags::{self, flag, option};
use crate::io::Io;
use crate::server::{self, Request, Server};
use crate::targets::{self, Target};
use crate::write::{self, DryRun, Options};

/// The timeout if none is given.
const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);

pub(super) fn command() -> Command {
    let command = Command::new("delete")
        .about("Delete objects")
        .after_help(
            "Examples:\n  rutter delete vs reviews ratings\n  rutter delete -f mesh.yaml\n  rutter delete vs -l app=web\n  \
             rutter delete vs --all -n shop --wait=false",
        )
        .arg(
            option("wait", "BOOL", "Wait until the objects are gone, including their finalizers")
                .value_parser(clap::value_parser!(bool))
                .num_args(0..=1)
                .require_equals(true)
                .default_value("true")
                .default_missing_value("true"),
        )
        .arg(flags::timeout().default_value("0").help("Maximum time to wait; 0 waits without limit"))
        .arg(flag("ignore-not-found", "Do not fail if an object does not exist"))
        .arg(flags::format("Output format: name").value_parser(["name"]))
        .arg(write::dry_run("Delete nothing; with `server`, the server validates the request"));
    server::arguments(targets::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let options = Options::of(matches);
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let all = targets::all(matches, &server, &catalog, io).await?;
    if all.is_empty() {
        io.eprint("No resources found");
    }
    let (mut code, mut gone) = (SUCCESS, Vec::new());
    for target in all {
        match one(&server, &target, &options).await {
            Ok(()) => {
                report(matches, &target, &options, io)?;
                gone.push(target);
            }
            Err(error) if matches.get_flag("ignore-not-found") && StatusError::is_not_found(&error) => {}
            Err(error) => {
                failure::report(&error, io);
                code = FAILURE;
            }
        }
    }
    let wait = matches.get_one::<bool>("wait").copied().unwrap_or(true);
    if !wait || options.dry != DryRun::No || gone.is_empty() {
        return Ok(code);
    }
    let timeout = matches.get_one::<Duration>("timeout").copied();
    let waited = until_gone(&server, gone, timeout.filter(|timeout| !timeout.is_zero())).await?;
    Ok(code.max(waited))
}

/// Waits until objects are gone, without output.
pub(super) async fn until_gone(server: &Server, targets: Vec<Target>, timeout: Option<Duration>) -> Result<u8> {
    let mut quiet = Io::to(std::io::sink(), std::io::sink());
    wait::until(server, targets, Goal::Deleted, timeout.unwrap_or(FOREVER), &mut quiet).await
}

/// Deletes one object.
pub(super) async fn one(server: &Server, target: &Target, options: &Options) -> Result<()> {
    if options.dry == DryRun::Client {
        target.get(server).await?;
        return Ok(());
    }
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    let request = options.on_delete(Request::delete(target.path(), &body));
    server.send::<Json>(request).await.map(|_| ())
}

fn report(matches: &ArgMatches, target: &Target, options: &Options, io: &mut Io) -> Result<()> {
    let label = target.label();
    if matches.contains_id("output") {
        return Ok(io.print(label)?);
    }
    let kind = label.split_once('/').map_or(label.as_str(), |(kind, _)| kind);
    let namespace = match target.namespace.as_str() {
        "" => String::new(),
        namespace => format!(" from {namespace} namespace"),
    };
    Ok(io.print(format!("{kind} \"{}\" deleted{namespace}{}", target.name, options.suffix()))?)
}
