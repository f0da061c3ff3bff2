//! A Kubernetes API as the home of all objects: read as a source, its objects' statuses written by one leader.

mod client;
mod lock;
mod status;

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use resources::ParseOptions;
use server::Pilot;
use settings::Settings;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::intake::Voice;
use lock::LeaseLock;
use status::StatusWriter;

pub(super) use client::{connect, in_a_pod};

/// Changes that may wait; the source waits when there are more.
const QUEUE: usize = 8;
/// The lease of whoever writes statuses, by the name that istiod gives it.
const STATUS_LEASE: &str = "istio-status-leader";

/// The home, in use.
pub(super) struct Cluster {
    client: Client,
    following: JoinSet<()>,
    writing: JoinSet<()>,
}

impl Cluster {
    /// The API that a client leads to.
    pub(super) fn new(client: Client) -> Cluster {
        Cluster {
            client,
            following: JoinSet::new(),
            writing: JoinSet::new(),
        }
    }

    /// Begins to say what is there.
    pub(super) fn follow(&mut self, voice: Voice) {
        let (sender, mut changes) = mpsc::channel(QUEUE);
        let client = self.client.clone();
        self.following
            .spawn(sources::kubernetes::follow(client, ParseOptions::default(), sender));
        self.following.spawn(async move {
            while let Some(change) = changes.recv().await {
                if voice.say(change, Vec::new()).await.is_err() {
                    return;
                }
            }
        });
    }

    /// Writes statuses from now on, while this replica leads.
    pub(super) async fn tell(
        &mut self,
        settings: &Settings,
        pilot: Pilot,
        stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let planned = plan::Settings {
            interval: settings.status_interval,
            ..plan::Settings::default()
        };
        let intents = pilot.feedback(planned).await?;
        let led = async move |leading| drop(pilot.lead(leading).await);
        let options = sinks::Options::new(identity(settings));
        let writer = StatusWriter::new(self.client.clone());
        let lock = LeaseLock::new(self.client.clone(), &settings.namespace, STATUS_LEASE);
        self.writing
            .spawn(async move { sinks::run(intents, writer, lock, options, Arc::default(), led, stopped).await });
        Ok(())
    }

    /// Ends it in good order, after `stopped` was said.
    pub(super) async fn end(mut self) {
        self.following.shutdown().await;
        while self.writing.join_next().await.is_some() {}
    }
}

/// What this replica calls itself in leases: the pod's name, and something that no other process ever had.
fn identity(settings: &Settings) -> String {
    let name = match settings.pod_name.as_str() {
        "" => super::front::hostname(),
        name => name.to_owned(),
    };
    format!("{name}_{}", uuid::Uuid::new_v4())
}
