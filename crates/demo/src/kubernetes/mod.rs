//! `rutter-demo --kubernetes`: the same demonstration in a real Kubernetes with real pods, each with a sidecar.
//!
//! It runs a cluster on this machine, Rutter as `rutter install` installs it, two versions of a shop, and a client. The
//! manifests beside this file contain no sidecars: Rutter injects them, with its own agent. The programs are unaware of
//! proxies: their traffic is captured. Under steady traffic the split shifts, and pods are scaled, deleted and killed,
//! including Rutter's own. A bank joins, and is protected by mutual TLS, a policy and tokens.

mod actors;
mod bank;
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

/// The options of the command line.
pub(super) struct Choice {
    pub(super) envoy: PathBuf,
    pub(super) protocol: Protocol,
    /// Whether to run without pauses for a viewer.
    pub(super) once: bool,
}

/// Starts everything and runs the story. Returns the running stage.
pub(super) async fn show(choice: &Choice, screen: &mut Screen, promises: &mut Promises) -> Result<Stage> {
    let stage = Stage::start(choice, screen).await?;
    story::run(&stage, choice, screen, promises).await?;
    Ok(stage)
}
