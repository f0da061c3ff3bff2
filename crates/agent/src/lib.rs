//! The running agent: its parts, their order of start, and their end.
//!
//! ```text
//! files, environment ─► surroundings ─► bootstrap ─► supervisor ─► Envoy
//!                                                        ▲          │ │
//!                               status port ──drain, quit┘      SDS │ │ xDS
//! control plane ◄─certificates── identity ◄─────────────────────────┘ │
//!               ◄─configuration─ relay ◄──────────────────────────────┘
//!                                  └─name table─► DNS proxy
//! ```
//!
//! [`run`] starts the parts in the order of Istio's agent, follows the files on which the bootstrap depends, and ends the parts
//! after Envoy: while Envoy drains, it still needs certificates and configuration.

mod arguments;
mod discovery;
mod interfaces;
mod parts;
mod surroundings;

use std::sync::Arc;
use std::time::Duration;

use agent_core::environment::Environment;
use anyhow::{Context as _, Result};
use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;
use supervisor::{Configuration, Exit, Inputs, Status};
use tokio::sync::{mpsc, watch};

pub use arguments::Arguments;
use parts::Parts;
use surroundings::{Files, Fixed, Proxy};

/// The prefix of the agent's metrics.
const PREFIX: &str = "istio_agent";
/// The interval at which the files on which the bootstrap depends are read. The kubelet updates them within a minute.
const FOLLOW: Duration = Duration::from_secs(5);
/// The capacity of the queue of requests of the status port. All of them lead to the same end.
const EVENTS: usize = 4;

/// Runs the agent until `stop` is true, or until Envoy ends by itself. Returns the exit code.
///
/// # Errors
/// A part cannot start. The error says which, and what to do.
pub async fn run(arguments: Arguments, environment: Environment, stop: watch::Receiver<bool>) -> Result<u8> {
    let registry = Registry::new_custom(Some(PREFIX.to_owned()), None)?;
    registry.register(Box::new(ProcessCollector::for_self()))?;
    let files = Files::read(&arguments, &environment);
    let mut fixed = Fixed { arguments: &arguments, environment: &environment, serves_only_files: false };
    let first = fixed.describe(&files);
    tracing::info!(id = first.node.id, control_plane = %first.settings.discovery_address, "the proxy");

    let (parts_stop, parts_stopping) = watch::channel(false);
    let (events, received_events) = mpsc::channel(EVENTS);
    let (draining, is_draining) = watch::channel(false);
    let parts = Parts::start(&fixed, &first, &registry, (events, is_draining), parts_stopping).await?;
    fixed.serves_only_files = parts.serves_only_files();
    let proxy = if fixed.serves_only_files { fixed.describe(&files) } else { first };
    parts.write_grpc_bootstrap(&proxy, &environment)?;

    let (configurations, followed) = watch::channel(configuration(&proxy)?);
    let (status, statuses) = watch::channel(Status::default());
    let settings = parts::supervisor_settings(&arguments, &environment, &proxy)?;
    let inputs = Inputs { configurations: followed, events: parts::forwarded(received_events), stop };
    let exit = tokio::select! {
        exit = supervisor::run(settings, inputs, status) => exit,
        never = follow(&fixed, files, proxy, &configurations) => never,
        never = follow_draining(statuses, draining) => never,
    };
    if let Exit::CannotStart(error) = &exit {
        tracing::error!(%error, "Envoy cannot be started");
    }
    parts_stop.send_replace(true);
    parts.ended().await;
    Ok(exit.code())
}

/// The configuration of Envoy.
fn configuration(proxy: &Proxy) -> Result<Configuration> {
    let (path, text) = proxy.configuration().context("cannot make the bootstrap of Envoy")?;
    Ok(Configuration { path: path.into(), text: text.map(Arc::from), overlay: proxy.overlay.as_deref().map(Arc::from) })
}

/// Makes a new configuration when a file changes. Never ends.
async fn follow(
    fixed: &Fixed<'_>,
    mut files: Files,
    mut proxy: Proxy,
    configurations: &watch::Sender<Configuration>,
) -> Exit {
    let mut ticks = tokio::time::interval(FOLLOW);
    loop {
        ticks.tick().await;
        let read = Files::read(fixed.arguments, fixed.environment);
        if read == files {
            continue;
        }
        files = read;
        let described = fixed.describe(&files);
        if described.settings.discovery_address != proxy.settings.discovery_address {
            let address = &described.settings.discovery_address;
            tracing::warn!(%address, "the address of the control plane changed; it is used when the agent starts again");
        }
        proxy = described;
        match configuration(&proxy) {
            Ok(new) => {
                configurations.send_if_modified(|current| {
                    let differs = *current != new;
                    *current = new;
                    differs
                });
            }
            Err(error) => tracing::error!("{error:#}; the earlier bootstrap stays in use"),
        }
    }
}

/// Reports to the status port that Envoy drains: it is not ready then. Never ends.
async fn follow_draining(mut statuses: watch::Receiver<Status>, draining: watch::Sender<bool>) -> Exit {
    while statuses.changed().await.is_ok() {
        draining.send_replace(statuses.borrow_and_update().draining);
    }
    std::future::pending().await
}
