//! `rutter api-resources` and `rutter api-versions`: what the server serves.

use std::collections::BTreeSet;

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::failure::SUCCESS;
use crate::io::Io;
use crate::server::{self, Kind, Server};
use crate::table::Table;

pub(super) fn resources_command() -> Command {
    let command = Command::new("api-resources")
        .about("Print the kinds that the server has")
        .after_help("Examples:\n  rutter api-resources\n  rutter api-resources --api-group networking.istio.io -o wide\n  rutter api-resources --categories istio-io -o name")
        .arg(Arg::new("api-group").long("api-group").value_name("GROUP").help("Only those of this group"))
        .arg(
            Arg::new("namespaced")
                .long("namespaced")
                .value_name("BOOL")
                .value_parser(value_parser!(bool))
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("true")
                .help("Only those that live in namespaces, or only the others"),
        )
        .arg(
            Arg::new("verbs")
                .long("verbs")
                .value_name("VERBS")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help("Only those that can be listed, watched, …"),
        )
        .arg(
            Arg::new("categories")
                .long("categories")
                .value_name("NAMES")
                .value_delimiter(',')
                .action(ArgAction::Append)
                .help("Only those of these categories"),
        )
        .arg(Arg::new("no-headers").long("no-headers").action(ArgAction::SetTrue).help("Without headings"))
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FORMAT")
                .value_parser(["wide", "name"])
                .help("wide or name"),
        );
    server::arguments(command)
}

pub(super) fn versions_command() -> Command {
    server::arguments(
        Command::new("api-versions")
            .about("Print the groups and versions that the server has")
            .after_help("Examples:\n  rutter api-versions"),
    )
}

pub(super) async fn resources(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let mut kinds: Vec<&Kind> = catalogue.preferred().filter(|kind| is_wanted(matches, kind)).collect();
    kinds.sort_by(|a, b| (&a.group, &a.plural).cmp(&(&b.group, &b.plural)));
    let format = matches.get_one::<String>("output").map(String::as_str);
    if format == Some("name") {
        for kind in kinds {
            io.say(kind.qualified())?;
        }
        return Ok(SUCCESS);
    }
    let wide = format == Some("wide");
    let headings = [
        "NAME",
        "SHORTNAMES",
        "APIVERSION",
        "NAMESPACED",
        "KIND",
        "VERBS",
        "CATEGORIES",
    ];
    let columns = if wide { headings.len() } else { 5 };
    let mut table = Table::new(headings.into_iter().take(columns));
    for kind in kinds {
        let cells = [
            kind.plural.clone(),
            kind.short_names.join(","),
            kind.api_version(),
            kind.namespaced.to_string(),
            kind.kind.clone(),
            kind.verbs.join(","),
            kind.categories.join(","),
        ];
        table.row(cells.into_iter().take(columns));
    }
    for line in table.lines(!matches.get_flag("no-headers"), io.terminal.colour) {
        io.say(line)?;
    }
    Ok(SUCCESS)
}

pub(super) async fn versions(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let catalogue = server.catalogue().await?;
    let versions: BTreeSet<String> = catalogue.kinds.iter().map(Kind::api_version).collect();
    for version in versions {
        io.say(version)?;
    }
    Ok(SUCCESS)
}

fn is_wanted(matches: &ArgMatches, kind: &Kind) -> bool {
    let all = |name: &str| -> Vec<&String> { matches.get_many::<String>(name).into_iter().flatten().collect() };
    let group = matches.get_one::<String>("api-group");
    let namespaced = matches.get_one::<bool>("namespaced");
    group.is_none_or(|group| kind.group == *group)
        && namespaced.is_none_or(|namespaced| kind.namespaced == *namespaced)
        && all("verbs").iter().all(|verb| kind.can(verb))
        && all("categories")
            .iter()
            .all(|category| kind.categories.contains(category))
}
