//! `rutter version`: prints the versions of client and server.

use anyhow::Result;
use clap::{ArgMatches, Command};
use serde_json::{Value as Json, json};

use crate::failure::{self, SUCCESS, Unreachable};
use crate::flags::flag;
use crate::io::Io;
use crate::output::{self, Format};
use crate::server::{self, Server};

pub(super) fn command() -> Command {
    let command = Command::new("version")
        .about("Print the versions of this program and of the server")
        .after_help("Examples:\n  rutter version\n  rutter version --client -o json")
        .arg(flag("client", "Print only the version of this program"));
    server::arguments(output::arguments(command))
}

pub(super) async fn run(matches: &ArgMatches, io: &mut Io) -> Result<u8> {
    let client = env!("CARGO_PKG_VERSION");
    let mut code = SUCCESS;
    let server = match matches.get_flag("client") {
        true => None,
        false => match server_version(matches, io).await {
            Ok(version) => Some(version),
            // Without a configured server, only the client version is printed.
            Err(error) if error.downcast_ref::<Unreachable>().is_some_and(|none| !none.named) => None,
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
    io.print(format!("rutter {client}"))?;
    if let Some(version) = server {
        let version = version["gitVersion"].as_str().unwrap_or("(unknown)");
        io.print(format!("server {version}"))?;
    }
    Ok(code)
}

async fn server_version(matches: &ArgMatches, io: &Io) -> Result<Json> {
    Server::connect(matches, io).await?.get("/version").await
}
