//! Resolves the host names of network gateways for the world.

use anyhow::Result;
use server::{Closed, WorldHandle};
use settings::Settings;
use sources::names::{self, Found};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use world::Batch;

/// Starts resolving names. Returns after the first attempt for every name that the world needs now, so that no proxy is
/// served without gateways that can be resolved.
///
/// # Errors
/// The control plane is shutting down.
pub(super) async fn begin(settings: &Settings, pilot: &WorldHandle) -> Result<JoinSet<()>, Closed> {
    let mut tasks = JoinSet::new();
    if !settings.resolve_hostname_gateways.0 {
        return Ok(tasks);
    }
    let (sender, mut found) = mpsc::channel(1);
    tasks.spawn(names::follow(pilot.wanted_names().await?, names::ask, sender));
    if let Some(first) = found.recv().await {
        report(pilot, first).await?;
    }
    let pilot = pilot.clone();
    tasks.spawn(async move {
        while let Some(update) = found.recv().await {
            if report(&pilot, update).await.is_err() {
                return;
            }
        }
    });
    Ok(tasks)
}

async fn report(pilot: &WorldHandle, found: Found) -> Result<(), Closed> {
    let mut batch = Batch::new();
    for (name, addresses) in found {
        batch.set_addresses(name, addresses);
    }
    match batch.is_empty() {
        true => Ok(()),
        false => pilot.commit(batch).await,
    }
}
