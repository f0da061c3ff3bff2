//! The programs of the demo's pods: a shop that says who it is, and a client that asks it. They know nothing of proxies.
//!
//! They are commands of this program, hidden ones, so that its image is theirs as well.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use clap::{Arg, ArgMatches, Command};
use serde_json::json;
use test_harness::run::{Backend, Result, Traffic, http, publish};
use tokio::signal::unix::{SignalKind, signal};

use super::manifests::{COUNTS_PORT, SHOP_PORT};

/// Requests a second of the client.
const RATE: u32 = 150;
/// Its connections.
const CONNECTIONS: u32 = 8;
/// How long the shop thinks over each of its requests, in milliseconds: so that some are under way whenever a pod ends.
const THOUGHT: &str = "20";

/// The names of [`commands`].
pub(crate) const COMMANDS: [&str; 3] = ["shop", "client", "ask"];

/// Their command lines.
pub(crate) fn commands() -> [Command; 3] {
    let word = |name: &'static str| Arg::new(name).required(true);
    [
        Command::new("shop").arg(word("version")).arg(word("instance")),
        Command::new("client").arg(word("host")),
        Command::new("ask").arg(word("host")),
    ]
    .map(|command| command.hide(true))
}

/// Runs one of them.
pub(crate) async fn act(name: &str, matches: &ArgMatches) -> Result<()> {
    let given = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    match name {
        "shop" => shop(&given("version"), &given("instance")).await,
        "client" => client(&given("host")).await,
        _ => ask(&given("host")).await,
    }
}

/// Serves until a signal comes, and answers then what is under way.
async fn shop(version: &str, instance: &str) -> Result<()> {
    let shop = Backend::start_at((Ipv4Addr::UNSPECIFIED, SHOP_PORT).into(), version, instance).await?;
    ended().await?;
    shop.stop().await;
    Ok(())
}

/// Asks steadily, and tells what it counts.
async fn client(host: &str) -> Result<()> {
    let headers = [("host", host), ("x-ask-delay-ms", THOUGHT)];
    let traffic = Traffic::start(resolve(host)?, "/", &headers, RATE, CONNECTIONS);
    let counts = || traffic.counts();
    tokio::select! {
        published = publish((Ipv4Addr::UNSPECIFIED, COUNTS_PORT).into(), counts) => published,
        ended = ended() => ended,
    }
}

/// Asks once, and prints the answer.
async fn ask(host: &str) -> Result<()> {
    let answer = http::get(resolve(host)?, "/", &[("host", host)]).await?;
    let body = answer.json()?;
    let told = json!({
        "status": answer.status.as_u16(),
        "server": answer.header("server"),
        "instance": answer.header("x-instance"),
        // What the shop was asked with, which is more than the client sent.
        "asked": body["headers"],
    });
    super::super::screen::Screen::new().say(&told.to_string());
    Ok(())
}

fn resolve(host: &str) -> Result<SocketAddr> {
    let mut found = (host, 80)
        .to_socket_addrs()
        .map_err(|error| format!("{host}: {error}"))?;
    found.next().ok_or_else(|| format!("{host} has no address").into())
}

async fn ended() -> Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
