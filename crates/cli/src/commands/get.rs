//! `rutter get`: prints objects as tables, YAML or JSON.

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value as Json;

use super::{flag, watch};
use crate::failure::{self, FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::output::{self, Format};
use crate::rows::{Rows, Show};
use crate::server::{self, Kind, Request, Server};
use crate::{manifests, targets};

pub(super) fn command() -> Command {
    let command = Command::new("get")
        .about("Print objects")
        .after_help(
            "Examples:\n  rutter get virtualservices\n  rutter get vs,dr -A -o wide\n  rutter get istio-io -l app=web\n  \
             rutter get vs/reviews -o yaml\n  rutter get svc -o jsonpath='{range .items[*]}{.metadata.name}{\"\\n\"}{end}'\n  \
             rutter get vs -w",
        )
        .arg(
            Arg::new("watch")
                .short('w')
                .long("watch")
                .action(ArgAction::SetTrue)
                .help("Watch: print the objects, then each change"),
        );
    arguments(command)
}

pub(super) fn arguments(command: Command) -> Command {
    let command = command
        .arg(flag("watch-only", "Watch: print only changes, not the current objects"))
        .arg(flag("output-watch-events", "With -w: print the type of each event"))
        .arg(flag("no-headers", "Omit the headings of tables"))
        .arg(flag("show-labels", "Add a column with all labels"))
        .arg(flag("show-kind", "Print the kind before each name"))
        .arg(flag("ignore-not-found", "Do not fail if an object does not exist"))
        .arg(
            Arg::new("label-columns")
                .short('L')
                .long("label-columns")
                .value_name("LABELS")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help("Add a column for each of these labels"),
        );
    let command = targets::selectors(targets::words(manifests::arguments(command, false)));
    server::arguments(output::arguments(command))
}

/// A selected kind.
pub(super) struct Wanted {
    pub(super) kind: Kind,
    /// None selects all namespaces.
    pub(super) namespace: Option<String>,
    /// Empty selects all objects that match the selectors.
    pub(super) names: Vec<String>,
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let wanted = wanted(matches, &server, io).await?;
    if matches.get_flag("watch") || matches.get_flag("watch-only") {
        return watch::run(matches, &server, wanted, io).await;
    }
    match output::of(matches).unwrap_or(Format::Table { wide: false }) {
        Format::Table { .. } => tables(matches, &server, &wanted, io).await,
        format => plain(matches, &server, &wanted, &format, io).await,
    }
}

/// The objects that the arguments or files select.
pub(super) async fn wanted(matches: &ArgMatches, server: &Server, io: &mut Io) -> Result<Vec<Wanted>> {
    let catalog = server.catalog().await?;
    let everywhere = matches.get_flag("all-namespaces");
    if matches.contains_id("filename") {
        let all = targets::all(matches, server, &catalog, io).await?;
        let wanted = all.into_iter().map(|target| Wanted {
            kind: target.kind,
            namespace: Some(target.namespace),
            names: vec![target.name],
        });
        return Ok(wanted.collect());
    }
    let mut wanted = Vec::new();
    for (kind, names) in targets::kinds(&targets::words_of(matches), &catalog, io)? {
        ensure!(
            names.is_empty() || !everywhere,
            usage("names cannot be combined with -A: use -n")
        );
        ensure!(
            names.is_empty() || !(matches.contains_id("selector") || matches.contains_id("field-selector")),
            usage("names cannot be combined with a selector")
        );
        // A category may contain kinds that cannot be listed.
        if names.is_empty() && !kind.can("list") && !kind.verbs.is_empty() {
            continue;
        }
        let namespace = (!everywhere).then(|| server.namespace.clone());
        wanted.push(Wanted { kind, namespace, names });
    }
    Ok(wanted)
}

/// A list request with the selectors of the command line.
pub(super) fn list_request(matches: &ArgMatches, wanted: &Wanted) -> Request {
    let text = |name| matches.get_one::<String>(name).cloned();
    Request::get(wanted.kind.collection(wanted.namespace.as_deref()))
        .maybe("labelSelector", text("selector"))
        .maybe("fieldSelector", text("field-selector"))
}

/// The columns that the flags select.
pub(super) fn show(matches: &ArgMatches, several: bool) -> Show {
    Show {
        wide: output::of(matches) == Some(Format::Table { wide: true }),
        namespace: false,
        labels: matches.get_flag("show-labels"),
        label_columns: matches
            .get_many::<String>("label-columns")
            .into_iter()
            .flatten()
            .cloned()
            .collect(),
        kind: several || matches.get_flag("show-kind"),
        event: matches.get_flag("output-watch-events"),
    }
}

async fn tables(matches: &ArgMatches, server: &Server, wanted: &[Wanted], io: &mut Io) -> Result<u8> {
    let show = show(matches, wanted.len() > 1);
    let (mut code, mut printed) = (SUCCESS, 0);
    for one in wanted {
        let show = Show {
            namespace: one.namespace.is_none() && one.kind.namespaced,
            ..show.clone()
        };
        let mut rows = Rows::new(&one.kind, show);
        let mut found = 0;
        for request in requests(matches, one) {
            match server.list(request.in_table()).await {
                Ok(answer) => found += rows.add(&answer, ""),
                Err(error) => code = code.max(report(matches, &error, io)),
            }
        }
        if found > 0 {
            if printed > 0 {
                io.print("")?;
            }
            for line in rows.lines(!matches.get_flag("no-headers"), io.terminal.color) {
                io.print(line)?;
            }
            printed += found;
        }
    }
    if printed == 0 && code == SUCCESS && !matches.get_flag("ignore-not-found") {
        io.eprint(nothing_found(wanted));
    }
    Ok(code)
}

/// The message for an empty result.
pub(super) fn nothing_found(wanted: &[Wanted]) -> String {
    let namespace = wanted
        .iter()
        .filter(|one| one.kind.namespaced)
        .find_map(|one| one.namespace.as_ref());
    match namespace {
        Some(namespace) => format!("No resources found in {namespace} namespace."),
        None => "No resources found".to_owned(),
    }
}

/// A request for each name, or one list request.
fn requests(matches: &ArgMatches, wanted: &Wanted) -> Vec<Request> {
    if wanted.names.is_empty() {
        return vec![list_request(matches, wanted)];
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

async fn plain(matches: &ArgMatches, server: &Server, wanted: &[Wanted], format: &Format, io: &mut Io) -> Result<u8> {
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
            items.extend(
                opened(answer, &one.kind)
                    .into_iter()
                    .map(|item| (one.kind.clone(), item)),
            );
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
            return Ok(code.max(if matches.get_flag("ignore-not-found") {
                SUCCESS
            } else {
                FAILURE
            }));
        }
        _ => output::list(objects),
    };
    output::tidy(&mut whole, matches);
    output::print(io, format, None, &whole)?;
    Ok(code)
}

/// The items of a list with their kind, or the object itself.
pub(super) fn opened(mut answer: Json, kind: &Kind) -> Vec<Json> {
    let Some(items) = server::array(&mut answer, "items") else {
        return vec![answer];
    };
    let mut items = std::mem::take(items);
    for item in &mut items {
        // Items of a typed list have neither apiVersion nor kind.
        if let Some(fields) = item.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
            fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
        }
    }
    items
}
