//! `rutter-demo`: demonstrates Rutter on this machine with real proxies and real traffic.
//!
//! ```text
//! operator ─objects─► control plane ─xDS─► sidecar, gateway
//! traffic ─requests─► sidecar, gateway ─► service v1, v2
//!     └─counts─► promises ─► report
//! ```
//!
//! It runs a control plane with its store and API, two versions of a small service, a client's sidecar and a gateway. Steady
//! traffic flows through both proxies while the split between the versions shifts, instances come and go, and the control
//! plane is killed. Then three workloads with certificates join,
//! and one is protected: by mutual TLS, by a policy, by tokens. Changes are made through the API; each is shown as the equivalent `kubectl` command. Every request is
//! counted. At the end the demonstration reports which promises held.
//!
//! The control plane is this program, started again with `serve`: one build gives both.

mod bank;
mod config;
mod kubernetes;
mod operator;
mod promises;
mod screen;
mod stage;
mod story;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use test_harness::run::Protocol;

use promises::Promises;
use screen::Screen;
use stage::Stage;

fn main() -> ExitCode {
    let matches = command().get_matches();
    let result = match matches.subcommand() {
        Some((name, matches)) if kubernetes::COMMANDS.contains(&name) => act(name, matches),
        // The demonstration runs this program with `serve` as its control plane.
        Some(_) => return rutter::run(&matches),
        None => run(&matches),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("rutter-demo: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The command line: the flags of the demonstration and, hidden, the programs in its pods and all commands of `rutter`.
fn command() -> Command {
    let command =
        Command::new("rutter-demo")
            .about("Demonstrates Rutter on this machine: a control plane, real Envoys, real traffic")
            .version(env!("CARGO_PKG_VERSION"))
            .arg(
                Arg::new("once")
                    .long("once")
                    .action(ArgAction::SetTrue)
                    .help("Do not pause between steps; the exit status is 0 if every promise held"),
            )
            .arg(
                Arg::new("envoy").long("envoy").value_name("PATH").value_parser(value_parser!(PathBuf)).help(
                    "The Envoy to run; the default is RUTTER_ENVOY, else a pinned release that is downloaded once",
                ),
            )
            .arg(
                Arg::new("sotw")
                    .long("sotw")
                    .action(ArgAction::SetTrue)
                    .help("Use the state-of-the-world variant of xDS instead of delta"),
            )
            .arg(
                Arg::new("kubernetes")
                    .long("kubernetes")
                    .action(ArgAction::SetTrue)
                    .help("Start a Kubernetes cluster with Rutter and sidecars in pods; needs root and containerd"),
            )
            .arg(
                Arg::new("stay")
                    .long("stay")
                    .requires("kubernetes")
                    .action(ArgAction::SetTrue)
                    .help("Keep the cluster running at the end, until Ctrl-C"),
            );
    let rutter = rutter::command();
    let own = rutter.get_subcommands().cloned();
    command
        .subcommands(own.map(|command| command.hide(true)))
        .subcommands(kubernetes::commands())
        .disable_help_subcommand(true)
}

/// Runs a program of the demonstration's pods. Returns false if `name` is not one.
fn act(name: &str, matches: &ArgMatches) -> Result<bool> {
    let acted = tasks()?.block_on(kubernetes::act(name, matches));
    acted.map(|()| true).map_err(anyhow::Error::from_boxed)
}

fn tasks() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Runs the demonstration; returns whether every promise held.
fn run(matches: &ArgMatches) -> Result<bool> {
    tasks()?.block_on(async {
        let mut screen = Screen::new();
        let (held, stage) = tokio::select! {
            result = show(matches, &mut screen) => result?,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted; everything that was started has been stopped"),
        };
        if stage.is_some() && matches.get_flag("stay") {
            screen.say("Everything keeps running until Ctrl-C.");
            tokio::signal::ctrl_c().await?;
        }
        Ok(held)
    })
}

/// Runs one of the two demonstrations. Returns whether every promise held, and the stage that is still running.
async fn show(matches: &ArgMatches, screen: &mut Screen) -> Result<(bool, Option<kubernetes::Stage>)> {
    let envoy = match matches.get_one::<PathBuf>("envoy") {
        Some(path) => path.clone(),
        None => test_harness::envoy(&mut |line| screen.say(line)).context("the demo needs Envoy")?,
    };
    let protocol = if matches.get_flag("sotw") { Protocol::Sotw } else { Protocol::Delta };
    let once = matches.get_flag("once");
    let (result, promises) = if matches.get_flag("kubernetes") {
        let mut promises = Promises::new("the client's sidecar", Duration::from_secs(2));
        let choice = kubernetes::Choice { envoy, protocol, once };
        let result = kubernetes::show(&choice, screen, &mut promises).await;
        (result.map(Some), promises)
    } else {
        let mut promises = Promises::new("both proxies", Duration::from_secs(1));
        let result = here(&envoy, protocol, once, screen, &mut promises).await;
        (result.map(|()| None), promises)
    };
    screen.close();
    let stage = result.map_err(anyhow::Error::from_boxed)?;
    screen.say("");
    for line in promises.summary() {
        screen.say(&line);
    }
    Ok((promises.all_held(), stage))
}

/// Runs the demonstration without Kubernetes.
async fn here(
    envoy: &Path,
    protocol: Protocol,
    once: bool,
    screen: &mut Screen,
    promises: &mut Promises,
) -> test_harness::run::Result<()> {
    let stage = Stage::start(envoy, protocol, screen).await?;
    story::run(stage, screen, promises, once).await
}
