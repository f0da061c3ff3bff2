//! The store's sides: the API before it, the sources' join that follows it, and the statuses that go back.

use std::sync::Arc;
use std::time::Duration;

use crate::objects::Follower;
use anyhow::{Context, Result};
use api::Api;
use server::WorldHandle;
use settings::{Settings, StoreBackend};
use store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::intake::Voice;
use super::{home, status, tallies};

/// A store that is served.
pub(super) struct Front {
    api: Api,
    server: api::Server,
    store: Arc<dyn Store>,
    follower: Option<Follower>,
    statuses: Option<JoinHandle<()>>,
    tallies: Option<JoinHandle<()>>,
}

impl Front {
    /// Serves the API.
    pub(super) async fn open(settings: &Settings, store: Arc<dyn Store>) -> Result<Front> {
        let (api, server) = home::serve(settings, Arc::clone(&store)).await?;
        Ok(Front {
            api,
            server,
            store,
            follower: None,
            statuses: None,
            tallies: None,
        })
    }

    /// Says everything that is in the store, and follows it from then on.
    pub(super) async fn follow(&mut self, voice: Voice) -> Result<()> {
        let follower = Follower::start(Arc::clone(&self.store), voice).await;
        let follower = follower.context("the store was closed")?;
        tracing::debug!(tasks = follower.tasks(), "following the store");
        self.follower = Some(follower);
        Ok(())
    }

    /// Writes statuses of the store's objects from now on; where others have the same store, while this process leads.
    pub(super) async fn tell(
        &mut self,
        settings: &Settings,
        pilot: WorldHandle,
        stopped: watch::Receiver<bool>,
    ) -> Result<()> {
        let intents = pilot.feedback(status::planning(settings)).await?;
        let (leads, leading) = watch::channel(false);
        let led = {
            let pilot = pilot.clone();
            async move |leading| {
                drop(pilot.lead(leading).await);
                leads.send_replace(leading);
            }
        };
        let identity = identity();
        let (options, stats) = (crate::leadership::Options::new(identity.as_str()), Arc::default());
        let writer = status::StatusWriter(self.api.clone());
        self.statuses = Some(match home::chosen(settings) {
            StoreBackend::Etcd => {
                let lock = status::StoreLock(Arc::clone(&self.store));
                let tallies = tallies::Tallies {
                    store: Arc::clone(&self.store),
                    identity: identity.as_str().into(),
                    interval: settings.status_interval,
                };
                self.tallies = Some(tokio::spawn(tallies.run(pilot, leading, stopped.clone())));
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

    /// Ends it in good order, after `stopped` was said.
    pub(super) async fn end(self, grace: Duration) {
        home::end(self.server, grace).await;
        drop(self.follower);
        for task in [self.statuses, self.tallies].into_iter().flatten() {
            let _ = task.await;
        }
        self.store.close().await;
    }
}

/// What this process calls itself in the lease: the machine's name, so that people can tell who it is, and something that
/// no other process has had: two containers may have the same name and process id, and one that was started again must
/// not take itself for the one that crashed.
fn identity() -> String {
    format!("{}_{}", hostname(), uuid::Uuid::new_v4())
}

/// What this machine calls itself.
pub(super) fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
