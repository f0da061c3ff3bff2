//! A store with its API server, its source and its status writer.

use std::sync::Arc;
use std::time::Duration;

use crate::objects::Follower;
use anyhow::{Context, Result};
use api::Api;
use server::{Metric, ServingStatus, WorldHandle};
use settings::{Settings, StoreBackend};
use sources::ChangeSender;
use store::Store;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::ack_counts::{self, store::StoreBoard};
use super::{api_metrics, api_tls, backend, replica, store_backend, store_status};

/// A store that is served over the API.
pub(super) struct ApiServer {
    api: Api,
    server: api::Server,
    store: Arc<dyn Store>,
    follower: Option<Follower>,
    statuses: Option<JoinHandle<()>>,
    ack_counts: Option<JoinHandle<()>>,
    /// Renews certificates and shows the status of the store.
    tasks: JoinSet<()>,
}

impl ApiServer {
    pub(super) async fn open(
        settings: &Settings,
        store: Arc<dyn Store>,
        serving_status: ServingStatus,
    ) -> Result<ApiServer> {
        let mut opened = ApiServer::open_files(settings, store).await?;
        opened.tasks.spawn(show_write_failure(opened.store.write_failure(), serving_status));
        Ok(opened)
    }

    /// Serves a store that clients only read.
    pub(super) async fn open_files(settings: &Settings, store: Arc<dyn Store>) -> Result<ApiServer> {
        let (api, server) = store_backend::serve(settings, Arc::clone(&store)).await?;
        let mut tasks = JoinSet::new();
        if let Some(handle) = server.tls() {
            tasks.spawn(api_tls::renew(settings.clone(), handle));
        }
        Ok(ApiServer { api, server, store, follower: None, statuses: None, ack_counts: None, tasks })
    }

    /// The API.
    pub(super) fn api(&self) -> Api {
        self.api.clone()
    }

    /// Returns the API's metrics.
    pub(super) fn metrics(&self) -> impl Fn() -> Vec<Metric> + Send + Sync + 'static {
        let (api, store) = (self.api.clone(), Arc::clone(&self.store));
        move || {
            let mut metrics = api_metrics::of(&api.metrics());
            metrics.extend(store.size().iter().flat_map(api_metrics::of_store));
            metrics
        }
    }

    /// Starts the source that reads the store and follows it.
    pub(super) async fn follow(&mut self, changes: ChangeSender) -> Result<()> {
        let follower = Follower::start(Arc::clone(&self.store), changes).await;
        self.follower = Some(follower.context("the store was closed")?);
        Ok(())
    }

    /// Starts the status writer. If replicas share the store, only the leader writes.
    pub(super) async fn start_status_writer(
        &mut self,
        settings: &Settings,
        pilot: WorldHandle,
        stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let intents = pilot.feedback(store_status::planning(settings)).await?;
        let (leads, leading) = watch::channel([false; 2]);
        let led = {
            let pilot = pilot.clone();
            async move |leading| {
                drop(pilot.lead(leading).await);
                leads.send_replace([leading; 2]);
            }
        };
        let identity = replica::identity(&replica::hostname());
        let (options, stats) = (crate::leadership::Options::new(identity.as_str()), Arc::default());
        let writer = store_status::StatusWriter(self.api.clone());
        self.statuses = Some(match backend::chosen(settings) {
            StoreBackend::Etcd => {
                let lock = store_status::StoreLock(Arc::clone(&self.store));
                let identity: Arc<str> = identity.as_str().into();
                let ack_counts = ack_counts::AckCounts {
                    board: StoreBoard::new(Arc::clone(&self.store), identity.clone()),
                    identity,
                    interval: settings.status_interval,
                };
                self.ack_counts = Some(tokio::spawn(ack_counts.run(pilot, leading, stopped.clone())));
                tokio::spawn(async move {
                    crate::leadership::run(intents, writer, lock, options, stats, led, stopped).await
                })
            }
            _ => tokio::spawn(async move {
                crate::leadership::run(intents, writer, crate::leadership::Always, options, stats, led, stopped).await;
            }),
        });
        Ok(())
    }

    /// Stops gracefully, after `stopped` became true.
    pub(super) async fn end(mut self, grace: Duration) {
        self.tasks.abort_all();
        self.server.shutdown(grace).await;
        drop(self.follower);
        for task in [self.statuses, self.ack_counts].into_iter().flatten() {
            let _ = task.await;
        }
        self.store.close().await;
    }
}

/// Shows in `/ready` and `/metrics` whether the store can be written.
async fn show_write_failure(mut failure: watch::Receiver<Option<store::Error>>, serving_status: ServingStatus) {
    loop {
        let now = failure.borrow_and_update().clone();
        let writable = if now.is_none() { 1.0 } else { 0.0 };
        let gauge =
            Metric::gauge("rutter_store_writable", "Whether objects can be written to the store (0 or 1)", writable);
        let message = now.map(|error| format!("the store is read-only: {error}"));
        serving_status.set("store", message.into_iter().collect(), vec![gauge]);
        if failure.changed().await.is_err() {
            return;
        }
    }
}
