//! `rutter auth`: who one is to the server, and what one may do.

use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::failure::{FAILURE, SUCCESS, usage};
use crate::io::Io;
use crate::output;
use crate::server::{self, Request, Server};
use crate::table::Table;
use crate::targets;

pub(super) fn command() -> Command {
    let whoami = Command::new("whoami").about("Print who the server takes you for");
    let can_i = Command::new("can-i")
        .about("Print whether you may do something; exit code 1 if not")
        .after_help(
            "Examples:\n  rutter auth can-i create virtualservices -n shop\n  rutter auth can-i delete vs/reviews -q",
        )
        .arg(
            Arg::new("verb")
                .required(true)
                .value_name("VERB")
                .help("get, list, watch, create, update, patch, delete or *"),
        )
        .arg(
            Arg::new("object")
                .required(true)
                .value_name("KIND[/NAME]")
                .help("The kind, or /PATH for what is no object"),
        )
        .arg(
            Arg::new("subresource")
                .long("subresource")
                .value_name("NAME")
                .help("A subresource: status"),
        )
        .arg(
            Arg::new("all-namespaces")
                .short('A')
                .long("all-namespaces")
                .action(ArgAction::SetTrue)
                .help("In all namespaces"),
        )
        .arg(
            Arg::new("quiet")
                .short('q')
                .long("quiet")
                .action(ArgAction::SetTrue)
                .help("Only the exit code"),
        );
    Command::new("auth")
        .about("Who you are to the server, and what you may do")
        .after_help("Examples:\n  rutter auth whoami\n  rutter auth can-i create virtualservices -n shop")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(server::arguments(output::arguments(whoami)))
        .subcommand(server::arguments(can_i))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    match matches.subcommand() {
        Some(("whoami", matches)) => whoami(matches, io).await,
        Some(("can-i", matches)) => can_i(matches, io).await,
        _ => Err(usage("whoami or can-i")),
    }
}

async fn whoami(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer: Json = server.send(Request::post(path, &review)).await?;
    if let Some(format) = output::of(matches).filter(|format| !format.is_table()) {
        output::print(io, &format, None, &answer)?;
        return Ok(SUCCESS);
    }
    let user = &answer["status"]["userInfo"];
    let mut table = Table::new(["ATTRIBUTE", "VALUE"]);
    table.row(["Username", user["username"].as_str().unwrap_or_default()]);
    let groups: Vec<&str> = user["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    table.row(["Groups".to_owned(), groups.join(", ")]);
    for (key, value) in user["extra"].as_object().into_iter().flatten() {
        table.row([format!("Extra: {key}"), value.to_string()]);
    }
    for line in table.lines(true, io.terminal.colour) {
        io.say(line)?;
    }
    Ok(SUCCESS)
}

async fn can_i(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let text = |name| matches.get_one::<String>(name).map(String::as_str).unwrap_or_default();
    let server = Server::connect(matches, io).await?;
    let (verb, object) = (text("verb"), text("object"));
    let spec = if object.starts_with('/') {
        json!({"nonResourceAttributes": {"verb": verb, "path": object}})
    } else {
        let (word, name) = object.split_once('/').unwrap_or((object, ""));
        ensure!(!word.is_empty(), usage("KIND or KIND/NAME"));
        let (group, resource) = match word {
            "*" => ("*".to_owned(), "*".to_owned()),
            word => {
                let kind = targets::one(word, &server.catalogue().await?, io)?;
                (kind.group, kind.plural)
            }
        };
        let namespace = if matches.get_flag("all-namespaces") {
            ""
        } else {
            &server.namespace
        };
        let subresource = text("subresource");
        json!({"resourceAttributes": {"verb": verb, "group": group, "resource": resource, "name": name,
            "namespace": namespace, "subresource": subresource}})
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let answer: Json = server.send(Request::post(path, &review)).await?;
    let allowed = answer["status"]["allowed"] == true;
    if !matches.get_flag("quiet") {
        let reason = answer["status"]["reason"]
            .as_str()
            .filter(|reason| !reason.is_empty() && !allowed);
        let reason = reason.map_or(String::new(), |reason| format!(" - {reason}"));
        io.say(format!("{}{reason}", if allowed { "yes" } else { "no" }))?;
    }
    Ok(if allowed { SUCCESS } else { FAILURE })
}
