//! Fetches the public keys of token issuers for the world.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use registry::inputs::JwksMode;
use server::{Closed, Metric, ServingStatus, WorldHandle};
use settings::{JwksFetcher, Settings};
use sources::jwks::{Client, Outcomes, Update, follow};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use world::Batch;

/// The number of queued updates; fetching waits when the queue is full.
const QUEUE: usize = 16;
/// The shortest interval of fetches.
const SHORTEST: Duration = Duration::from_secs(1);
/// The maximum time that the start waits for keys.
const START: Duration = Duration::from_secs(10);

/// The component that fetches keys.
pub(super) fn mode(settings: &Settings) -> JwksMode {
    match settings.jwks_fetcher {
        JwksFetcher::ControlPlane => JwksMode::ControlPlane,
        JwksFetcher::Proxies => JwksMode::Proxies,
        JwksFetcher::Hybrid => JwksMode::Hybrid,
    }
}

/// Starts fetching keys. Returns after the first attempt for every source that the world needs now, so that a restart does not
/// make proxies reject valid tokens, but after [`START`] at the latest.
///
/// # Errors
/// The control plane is shutting down.
pub(super) async fn begin(
    settings: &Settings,
    pilot: &WorldHandle,
    serving: &ServingStatus,
) -> Result<JoinSet<()>, Closed> {
    let guard = jwks::Guard { blocked: settings.jwks_blocked.0.clone(), allowed: settings.jwks_allowed.0.clone() };
    let client = Arc::new(Client::new(guard, settings.jwks_extra_roots.clone()));
    let schedule =
        jwks::Settings { refresh: settings.jwks_refresh_interval.max(SHORTEST), ..jwks::Settings::default() };
    let (sender, mut updates) = mpsc::channel(QUEUE);
    let wanted = pilot.wanted_keys().await?;
    let outcomes = Arc::new(Outcomes::default());
    serving.provide({
        let outcomes = outcomes.clone();
        move || metrics(&outcomes)
    });
    let mut tasks = JoinSet::new();
    let fetch = move |fetch: jwks::Fetch| {
        let client = client.clone();
        async move { client.fetch(&fetch).await }
    };
    tasks.spawn(follow(wanted, schedule, fetch, outcomes, sender));
    let end = Instant::now() + START;
    while let Ok(Some(update)) = timeout_at(end, updates.recv()).await {
        let all_tried = update.all_tried;
        report(pilot, update).await?;
        if all_tried {
            break;
        }
    }
    let pilot = pilot.clone();
    tasks.spawn(async move {
        while let Some(update) = updates.recv().await {
            if report(&pilot, update).await.is_err() {
                return;
            }
        }
    });
    Ok(tasks)
}

async fn report(pilot: &WorldHandle, update: Update) -> Result<(), Closed> {
    let mut batch = Batch::new();
    for change in update.changes {
        batch.set_keys(change.source, change.keys, change.failure);
    }
    match batch.is_empty() {
        true => Ok(()),
        false => pilot.commit(batch).await,
    }
}

fn metrics(outcomes: &Outcomes) -> Vec<Metric> {
    let (succeeded, failed) = outcomes.counts();
    vec![
        Metric::counter(
            "pilot_jwks_resolver_network_fetch_success_total",
            "Successful fetches of the keys of token issuers",
            succeeded,
        ),
        Metric::counter(
            "pilot_jwks_resolver_network_fetch_fail_total",
            "Failed fetches of the keys of token issuers",
            failed,
        ),
    ]
}
