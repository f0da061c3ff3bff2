//! `rutter get`: objects, as tables or as they are.

use std::cmp::Ordering;

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::Value as Json;

use super::{flag, follow};
use crate::failure::{self, FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::jsonpath::Path;
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
                .help("Go on printing what changes"),
        )
        .arg(Arg::new("raw").long("raw").value_name("PATH").help("Print what the server has at a path, as it is"));
    arguments(command)
}

/// The flags that `get` and `watch` share.
pub(super) fn arguments(command: Command) -> Command {
    let command = command
        .arg(flag("watch-only", "Print what changes, and not what is there"))
        .arg(flag(
            "output-watch-events",
            "With -w: print what happened to each object, too",
        ))
        .arg(flag("no-headers", "Tables without headings"))
        .arg(flag("show-labels", "Tables with all labels"))
        .arg(flag("show-kind", "Tables with the kind before each name"))
        .arg(flag("ignore-not-found", "An object that is not there is no error"))
        .arg(
            Arg::new("label-columns")
                .short('L')
                .long("label-columns")
                .value_name("LABELS")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help("Tables with a column for each of these labels"),
        )
        .arg(
            Arg::new("sort-by")
                .long("sort-by")
                .value_name("PATH")
                .value_parser(Path::parse)
                .help("Sort by a field: `.metadata.creationTimestamp`"),
        );
    let command = targets::selectors(targets::words(manifests::arguments(command, false)));
    server::arguments(output::arguments(command))
}

/// One kind of what was asked for.
pub(super) struct Wanted {
    pub(super) kind: Kind,
    /// The namespace; none: all.
    pub(super) namespace: Option<String>,
    /// The names; none: all that the selectors let through.
    pub(super) names: Vec<String>,
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    if let Some(path) = matches.get_one::<String>("raw") {
        ensure!(path.starts_with('/'), usage("--raw takes a path: /apis"));
        let (_, bytes) = server.bytes(Request::get(path)).await?;
        io.out.write_all(&bytes)?;
        return Ok(SUCCESS);
    }
    let wanted = wanted(matches, &server, io).await?;
    if matches.get_flag("watch") || matches.get_flag("watch-only") {
        return follow::run(matches, &server, wanted, io).await;
    }
    match output::of(matches).unwrap_or(Format::Table { wide: false }) {
        Format::Table { .. } => tables(matches, &server, &wanted, io).await,
        format => plain(matches, &server, &wanted, &format, io).await,
    }
}

/// What the words or files of the command line ask for.
pub(super) async fn wanted(matches: &ArgMatches, server: &Server, io: &mut Io) -> Result<Vec<Wanted>> {
    let catalogue = server.catalogue().await?;
    let everywhere = matches.get_flag("all-namespaces");
    if matches.contains_id("filename") {
        let all = targets::all(matches, server, &catalogue, io).await?;
        let wanted = all.into_iter().map(|target| Wanted {
            kind: target.kind,
            namespace: Some(target.namespace),
            names: vec![target.name],
        });
        return Ok(wanted.collect());
    }
    let mut wanted = Vec::new();
    for (kind, names) in targets::kinds(&targets::words_of(matches), &catalogue, io)? {
        ensure!(
            names.is_empty() || !everywhere,
            usage("an object by its name is in one namespace: -n, not -A")
        );
        ensure!(
            names.is_empty() || !(matches.contains_id("selector") || matches.contains_id("field-selector")),
            usage("either names or a selector, not both")
        );
        // Of a category, what cannot be listed was not meant.
        if names.is_empty() && !kind.can("list") && !kind.verbs.is_empty() {
            continue;
        }
        let namespace = (!everywhere).then(|| server.namespace.clone());
        wanted.push(Wanted { kind, namespace, names });
    }
    Ok(wanted)
}

/// A request for a list, with the selectors of the command line.
pub(super) fn list_request(matches: &ArgMatches, wanted: &Wanted) -> Request {
    let text = |name| matches.get_one::<String>(name).cloned();
    Request::get(wanted.kind.collection(wanted.namespace.as_deref()))
        .maybe("labelSelector", text("selector"))
        .maybe("fieldSelector", text("field-selector"))
}

/// What the flags want tables to show.
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
    let sort = matches.get_one::<Path>("sort-by");
    let (mut code, mut printed) = (SUCCESS, 0);
    for one in wanted {
        let show = Show {
            namespace: one.namespace.is_none() && one.kind.namespaced,
            ..show.clone()
        };
        let mut rows = Rows::new(&one.kind, show);
        let mut found = 0;
        for request in requests(matches, one) {
            let request = request.in_table().maybe("includeObject", sort.map(|_| "Object"));
            match server.list(request).await {
                Ok(mut answer) => {
                    if let (Some(path), Some(rows)) = (sort, server::array(&mut answer, "rows")) {
                        sort_by(rows, path, |row| &row["object"]);
                    }
                    found += rows.add(&answer, "");
                }
                Err(error) => code = code.max(tell(matches, &error, io)),
            }
        }
        if found > 0 {
            if printed > 0 {
                io.say("")?;
            }
            for line in rows.lines(!matches.get_flag("no-headers"), io.terminal.colour) {
                io.say(line)?;
            }
            printed += found;
        }
    }
    if printed == 0 && code == SUCCESS && !matches.get_flag("ignore-not-found") {
        io.tell(nothing_found(wanted));
    }
    Ok(code)
}

/// What is said when there is nothing.
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

/// A request for each name, or one for the list.
fn requests(matches: &ArgMatches, wanted: &Wanted) -> Vec<Request> {
    if wanted.names.is_empty() {
        return vec![list_request(matches, wanted)];
    }
    let namespace = wanted.namespace.as_deref().unwrap_or_default();
    let of_name = |name: &String| Request::get(wanted.kind.object(namespace, name));
    wanted.names.iter().map(of_name).collect()
}

fn tell(matches: &ArgMatches, error: &anyhow::Error, io: &mut Io) -> u8 {
    if matches.get_flag("ignore-not-found") && failure::Refusal::is_not_found(error) {
        return SUCCESS;
    }
    failure::report(error, io)
}

/// Sorts by the values that a path leads to: numbers by size, everything else as text, nothing first.
fn sort_by(items: &mut [Json], path: &Path, object: impl Fn(&Json) -> &Json) {
    let key = |item: &Json| {
        path.find(object(item))
            .ok()
            .and_then(|found| found.first().map(|value| (*value).clone()))
    };
    items.sort_by(|left, right| match (key(left), key(right)) {
        (Some(Json::Number(left)), Some(Json::Number(right))) => {
            left.as_f64().partial_cmp(&right.as_f64()).unwrap_or(Ordering::Equal)
        }
        (Some(left), Some(right)) => crate::jsonpath::text(&left).cmp(&crate::jsonpath::text(&right)),
        (left, right) => left.is_some().cmp(&right.is_some()),
    });
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
                    code = code.max(tell(matches, &error, io));
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
    if let Some(path) = matches.get_one::<Path>("sort-by") {
        let mut only: Vec<Json> = items.iter().map(|(_, item)| item.clone()).collect();
        sort_by(&mut only, path, |item| item);
        if let [one] = wanted {
            items = only.into_iter().map(|item| (one.kind.clone(), item)).collect();
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
        // Its error is told already.
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

/// The objects of a list, each with its kind, or the object itself.
pub(super) fn opened(mut answer: Json, kind: &Kind) -> Vec<Json> {
    let Some(items) = server::array(&mut answer, "items") else {
        return vec![answer];
    };
    let mut items = std::mem::take(items);
    for item in &mut items {
        // Items of a typed list do not repeat what they are.
        if let Some(fields) = item.as_object_mut() {
            fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
            fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
        }
    }
    items
}
