//! `rutter token`: creates, lists and deletes join tokens, with which workloads without Kubernetes get their first certificate.
//!
//! A token is created here, and only its digest is sent to the server, in a Secret that administrators can write.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ca::join::{DEFAULT_LIFETIME, JoinRecord, JoinToken, LABEL, RECORD, SECRET_TYPE, secret_name};
use clap::{Arg, ArgAction, ArgMatches, Command};
use config::Timestamp;
use serde_json::{Value as Json, json};

use crate::age;
use crate::failure::{SUCCESS, usage};
use crate::flags::option;
use crate::io::Io;
use crate::server::{self, Request, Server};
use crate::table::Table;

pub(super) fn command() -> Command {
    let create = Command::new("create")
        .about("Create a join token and print it")
        .after_help(
            "A workload presents the token when it asks for its first certificate: as `authorization: Bearer TOKEN`, or as the token \
             file of Istio's agent. It is valid once. Whoever has it becomes this service account: keep it secret.\n\n\
             Examples:\n  rutter token create --namespace shop --service-account cart\n  \
             rutter token create -n shop --service-account cart --ttl 10m > token",
        )
        .arg(option("service-account", "NAME", "Service account of the workload").default_value("default"))
        .arg(
            option("ttl", "DURATION", "Time until which the token must be used: 1m to 168h")
                .value_parser(age::parse)
                .default_value("1h"),
        );
    let list = Command::new("list").about("Print the join tokens: their ids, not the tokens").visible_alias("ls");
    let delete = Command::new("delete").about("Delete join tokens, which are then not valid any more").arg(
        Arg::new("ids").value_name("ID").required(true).action(ArgAction::Append).num_args(1..).help("Ids of tokens"),
    );
    let commands = [create, list, delete].map(|command| {
        let namespace = option("istioNamespace", "NAME", "Namespace of the control plane");
        server::arguments(command.arg(namespace.short('i').default_value("istio-system")))
    });
    Command::new("token")
        .about("Manage tokens with which workloads join the mesh")
        .after_help("Examples:\n  rutter token create -n shop --service-account cart\n  rutter token list")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(commands)
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    match matches.subcommand() {
        Some(("create", matches)) => create(matches, io).await,
        Some(("list", matches)) => list(matches, io).await,
        Some(("delete", matches)) => delete(matches, io).await,
        // clap requires a subcommand.
        _ => Err(usage("expected create, list or delete")),
    }
}

/// The path of the Secrets of the control plane.
fn secrets(matches: &ArgMatches) -> String {
    let namespace = matches.get_one::<String>("istioNamespace").map_or("istio-system", String::as_str);
    format!("/api/v1/namespaces/{}/secrets", server::encode(namespace))
}

async fn create(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let account = matches.get_one::<String>("service-account").map_or("default", String::as_str);
    let lifetime = matches.get_one::<Duration>("ttl").copied().unwrap_or(DEFAULT_LIFETIME);
    let namespace = matches.get_one::<String>("istioNamespace").map_or("istio-system", String::as_str);
    let token = join_token(&server, (&server.namespace, account), lifetime, namespace).await?;
    io.print(token.expose())?;
    Ok(SUCCESS)
}

/// Creates a join token for a service account, with its Secret in the namespace of the control plane.
pub(super) async fn join_token(
    server: &Server,
    (of, account): (&str, &str),
    lifetime: Duration,
    namespace: &str,
) -> Result<JoinToken> {
    let created = JoinToken::create(of, account, lifetime, SystemTime::now());
    let (token, record) = created.map_err(|error| usage(error.to_string()))?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": secret_name(token.id()), "labels": {LABEL: "true"}},
        "type": SECRET_TYPE,
        "data": {RECORD: STANDARD.encode(serde_json::to_vec(&record)?)},
    });
    let path = format!("/api/v1/namespaces/{}/secrets", server::encode(namespace));
    server.send::<Json>(Request::post(path, &secret)).await?;
    Ok(token)
}

async fn list(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    let request = Request::get(secrets(matches)).with("labelSelector", format!("{LABEL}=true"));
    let found = server.list(request).await?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
    let mut table = Table::new(["ID", "NAMESPACE", "SERVICE ACCOUNT", "STATE", "EXPIRES"]);
    for record in found["items"].as_array().into_iter().flatten().filter_map(record) {
        let state = match record.used {
            Some(_) => "used",
            None if record.expires <= now => "expired",
            None => "valid",
        };
        let expires = Timestamp::from_unix(record.expires).to_string();
        table.row([record.id, record.namespace, record.service_account, state.to_owned(), expires]);
    }
    if table.len() == 0 {
        io.print("No join tokens found.")?;
        return Ok(SUCCESS);
    }
    for line in table.lines(true, false) {
        io.print(line)?;
    }
    Ok(SUCCESS)
}

/// The record in a Secret.
fn record(secret: &Json) -> Option<JoinRecord> {
    let bytes = STANDARD.decode(secret["data"][RECORD].as_str()?).ok()?;
    serde_json::from_slice(&bytes).ok()
}

async fn delete(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let server = Server::connect(matches, io).await?;
    for id in matches.get_many::<String>("ids").into_iter().flatten() {
        let is_id = id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        ensure!(
            is_id && !id.is_empty(),
            usage(format!("`{id}` is not the id of a token; `rutter token list` prints them"))
        );
        let path = format!("{}/{}", secrets(matches), secret_name(id));
        server.send::<Json>(Request::delete(path, &json!({}))).await?;
        io.print(format!("join token {id} deleted"))?;
    }
    Ok(SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_of_a_secret_is_read() {
        let (token, written) = JoinToken::create("shop", "cart", DEFAULT_LIFETIME, SystemTime::now()).unwrap();
        let secret = json!({"data": {RECORD: STANDARD.encode(serde_json::to_vec(&written).unwrap())}});
        assert_eq!(record(&secret).unwrap().id, token.id());
        assert_eq!(record(&json!({"data": {RECORD: "?"}})), None);
        assert_eq!(record(&json!({})), None);
    }
}
