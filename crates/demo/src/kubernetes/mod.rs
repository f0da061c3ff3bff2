//! `rutter-demo --kubernetes`: the same job in a real Kubernetes with real pods, each with a sidecar.
//!
//! A cluster of its own on this machine, Rutter in it as the chart installs it, a shop in two versions and a client whose
//! programs know nothing of proxies: what they send and receive is captured. Under steady traffic the split shifts, pods are
//! scaled, deleted and killed, and so is Rutter's own. The manifests beside this file show what a sidecar by hand takes.

mod actors;
mod images;
mod manifests;
mod pods;
mod stage;
mod story;

use std::path::PathBuf;

use test_harness::run::{Protocol, Result};

pub(super) use actors::{COMMANDS, act, commands};
pub(super) use stage::Stage;

use super::promises::Promises;
use super::screen::Screen;

/// What is chosen on the command line.
pub(super) struct Choice {
    /// The Envoy of the sidecars.
    pub(super) envoy: PathBuf,
    /// The variant of the protocol that they speak.
    pub(super) protocol: Protocol,
    /// Whether nobody watches.
    pub(super) once: bool,
}

/// Starts everything and tells the story; what runs is returned.
pub(super) async fn show(choice: &Choice, screen: &mut Screen, promises: &mut Promises) -> Result<Stage> {
    let stage = Stage::start(choice, screen).await?;
    story::tell(&stage, screen, promises, choice.once).await?;
    Ok(stage)
}
