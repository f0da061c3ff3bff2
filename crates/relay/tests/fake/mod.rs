//! A small control plane, a web server, and a relay between a proxy and the control plane.
#![allow(dead_code, unreachable_pub)]

pub mod ads;
pub mod client;
pub mod web;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use agent_core::environment::Environment;
use agent_core::exchange::{Health, MeshRoots, Names};
use agent_core::upstream::{Roots, Upstream};
use prometheus::Registry;
use relay::{Channels, Relay, Settings};
use test_harness::run::{Envoy, wait_for};
use tokio::sync::watch;

/// The timeout of a step, sufficient for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
pub const NAMES: &str = "type.googleapis.com/istio.networking.nds.v1.NameTable";
pub const ROOTS: &str = "type.googleapis.com/istio.mesh.v1alpha1.ProxyConfig";
pub const HEALTH: &str = "type.googleapis.com/istio.v1.HealthInformation";
pub const LISTENERS: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
pub const EXTENSIONS: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";

/// A relay in a directory of its own.
pub struct Running {
    pub relay: Relay,
    pub names: watch::Receiver<Names>,
    pub roots: watch::Receiver<MeshRoots>,
    pub health: watch::Sender<Health>,
    pub registry: Registry,
    pub stop: watch::Sender<bool>,
    pub directory: tempfile::TempDir,
}

impl Running {
    pub fn start(control_plane: SocketAddr, change: impl FnOnce(&mut Settings)) -> Running {
        let directory = tempfile::tempdir().unwrap();
        let token = directory.path().join("token");
        std::fs::write(&token, "secret").unwrap();
        let mut settings = Settings::from_environment(&Environment::default()).unwrap();
        settings.socket = directory.path().join("proxy/XDS");
        settings.wasm.directory = directory.path().join("wasm");
        settings.wasm.backoff = Duration::from_millis(1);
        change(&mut settings);
        let upstream = upstream(control_plane, Some(token));
        let (names, names_receiver) = watch::channel(None);
        let (roots, roots_receiver) = watch::channel(MeshRoots::default());
        let (health, health_receiver) = watch::channel(Health::Unknown);
        let (stop, stopped) = watch::channel(false);
        let registry = Registry::new();
        let channels = Channels { names, roots, health: health_receiver };
        let relay = relay::start(&settings, upstream, channels, &registry, stopped).unwrap();
        Running { relay, names: names_receiver, roots: roots_receiver, health, registry, stop, directory }
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("proxy/XDS")
    }

    /// The sum of a metric's values with this label value.
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let families = self.registry.gather();
        let metrics = families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric());
        let labelled =
            metrics.filter(|metric| label.is_empty() || metric.get_label().iter().any(|pair| pair.value() == label));
        labelled.map(|metric| metric.get_counter().get_value() + metric.get_gauge().get_value()).sum()
    }
}

pub fn upstream(control_plane: SocketAddr, token: Option<PathBuf>) -> Upstream {
    Upstream {
        address: control_plane.to_string(),
        roots: Roots::PlainText,
        server_name: None,
        certificate: None,
        token,
        cluster: "east".to_owned(),
        headers: vec![("X-Team".to_owned(), "a".to_owned())],
    }
}

/// The pinned Envoy, installed if it is missing.
pub fn envoy_binary() -> PathBuf {
    test_harness::envoy(&mut |line| eprintln!("{line}")).unwrap_or_else(|error| panic!("{error}"))
}

/// Waits for a condition. Shows Envoy's log if it is not met.
pub async fn until<T>(what: &str, envoy: Option<&Envoy>, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = std::time::Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        if started.elapsed() > PATIENCE {
            panic!("{what}: {}", envoy.map(|envoy| envoy.log().unwrap_or_default()).unwrap_or_default());
        }
        let _ = wait_for("a moment", Duration::from_millis(20), || async { None::<()> }).await;
    }
}

/// The debug build of the control plane: the one of `RUTTER_BIN`, or of this repository.
pub fn rutter() -> Option<PathBuf> {
    let built = std::env::current_exe().ok()?.ancestors().nth(2)?.join("rutter");
    let path = std::env::var_os("RUTTER_BIN").map_or(built, PathBuf::from);
    path.exists().then_some(path)
}
