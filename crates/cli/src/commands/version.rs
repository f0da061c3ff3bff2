//! `rutter version`.

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::failure::SUCCESS;
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Server};

pub(super) fn command() -> Command {
    let command = Command::new("version")
        .about("Print the version of this program, and of the server if there is one")
        .arg(
            Arg::new("client")
                .long("client")
                .action(ArgAction::SetTrue)
                .help("Only this program's; asks no server"),
        );
    server::arguments(output::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let client = env!("CARGO_PKG_VERSION");
    let server = match matches.get_flag("client") {
        true => None,
        false => Some(of_server(matches, io).await),
    };
    if let Some(format) = output::of(matches).filter(|format| matches!(format, Format::Yaml | Format::Json)) {
        let mut whole = json!({"clientVersion": {"gitVersion": format!("v{client}")}});
        if let Some(Ok(version)) = server {
            whole["serverVersion"] = version;
        }
        output::print(io, &format, None, &whole)?;
        return Ok(SUCCESS);
    }
    io.say(format!("rutter {client}"))?;
    match server {
        Some(Ok(version)) => io.say(format!(
            "server {}",
            version["gitVersion"].as_str().unwrap_or("(unknown)")
        ))?,
        // One may well ask without a server.
        Some(Err(error)) if matches.contains_id("kubeconfig") || matches.contains_id("server") => return Err(error),
        _ => {}
    }
    Ok(SUCCESS)
}

async fn of_server(matches: &ArgMatches, io: &Io) -> Result<Json> {
    Server::connect(matches, io).await?.get("/version").await
}
