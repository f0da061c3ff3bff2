//! The xDS relay between Envoy or a gRPC application and the control plane.
//!
//! ```text
//! proxy ──requests──► stream ──────────────► control plane
//!   ▲                   ▲ own requests, ACKs       │
//!   └──── forward ◄─────┴──── own ◄──── responses ─┘
//!            ▲                 └► names, roots     │
//!            └──── Wasm modules ◄── extensions ────┘
//! ```
//!
//! Each stream of a proxy (`stream`) has a connection and a stream to the control plane. If either ends, so does the other, and the
//! proxy reconnects. Messages are forwarded in the buffers in which they were received (`grpc`); only their type, version and nonce are
//! read (`envelope`). The agent's own subscriptions (`own`) share the stream; their responses are not forwarded. Extension
//! configurations with remote Wasm modules are changed to local files (`wasm`).
//!
//! Queues have room for two messages in each direction. If one side does not read, the relay stops reading from the other.

mod envelope;
mod grpc;
pub mod grpc_bootstrap;
mod listener;
mod metrics;
mod own;
mod stream;
pub mod wasm;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use agent_core::environment::{Environment, EnvironmentError};
use agent_core::exchange::{Health, MeshRoots, Names};
use agent_core::upstream::Upstream;
use prometheus::Registry;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use metrics::Metrics;
use own::Own;
use stream::Hub;
use wasm::Modules;

#[doc(hidden)]
pub use envelope::fuzz as fuzz_envelope;

/// The maximum number of streams.
const MAX_STREAMS: usize = 64;

/// The settings of the relay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The Unix socket that proxies connect to.
    pub socket: PathBuf,
    /// Whether to subscribe to the name table. The agent of a gateway sets this by `ISTIO_META_ENABLE_DNS_SERVER`.
    pub names: bool,
    /// Whether to subscribe to the trust roots of the mesh (`PROXY_CONFIG_XDS_AGENT`).
    pub roots: bool,
    /// The settings of Wasm modules.
    pub wasm: wasm::Settings,
}

impl Settings {
    /// The settings of a sidecar's agent.
    ///
    /// # Errors
    /// A variable has a value that cannot be used.
    pub fn from_environment(environment: &Environment) -> Result<Settings, EnvironmentError> {
        Ok(Settings {
            socket: PathBuf::from("etc/istio/proxy/XDS"),
            names: environment.flag("ISTIO_META_DNS_CAPTURE", false)?
                || environment.flag("ISTIO_META_ENABLE_DNS_SERVER", false)?,
            roots: environment.flag("PROXY_CONFIG_XDS_AGENT", false)?,
            wasm: wasm::Settings::from_environment(environment)?,
        })
    }
}

/// The channels to other parts of the agent.
pub struct Channels {
    /// Receives the name table.
    pub names: watch::Sender<Names>,
    /// Receives the trust roots of the mesh.
    pub roots: watch::Sender<MeshRoots>,
    /// The health of the application, which is reported to the control plane.
    pub health: watch::Receiver<Health>,
}

/// The reason why the relay cannot start.
#[derive(thiserror::Error, Debug)]
pub enum RelayError {
    /// The socket cannot be bound.
    #[error("cannot listen on the xDS socket {path}: {error}")]
    Socket {
        /// The path of the socket.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The metrics cannot be registered.
    #[error("cannot register the metrics of the xDS relay: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// A running relay. It ends when it is dropped, or with its `stop` channel.
pub struct Relay {
    connected: watch::Receiver<usize>,
    tasks: JoinSet<()>,
    // Ends the streams.
    _stop: watch::Sender<bool>,
}

impl Relay {
    /// The number of streams that the control plane answers. It is connected if this is not zero.
    #[must_use]
    pub fn connected(&self) -> watch::Receiver<usize> {
        self.connected.clone()
    }

    /// Waits until the relay has stopped.
    pub async fn stopped(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Starts the relay.
///
/// # Errors
/// The socket cannot be bound, or the registry has metrics of the relay already.
pub fn start(
    settings: &Settings,
    upstream: Upstream,
    channels: Channels,
    registry: &Registry,
    mut stop: watch::Receiver<bool>,
) -> Result<Relay, RelayError> {
    let metrics = Metrics::new(registry)?;
    let listener = listener::bind(&settings.socket)
        .map_err(|error| RelayError::Socket { path: settings.socket.clone(), error })?;
    let modules = Arc::new(Modules::new(settings.wasm.clone(), metrics.wasm.clone()));
    let (connected, connected_count) = watch::channel(0);
    let (ended, own_stop) = watch::channel(false);
    let hub = Arc::new(Hub {
        upstream,
        own: Own { names: settings.names.then_some(channels.names), roots: settings.roots.then_some(channels.roots) },
        health: channels.health,
        modules: modules.clone(),
        metrics,
        connected,
        streams: Arc::new(Semaphore::new(MAX_STREAMS)),
        last_id: AtomicU64::new(1),
        stop: own_stop.clone(),
    });
    tracing::info!(socket = %settings.socket.display(), address = hub.upstream.address, "the xDS relay listens");
    let (socket, ending) = (settings.socket.clone(), ended.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => { ending.send_replace(true); }
            () = ending.closed() => {}
        }
        // The next start replaces a socket that cannot be removed.
        let _ = std::fs::remove_file(socket);
    });
    tasks.spawn(listener::serve(listener, hub));
    tasks.spawn(modules.purge(own_stop));
    Ok(Relay { connected: connected_count, tasks, _stop: ended })
}
