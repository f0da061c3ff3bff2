//! `rutter demo`: the main job, shown on this machine with real proxies and real traffic.
//!
//! A control plane with its store and API, two versions of a small service, a client's sidecar and a gateway; steady traffic through both, while
//! the split between the versions shifts, instances come and go, and the control plane is killed. Changes are made through
//! the API, each shown as the command that makes the same one. Every request is counted. At the end the demo says which promises held.

mod config;
mod operator;
mod promises;
mod screen;
mod stage;
mod story;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use parts::run::Protocol;

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
}

/// Runs the demo; returns whether every promise held.
pub(crate) fn run(matches: &ArgMatches) -> Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            result = show(matches) => result,
            _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted; everything that was started has been stopped"),
        }
    })
}

async fn show(matches: &ArgMatches) -> Result<bool> {
    let mut screen = Screen::new();
    let envoy = match matches.get_one::<PathBuf>("envoy") {
        Some(path) => path.clone(),
        None => parts::envoy(&mut |line| screen.say(line)).context("the demo needs Envoy")?,
    };
    let protocol = if matches.get_flag("sotw") {
        Protocol::Sotw
    } else {
        Protocol::Delta
    };
    let stage = Stage::start(&envoy, protocol, &mut screen)
        .await
        .map_err(anyhow::Error::from_boxed)?;
    let mut promises = Promises::new();
    let told = story::tell(stage, &mut screen, &mut promises, matches.get_flag("once")).await;
    screen.close();
    told.map_err(anyhow::Error::from_boxed)?;
    screen.say("");
    for line in promises.summary() {
        screen.say(&line);
    }
    Ok(promises.all_held())
}
