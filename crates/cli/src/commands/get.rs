//! `rutter get`: prints objects as tables, YAML or JSON.

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde_json::Value as Json;

use super::watch;
use crate::failure::{self, FAILURE, SUCCESS};
use crate::flags::flag;
use crate::io::Io;
use crate::manifests;
use crate::output::{self, Format};
use crate::rows::{Rows, Show};
use crate::server::{self, Kind, Request, Server};
use crate::targets::{self, Selection};

pub(super) fn command() -> Command {
    let command = Command::new("get")
        .about("Print objects")
        .after_help(
            "Examples:\n  rutter get virtualservices\n  rutter get vs,dr -A -o wide\n  rutter get istio-io -l app=web\n  \
             rutter get vs/reviews -o yaml\n  rutter get vs/reviews -o jsonpath='{.spec.hosts[*]}'\n  \
             rutter get vs -w",
        )
        .arg(flag("watch", "Print the objects, then each change").short('w'))
        .arg(flag("no-headers", "Omit the headings of tables"))
        .arg(flag("ignore-not-found", "Do not fail if an object does not exist"));
    let command = targets::selectors(targets::words(manifests::arguments(command, false)));
    server::arguments(output::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalog = server.catalog().await?;
    let mut wanted = targets::selections(matches, &server, &catalog, io)?;
    // A category may contain kinds that cannot be listed.
    wanted.retain(|one| !one.names.is_empty() || one.kind.can("list"));
    if matches.get_flag("watch") {
        return watch::run(matches, &server, &wanted, io).await;
    }
    match output::of(matches).unwrap_or(Format::Table { wide: false }) {
        Format::Table { .. } => tables(matches, &server, &wanted, io).await,
        format => plain(matches, &server, &wanted, &format, io).await,
    }
}

async fn tables(matches: &ArgMatches, server: &Server, wanted: &[Selection], io: &mut Io) -> Result<u8> {
    let (mut code, mut printed) = (SUCCESS, 0);
    for one in wanted {
        let mut rows = Rows::new(&one.kind, Show::of(matches, one, wanted.len() > 1));
        for request in requests(matches, one) {
            match server.list(request.in_table()).await {
                Ok(answer) => rows.add(&answer),
                Err(error) => code = code.max(report(matches, &error, io)),
            }
        }
        if rows.len() > 0 {
            if printed > 0 {
                io.print("")?;
            }
            printed += rows.len();
            for line in rows.lines(!matches.get_flag("no-headers"), io.terminal.color) {
                io.print(line)?;
            }
        }
    }
    if printed == 0 && code == SUCCESS && !matches.get_flag("ignore-not-found") {
        io.eprint(nothing_found(wanted));
    }
    Ok(code)
}

/// The message for an empty result.
fn nothing_found(wanted: &[Selection]) -> String {
    let namespace = wanted.iter().filter(|one| one.kind.namespaced).find_map(|one| one.namespace.as_ref());
    match namespace {
        Some(namespace) => format!("No resources found in {namespace} namespace."),
        None => "No resources found".to_owned(),
    }
}

/// A request for each name, or one list request.
fn requests(matches: &ArgMatches, wanted: &Selection) -> Vec<Request> {
    if wanted.names.is_empty() {
        return vec![wanted.list(matches)];
    }
    let namespace = wanted.namespace.as_deref().unwrap_or_default();
    let of_name = |name: &String| Request::get(wanted.kind.object(namespace, name));
    wanted.names.iter().map(of_name).collect()
}

fn report(matches: &ArgMatches, error: &anyhow::Error, io: &mut Io) -> u8 {
    if matches.get_flag("ignore-not-found") && failure::StatusError::is_not_found(error) {
        return SUCCESS;
    }
    failure::report(error, io)
}

async fn plain(
    matches: &ArgMatches,
    server: &Server,
    wanted: &[Selection],
    format: &Format,
    io: &mut Io,
) -> Result<u8> {
    let mut code = SUCCESS;
    let mut items: Vec<(Kind, Json)> = Vec::new();
    let single = wanted.len() == 1 && wanted[0].names.len() == 1;
    for one in wanted {
        for request in requests(matches, one) {
            let answer = match server.list(request).await {
                Ok(answer) => answer,
                Err(error) => {
                    code = code.max(report(matches, &error, io));
                    continue;
                }
            };
            items.extend(server::opened(answer, &one.kind).into_iter().map(|item| (one.kind.clone(), item)));
        }
    }
    if matches!(format, Format::Name) {
        for (kind, item) in &items {
            output::print(io, format, Some(kind), item)?;
        }
        return Ok(code);
    }
    let mut objects: Vec<Json> = items.into_iter().map(|(_, item)| item).collect();
    let mut whole = match (single, objects.len()) {
        (true, 1) => objects.remove(0),
        // The error is already reported.
        (true, _) => {
            return Ok(code.max(if matches.get_flag("ignore-not-found") { SUCCESS } else { FAILURE }));
        }
        _ => output::list(objects),
    };
    output::tidy(&mut whole, matches);
    output::print(io, format, None, &whole)?;
    Ok(code)
}
