//! The node agent: keeps the plugin installed, and repairs pods.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use notify::{RecursiveMode, Watcher};
use prometheus::{IntCounterVec, IntGauge, Opts, Registry, TextEncoder};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use crate::install::{self, InstallError};
use crate::kubernetes::client_of_environment;
use crate::repair::Repair;
use crate::settings::Settings;
use crate::web::serve;

/// The shortest time between two installations. Another program may undo ours again and again.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest time between two checks, in case that the file system does not report a change.
const CHECK: Duration = Duration::from_secs(60);

/// The agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Ambient mode is set.
    #[error("AMBIENT_ENABLED is true, but ambient mode is not supported; set it to false, or use Istio's CNI agent")]
    Ambient,
    /// The plugin cannot be installed or removed.
    #[error(transparent)]
    Install(#[from] InstallError),
    /// Directories cannot be watched.
    #[error("cannot watch the directories of the CNI plugin: {0}")]
    Watch(#[from] notify::Error),
    /// A port cannot be listened on.
    #[error("cannot open port {0}: {1}; end the program that uses it, or change the setting")]
    Listen(u16, std::io::Error),
    /// A metric exists twice.
    #[error("cannot register metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// There is no access to the Kubernetes API.
    #[error("cannot use the Kubernetes API: {0}; run the agent in a pod, or set REPAIR_ENABLED to false")]
    Kubernetes(String),
}

/// The metrics, with Istio's names.
struct Metrics {
    registry: Registry,
    installs: IntCounterVec,
    ready: IntGauge,
    repaired: IntCounterVec,
}

impl Metrics {
    fn new() -> Result<Metrics, prometheus::Error> {
        let registry = Registry::new();
        let installs =
            Opts::new("istio_cni_installs_total", "Total number of CNI plugins installed by the CNI installer");
        let repaired =
            Opts::new("istio_cni_repair_pods_repaired_total", "Total number of pods repaired by the repair controller");
        let metrics = Metrics {
            installs: IntCounterVec::new(installs, &["result"])?,
            ready: IntGauge::new("istio_cni_install_ready", "Whether the CNI plugin installation is ready or not")?,
            repaired: IntCounterVec::new(repaired, &["type", "result"])?,
            registry,
        };
        metrics.registry.register(Box::new(metrics.installs.clone()))?;
        metrics.registry.register(Box::new(metrics.ready.clone()))?;
        metrics.registry.register(Box::new(metrics.repaired.clone()))?;
        Ok(metrics)
    }
}

/// Runs the agent until `stop` is true or closed, then removes the plugin again.
///
/// # Errors
/// A port cannot be opened, the API cannot be used, or the plugin cannot be installed.
pub async fn run(settings: Settings, mut stop: watch::Receiver<bool>) -> Result<(), NodeError> {
    if settings.ambient_enabled {
        return Err(NodeError::Ambient);
    }
    let metrics = Metrics::new()?;
    let (ready, is_ready) = watch::channel(false);
    let mut tasks = JoinSet::new();
    ports(&settings, &metrics, is_ready, &stop, &mut tasks).await?;
    if settings.repair_enabled {
        let client = client_of_environment().await.map_err(|error| NodeError::Kubernetes(error.to_string()))?;
        let (repaired, done) = (metrics.repaired.clone(), std::collections::BTreeMap::new());
        tasks.spawn(Repair { settings: settings.clone(), client, repaired, done }.run(stop.clone()));
    }
    let kept = keep_installed(&settings, &metrics, &ready, &mut stop).await;
    ready.send_replace(false);
    let removed = blocking(&settings, install::remove).await;
    tasks.shutdown().await;
    kept?;
    removed?;
    tracing::info!("removed the CNI plugin from the node");
    Ok(())
}

async fn ports(
    settings: &Settings,
    metrics: &Metrics,
    ready: watch::Receiver<bool>,
    stop: &watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> Result<(), NodeError> {
    let health = move |path: &str| match (path, *ready.borrow()) {
        ("/healthz", _) | ("/readyz", true) => (StatusCode::OK, String::new()),
        ("/readyz", false) => (StatusCode::SERVICE_UNAVAILABLE, "the plugin is not installed\n".to_owned()),
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    tasks.spawn(serve(open(settings.readiness_port).await?, "readiness", health, stop.clone()));
    if settings.monitoring_port != 0 {
        let registry = metrics.registry.clone();
        let show = move |path: &str| match path {
            "/metrics" => (StatusCode::OK, TextEncoder::new().encode_to_string(&registry.gather()).unwrap_or_default()),
            _ => (StatusCode::NOT_FOUND, String::new()),
        };
        tasks.spawn(serve(open(settings.monitoring_port).await?, "metrics", show, stop.clone()));
    }
    Ok(())
}

async fn open(port: u16) -> Result<TcpListener, NodeError> {
    listeners::bind_any(port).await.map_err(|error| NodeError::Listen(port, error))
}

/// Installs the plugin, and again when a part of it changes, until `stop` is true or closed.
async fn keep_installed(
    settings: &Settings,
    metrics: &Metrics,
    ready: &watch::Sender<bool>,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), NodeError> {
    let changed = Arc::new(Notify::new());
    let notify = changed.clone();
    // Events are not distinguished: to install again is cheap, and writes nothing if nothing is missing.
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            notify.notify_one();
        }
    })?;
    for directory in [&settings.net_dir, &settings.bin_target_dir, &settings.service_account] {
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
    }
    let mut first = true;
    loop {
        let installed = blocking(settings, install::install).await;
        let is_installed = matches!(installed, Ok(Some(_)));
        match installed {
            Ok(Some(_)) if !*ready.borrow() => metrics.installs.with_label_values(&["SUCCESS"]).inc(),
            Ok(Some(_)) => {}
            Ok(None) => tracing::warn!(
                directory = %settings.net_dir.display(),
                "there is no CNI configuration yet that the plugin could be added to; waiting for it"
            ),
            Err(error) => {
                metrics.installs.with_label_values(&[error.result()]).inc();
                if first {
                    return Err(error.into());
                }
                tracing::error!("cannot install the plugin: {error}");
            }
        }
        first = false;
        metrics.ready.set(i64::from(is_installed));
        ready.send_replace(is_installed);
        let wait = async {
            tokio::time::sleep(PAUSE).await;
            let _ = tokio::time::timeout(CHECK, changed.notified()).await;
        };
        tokio::select! {
            () = wait => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
}

async fn blocking<T: Send + 'static>(
    settings: &Settings,
    work: fn(&Settings) -> Result<T, InstallError>,
) -> Result<T, InstallError> {
    let settings = settings.clone();
    let done = tokio::task::spawn_blocking(move || work(&settings)).await;
    done.unwrap_or_else(|error| {
        let reason = std::io::Error::other(error);
        Err(InstallError::File { what: "install", path: std::path::PathBuf::new(), reason })
    })
}
