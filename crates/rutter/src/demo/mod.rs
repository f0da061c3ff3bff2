//! `rutter demo`: the main job, shown on this machine with real proxies and real traffic.
//!
//! A control plane with its store and API, two versions of a small service, a client's sidecar and a gateway; steady traffic through both, while
//! the split between the versions shifts, instances come and go, and the control plane is killed. Changes are made through
//! the API, each shown as the command that makes the same one. Every request is counted. At the end the demo says which promises held.

mod config;
mod kubernetes;
mod operator;
mod promises;
mod screen;
mod stage;
mod story;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use test_harness::run::Protocol;

use promises::Promises;
use screen::Screen;
use stage::Stage;

/// The command line.
pub(crate) fn command() -> Command {
    Command::new("demo")
        .about("Show the main job on this machine: a control plane, real Envoys, real traffic")
        .arg(
            Arg::new("once")
                .long("once")
                .action(ArgAction::SetTrue)
                .help("Run through as fast as the figures allow; the exit status says whether every promise held"),
        )
        .arg(
            Arg::new("envoy")
                .long("envoy")
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("The Envoy to run; otherwise RUTTER_ENVOY names it, or a pinned release is fetched once"),
        )
        .arg(
            Arg::new("sotw")
                .long("sotw")
                .action(ArgAction::SetTrue)
                .help("Let the proxies speak the state-of-the-world protocol instead of delta"),
        )
        .arg(
            Arg::new("kubernetes")
                .long("kubernetes")
                .action(ArgAction::SetTrue)
                .help("Show it in a Kubernetes cluster of its own, with Rutter and sidecars in pods; needs root and containerd"),
        )
        .arg(
            Arg::new("stay")
                .long("stay")
                .requires("kubernetes")
                .action(ArgAction::SetTrue)
                .help("Let the cluster run on at the end, until Ctrl-C"),
        )
        .subcommands(kubernetes::commands())
}

/// Runs the demo; returns whether every promise held.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let Some((name, matches)) = matches.subcommand() {
        let acted = runtime.block_on(kubernetes::act(name, matches));
        return acted.map(|()| true).map_err(anyhow::Error::from_boxed);
    }
    runtime.block_on(async {
        let mut screen = Screen::new();
        let (held, stage) = tokio::select! {
            result = show(matches, &mut screen) => result?,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted; everything that was started has been stopped"),
        };
        if stage.is_some() && matches.get_flag("stay") {
            screen.say("Everything runs on until Ctrl-C.");
            tokio::signal::ctrl_c().await?;
        }
        Ok(held)
    })
}

/// Shows one of the two; whether every promise held, and what runs on.
async fn show(matches: &ArgMatches, screen: &mut Screen) -> Result<(bool, Option<kubernetes::Stage>)> {
    let envoy = match matches.get_one::<PathBuf>("envoy") {
        Some(path) => path.clone(),
        None => test_harness::envoy(&mut |line| screen.say(line)).context("the demo needs Envoy")?,
    };
    let protocol = if matches.get_flag("sotw") {
        Protocol::Sotw
    } else {
        Protocol::Delta
    };
    let once = matches.get_flag("once");
    let (told, promises) = if matches.get_flag("kubernetes") {
        let mut promises = Promises::new("the client's sidecar", Duration::from_secs(2));
        let choice = kubernetes::Choice { envoy, protocol, once };
        let told = kubernetes::show(&choice, screen, &mut promises).await;
        (told.map(Some), promises)
    } else {
        let mut promises = Promises::new("both proxies", Duration::from_secs(1));
        let told = here(&envoy, protocol, once, screen, &mut promises).await;
        (told.map(|()| None), promises)
    };
    screen.close();
    let stage = told.map_err(anyhow::Error::from_boxed)?;
    screen.say("");
    for line in promises.summary() {
        screen.say(&line);
    }
    Ok((promises.all_held(), stage))
}

/// The demo without Kubernetes.
async fn here(
    envoy: &Path,
    protocol: Protocol,
    once: bool,
    screen: &mut Screen,
    promises: &mut Promises,
) -> test_harness::run::Result<()> {
    let stage = Stage::start(envoy, protocol, screen).await?;
    story::tell(stage, screen, promises, once).await
}
