//! Decides whether the proxy is ready.
//!
//! The proxy is ready when Envoy accepted clusters and listeners from the control plane and serves requests, the DNS proxy has a
//! name table, and the files of proxyless gRPC exist; and as long as it does not drain. Envoy is asked until it is ready for the
//! first time: it stays ready then. Probes that come together share one request to Envoy, and its failure counts for a moment, so
//! that many probes cost little.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use agent_core::exchange::Names;
use prometheus::Gauge;
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use crate::client::{Get, GetError, read};

/// The time in which Envoy must answer.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The time for which a failure counts without asking Envoy again.
const PAUSE: Duration = Duration::from_millis(100);
/// The most bytes of Envoy's statistics that are read.
const MAX_STATS: usize = 64 << 10;
/// Envoy's statistics that decide: updates of clusters and listeners, the state of the server and of its workers.
const FILTER: &str = "^(cluster_manager.cds.update_(success%7Crejected)%7Clistener_manager.lds.update_(success%7Crejected)\
                      %7Cserver.state%7Clistener_manager.workers_started)$";

/// The reason why the proxy is not ready.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum NotReady {
    /// Envoy cannot be asked.
    #[error("Envoy's statistics cannot be read: {0}")]
    Statistics(String),
    /// Envoy has no configuration.
    #[error("config not received from XDS server (is Istiod running?): {0}")]
    NoConfiguration(Updates),
    /// Envoy rejected a part of its configuration.
    #[error("config received from XDS server, but was rejected: {0}")]
    Rejected(Updates),
    /// Envoy has only a part of its configuration.
    #[error("config not fully received from XDS server: {0}")]
    Incomplete(Updates),
    /// Envoy does not serve requests.
    #[error("server is not live, current state is: {0}")]
    NotLive(&'static str),
    /// Envoy's workers have not started.
    #[error("workers have not yet started")]
    Workers,
    /// The DNS proxy has no name table.
    #[error("istio DNS capture is turned ON and DNS lookup table is not ready yet")]
    NoNames,
    /// A file of proxyless gRPC is missing, or is not valid.
    #[error("the bootstrap of proxyless gRPC is not ready: {0}")]
    Bootstrap(String),
    /// The proxy drains its connections, or does not run.
    #[error("{0}")]
    Obstacle(&'static str),
}

/// The numbers of configuration updates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Updates {
    cds: (u64, u64),
    lds: (u64, u64),
}

impl std::fmt::Display for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Updates { cds, lds } = self;
        write!(f, "cds updates: {} successful, {} rejected; ", cds.0, cds.1)?;
        write!(f, "lds updates: {} successful, {} rejected", lds.0, lds.1)
    }
}

/// The readiness of Envoy.
#[derive(Debug)]
pub struct EnvoyReadiness {
    admin: SocketAddr,
    ready: OnceLock<()>,
    last: Mutex<Option<(Instant, NotReady)>>,
}

impl EnvoyReadiness {
    /// The readiness of an Envoy with this admin interface.
    #[must_use]
    pub fn new(admin: SocketAddr) -> EnvoyReadiness {
        EnvoyReadiness { admin, ready: OnceLock::new(), last: Mutex::new(None) }
    }

    /// Checks whether Envoy is, or was, ready.
    ///
    /// # Errors
    /// Envoy is not ready yet.
    pub async fn check(&self) -> Result<(), NotReady> {
        if self.ready.get().is_some() {
            return Ok(());
        }
        let mut last = self.last.lock().await;
        if let Some((_, reason)) = last.as_ref().filter(|(at, _)| at.elapsed() < PAUSE) {
            return Err(reason.clone());
        }
        if self.ready.get().is_none() {
            let checked = self.statistics().await.and_then(|text| is_ready(&text));
            *last = checked.as_ref().err().map(|reason| (Instant::now(), reason.clone()));
            checked?;
        }
        self.ready.get_or_init(|| ());
        Ok(())
    }

    async fn statistics(&self) -> Result<String, NotReady> {
        let failed = |reason: String| NotReady::Statistics(reason);
        let ask = async {
            let get = Get::new(&format!("http://{}/stats?usedonly&filter={FILTER}", self.admin))?;
            let (response, _connection) = get.send().await?;
            Ok::<_, GetError>((response.status(), read(response.into_body(), MAX_STATS).await.0))
        };
        let asked = timeout(TIMEOUT, ask).await.map_err(|_| failed("no response within 3s".to_owned()))?;
        let (status, body) = asked.map_err(|error| failed(error.to_string()))?;
        if !status.is_success() {
            return Err(failed(format!("status {status}")));
        }
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}

/// Decides whether Envoy is ready by its statistics.
///
/// # Errors
/// Envoy is not ready.
pub fn is_ready(statistics: &str) -> Result<(), NotReady> {
    let number = |name: &str| {
        let value = |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok();
        statistics.lines().find_map(value)
    };
    let updates = |kind: &str| {
        let count = |result: &str| number(&format!("{kind}.update_{result}")).unwrap_or(0);
        (count("success"), count("rejected"))
    };
    let updates = Updates { cds: updates("cluster_manager.cds"), lds: updates("listener_manager.lds") };
    match (updates.cds.0 > 0, updates.lds.0 > 0) {
        (true, true) => {}
        (false, false) => return Err(NotReady::NoConfiguration(updates)),
        _ if updates.cds.1 + updates.lds.1 > 0 => return Err(NotReady::Rejected(updates)),
        _ => return Err(NotReady::Incomplete(updates)),
    }
    match number("server.state") {
        Some(0) => {}
        Some(1) => return Err(NotReady::NotLive("DRAINING")),
        Some(2) => return Err(NotReady::NotLive("PRE_INITIALIZING")),
        Some(3) => return Err(NotReady::NotLive("INITIALIZING")),
        _ => return Err(NotReady::NotLive("UNKNOWN")),
    }
    if number("listener_manager.workers_started") == Some(1) { Ok(()) } else { Err(NotReady::Workers) }
}

/// The readiness of the whole proxy.
#[derive(Debug)]
pub(crate) struct Readiness {
    pub(crate) envoy: Option<EnvoyReadiness>,
    pub(crate) bootstrap: Option<PathBuf>,
    /// The files that the bootstrap of proxyless gRPC names.
    pub(crate) files: OnceLock<Vec<PathBuf>>,
    pub(crate) names: Option<watch::Receiver<Names>>,
    pub(crate) obstacle: watch::Receiver<Option<&'static str>>,
    pub(crate) started: Instant,
    /// The seconds from the start until the proxy was ready first.
    pub(crate) startup: Gauge,
}

impl Readiness {
    pub(crate) async fn check(&self) -> Result<(), NotReady> {
        if let Some(obstacle) = *self.obstacle.borrow() {
            return Err(NotReady::Obstacle(obstacle));
        }
        if let Some(envoy) = &self.envoy {
            envoy.check().await?;
        }
        self.check_files()?;
        if self.names.as_ref().is_some_and(|names| names.borrow().is_none()) {
            return Err(NotReady::NoNames);
        }
        if self.startup.get() == 0.0 {
            let elapsed = self.started.elapsed();
            self.startup.set(elapsed.as_secs_f64());
            tracing::info!(?elapsed, "the proxy is ready");
        }
        Ok(())
    }

    fn check_files(&self) -> Result<(), NotReady> {
        let Some(bootstrap) = &self.bootstrap else { return Ok(()) };
        let failed = |reason: &dyn std::fmt::Display| NotReady::Bootstrap(format!("{}: {reason}", bootstrap.display()));
        let files = match self.files.get() {
            Some(files) => files,
            None => {
                let bytes = std::fs::read(bootstrap).map_err(|error| failed(&error))?;
                let files = watched_files(&bytes).map_err(|error| failed(&error))?;
                self.files.get_or_init(|| files)
            }
        };
        match files.iter().find(|file| !file.exists()) {
            Some(missing) => Err(failed(&format!("{} does not exist", missing.display()))),
            None => Ok(()),
        }
    }
}

/// The files of keys and certificates that a bootstrap of proxyless gRPC names.
fn watched_files(bootstrap: &[u8]) -> Result<Vec<PathBuf>, serde_json::Error> {
    let bootstrap: serde_json::Value = serde_json::from_slice(bootstrap)?;
    let providers = bootstrap["certificate_providers"].as_object().into_iter().flatten();
    let watchers = providers.filter(|(_, provider)| provider["plugin_name"] == "file_watcher");
    let names = ["certificate_file", "private_key_file", "ca_certificate_file"];
    let files = watchers.flat_map(|(_, provider)| names.map(|name| provider["config"][name].as_str()));
    Ok(files.flatten().filter(|file| !file.is_empty()).map(PathBuf::from).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statistics_decide() {
        let text = |cds: (u64, u64), lds: (u64, u64), state: u64, workers: u64| {
            format!(
                "cluster_manager.cds.update_rejected: {}\ncluster_manager.cds.update_success: {}\n\
                 listener_manager.lds.update_rejected: {}\nlistener_manager.lds.update_success: {}\n\
                 listener_manager.workers_started: {workers}\nserver.state: {state}\n",
                cds.1, cds.0, lds.1, lds.0
            )
        };
        for (statistics, expected) in [
            (text((1, 0), (1, 0), 0, 1), ""),
            (text((3, 2), (1, 1), 0, 1), ""),
            (
                String::new(),
                "config not received from XDS server (is Istiod running?): cds updates: 0 successful, 0 rejected; \
                 lds updates: 0 successful, 0 rejected",
            ),
            (
                text((1, 0), (0, 1), 0, 1),
                "config received from XDS server, but was rejected: cds updates: 1 successful, 0 rejected; \
                 lds updates: 0 successful, 1 rejected",
            ),
            (
                text((1, 0), (0, 0), 0, 1),
                "config not fully received from XDS server: cds updates: 1 successful, 0 rejected; \
                 lds updates: 0 successful, 0 rejected",
            ),
            (text((1, 0), (1, 0), 2, 1), "server is not live, current state is: PRE_INITIALIZING"),
            (text((1, 0), (1, 0), 1, 1), "server is not live, current state is: DRAINING"),
            (text((1, 0), (1, 0), 0, 0), "workers have not yet started"),
        ] {
            let found = is_ready(&statistics).err().map(|reason| reason.to_string()).unwrap_or_default();
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn files_of_the_bootstrap_are_found() {
        let text = br#"{"certificate_providers":{"default":{"plugin_name":"file_watcher","config":{"certificate_file":"/a",
            "private_key_file":"/b","ca_certificate_file":"/c"}},"other":{"plugin_name":"x","config":{"certificate_file":"/d"}}}}"#;
        assert_eq!(watched_files(text).unwrap(), ["/a", "/b", "/c"].map(PathBuf::from));
        assert!(watched_files(b"{}").unwrap().is_empty() && watched_files(b"[1]").unwrap().is_empty());
        assert!(watched_files(b"{").is_err());
    }

    proptest! {
        #[test]
        fn any_statistics_are_read(text in "((server.state|listener_manager.[a-z_.]{0,20})[: 0-9a-z]{0,5}\n?){0,20}", json in any::<Vec<u8>>()) {
            prop_assert!(is_ready(&text).is_err() || text.contains("update_success"));
            let _ = watched_files(&json);
        }
    }
}
