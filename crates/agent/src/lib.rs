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
mod lookup;
mod parts;
mod platform;
mod surroundings;

use std::sync::Arc;
use std::time::Duration;

use agent_core::environment::Environment;
use anyhow::{Context as _, Result};
use prometheus::Registry;
use prometheus::process_collector::ProcessCollector;
use supervisor::{Configuration, Exit, Inputs, Status};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

pub use arguments::Arguments;
use lookup::Lookups;
use parts::Parts;
pub use surroundings::status_port;
use surroundings::{Files, Fixed, Proxy};

/// The prefix of the agent's metrics.
const PREFIX: &str = "istio_agent";
/// The interval at which the files on which the bootstrap depends are read. The kubelet updates them within a minute.
const FOLLOW: Duration = Duration::from_secs(5);
/// The time in which the parts end after Envoy.
const END: Duration = Duration::from_secs(5);
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
    let mut fixed = Fixed {
        arguments: &arguments,
        environment: &environment,
        serves_only_files: false,
        bound: None,
        lookups: Lookups::default(),
        platform: platform::discover(&environment).await,
    };
    let first = fixed.describe(&files);
    tracing::info!(id = first.node.id, control_plane = %first.settings.discovery_address, "the proxy");

    let (parts_stop, parts_stopping) = watch::channel(false);
    let (events, received_events) = mpsc::channel(EVENTS);
    let (obstacle, obstacles) = watch::channel(None);
    let parts = Parts::start(&fixed, &first, &registry, (events, obstacles), parts_stopping).await?;
    fixed.serves_only_files = parts.serves_only_files();
    let proxy = if fixed.serves_only_files { fixed.describe(&files) } else { first };
    parts.write_grpc_bootstrap(&proxy, &environment)?;

    fixed.bound = Some(proxy.settings.clone());
    let (configurations, followed) = watch::channel(configuration(&proxy)?);
    let (status, statuses) = watch::channel(Status::default());
    let settings = parts::supervisor_settings(&arguments, &environment, &proxy)?;
    let inputs = Inputs { configurations: followed, events: received_events, stop };
    let exit = tokio::select! {
        exit = supervisor::run(settings, inputs, status) => exit,
        never = follow(&fixed, files, &configurations) => never,
        never = follow_status(statuses, obstacle) => never,
    };
    if let Exit::CannotStart(error) = &exit {
        tracing::error!(%error, "Envoy cannot be started");
    }
    parts_stop.send_replace(true);
    if timeout(END, parts.ended()).await.is_err() {
        tracing::warn!("requests to the agent are still open; they are dropped");
    }
    Ok(exit.code())
}

/// The configuration of Envoy.
fn configuration(proxy: &Proxy) -> Result<Configuration> {
    let (path, text) = proxy.configuration().context("cannot make the bootstrap of Envoy")?;
    Ok(Configuration { path: path.into(), text: text.map(Arc::from), overlay: proxy.overlay.as_deref().map(Arc::from) })
}

/// Makes a new configuration when a file changes. Never ends.
async fn follow(fixed: &Fixed<'_>, mut files: Files, configurations: &watch::Sender<Configuration>) -> Exit {
    let mut ticks = tokio::time::interval(FOLLOW);
    let mut last = files.clone();
    loop {
        ticks.tick().await;
        let read = Files::read(fixed.arguments, fixed.environment);
        if read == last {
            continue;
        }
        last = read.clone();
        files = read.over(files);
        match configuration(&fixed.describe(&files)) {
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

/// Reports to the status port why the proxy is not ready, if Envoy drains or has crashed. Never ends.
async fn follow_status(mut statuses: watch::Receiver<Status>, obstacle: watch::Sender<Option<&'static str>>) -> Exit {
    while statuses.changed().await.is_ok() {
        let status = statuses.borrow_and_update();
        obstacle.send_replace(match &*status {
            Status { draining: true, .. } => Some("the proxy is draining"),
            Status { pid: None, failure: Some(_), .. } => Some("Envoy has failed and does not run"),
            _ => None,
        });
    }
    std::future::pending().await
}
