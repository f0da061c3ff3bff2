//! `rutter version`.

use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::failure::{self, NoServer, SUCCESS};
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Server};

pub(super) fn command() -> Command {
    let command = Command::new("version")
        .about("Print the version of this program, and of the server if there is one")
        .after_help("Examples:\n  rutter version\n  rutter version --client -o json")
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
    let mut code = SUCCESS;
    let server = match matches.get_flag("client") {
        true => None,
        false => match of_server(matches, io).await {
            Ok(version) => Some(version),
            // One may well ask where there is no server.
            Err(error) if error.downcast_ref::<NoServer>().is_some_and(|none| !none.named) => None,
            Err(error) => {
                code = failure::report(&error, io);
                None
            }
        },
    };
    if let Some(format) = output::of(matches).filter(|format| matches!(format, Format::Yaml | Format::Json)) {
        let mut whole = json!({"clientVersion": {"gitVersion": format!("v{client}")}});
        if let Some(version) = server {
            whole["serverVersion"] = version;
        }
        output::print(io, &format, None, &whole)?;
        return Ok(code);
    }
    io.say(format!("rutter {client}"))?;
    if let Some(version) = server {
        let version = version["gitVersion"].as_str().unwrap_or("(unknown)");
        io.say(format!("server {version}"))?;
    }
    Ok(code)
}

async fn of_server(matches: &ArgMatches, io: &Io) -> Result<Json> {
    Server::connect(matches, io).await?.get("/version").await
}
