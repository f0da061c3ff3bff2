//! The programs in the demo's pods: a shop that identifies itself, and a client that sends requests. They are unaware
//! of proxies.
//!
//! They are hidden commands of this program, so that one image contains all.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs as _};

use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};
use test_harness::run::{Backend, Result, Traffic, http, publish};
use tokio::signal::unix::{SignalKind, signal};

use super::manifests::{COUNTS_PORT, SHOP_PORT};

/// The client's requests per second, unless it is given a number.
const RATE: u32 = 150;
/// The requests per second on each connection.
const RATE_OF_CONNECTION: u32 = 20;
/// The shop's delay per request, in milliseconds, so that some requests are pending whenever a pod ends.
const THOUGHT: &str = "20";

/// The names of [`commands`].
pub(crate) const COMMANDS: [&str; 3] = ["shop", "client", "ask"];

pub(crate) fn commands() -> [Command; 3] {
    let word = |name: &'static str| Arg::new(name).required(true);
    [
        Command::new("shop").arg(word("version")).arg(word("instance")),
        Command::new("client").arg(word("host")).arg(Arg::new("rate")),
        Command::new("ask").arg(word("host")).arg(Arg::new("token")),
    ]
    .map(|command| command.hide(true))
}

pub(crate) async fn act(name: &str, matches: &ArgMatches) -> Result<()> {
    let given = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
    match name {
        "shop" => shop(&given("version"), &given("instance")).await,
        "client" => client(&given("host"), given("rate").parse().unwrap_or(RATE)).await,
        _ => ask(&given("host"), &given("token")).await,
    }
}

/// Serves until a signal arrives, then finishes pending requests.
async fn shop(version: &str, instance: &str) -> Result<()> {
    let shop = Backend::start_at((Ipv4Addr::UNSPECIFIED, SHOP_PORT).into(), version, instance).await?;
    ended().await?;
    shop.stop().await;
    Ok(())
}

/// Sends requests at a steady rate and publishes the counts.
async fn client(host: &str, rate: u32) -> Result<()> {
    let headers = [("host", host), ("x-ask-delay-ms", THOUGHT)];
    let traffic = Traffic::start(resolve(host)?, "/", &headers, rate, rate.div_ceil(RATE_OF_CONNECTION));
    let counts = || traffic.counts();
    tokio::select! {
        published = publish((Ipv4Addr::UNSPECIFIED, COUNTS_PORT).into(), counts) => published,
        ended = ended() => ended,
    }
}

/// Sends one request, with a bearer token unless it is empty, and prints the response.
async fn ask(host: &str, token: &str) -> Result<()> {
    let bearer = format!("Bearer {token}");
    let headers = [("host", host), ("authorization", &*bearer)];
    let headers = if token.is_empty() { &headers[..1] } else { &headers[..] };
    let answer = http::get(resolve(host)?, "/", headers).await?;
    let body: Value = answer.json().unwrap_or_default();
    let response = json!({
        "status": answer.status.as_u16(),
        "server": answer.header("server"),
        "instance": answer.header("x-instance"),
        // The headers that the shop received, which include those that proxies added.
        "asked": body["headers"],
        // A proxy that denies a request says why.
        "text": if body.is_null() { answer.text() } else { String::new() },
    });
    super::super::screen::Screen::new().say(&response.to_string());
    Ok(())
}

fn resolve(host: &str) -> Result<SocketAddr> {
    let mut found = (host, 80).to_socket_addrs().map_err(|error| format!("{host}: {error}"))?;
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
