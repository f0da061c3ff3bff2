//! A supervisor with a real Envoy, in front of a backend.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent_core::environment::Environment;
use agent_core::exchange::Event;
use serde_json::{Value, json};
use supervisor::{Admin, Backoff, Configuration, Exit, Inputs, Proxy, Settings, Status, run};
use tempfile::TempDir;
use test_harness::run::{Backend, free_port, http, wait_for};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running supervisor.
pub(crate) struct Supervised {
    pub(crate) address: SocketAddr,
    pub(crate) backend: Backend,
    pub(crate) folder: TempDir,
    pub(crate) configurations: watch::Sender<Configuration>,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) status: watch::Receiver<Status>,
    pub(crate) task: JoinHandle<Exit>,
}

/// The settings of tests: short times, and an admin interface at a Unix socket.
pub(crate) fn settings(folder: &TempDir) -> Settings {
    let proxy = Proxy {
        binary: test_harness::envoy(&mut |_| ()).unwrap(),
        drain: Duration::from_secs(2),
        termination_drain: Duration::from_secs(3600),
        concurrency: 1,
        // It is the ID of the shared memory, although the admin interface is at a socket.
        admin_port: free_port(),
        file_flush_interval: None,
        file_flush_min_size_kb: 0,
        is_sidecar: true,
        is_ipv6: false,
        log_level: "warning".to_owned(),
        component_log_level: String::new(),
        is_root: false,
    };
    Settings {
        admin: Admin::Unix(folder.path().join("admin")),
        backoff: Backoff {
            first: Duration::from_millis(10),
            longest: Duration::from_secs(1),
            reset: Duration::from_millis(200),
        },
        minimum_drain: Duration::from_millis(10),
        count_interval: Duration::from_millis(10),
        ..Settings::from_environment(&Environment::default(), proxy).unwrap()
    }
}

impl Supervised {
    pub(crate) async fn start(change: impl FnOnce(&mut Settings)) -> Supervised {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(&folder);
        change(&mut settings);
        let backend = Backend::start("v1", "a").await.unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let first = configuration(&folder, bootstrap(&folder, address, backend.address(), "one"));
        let (configurations, configured) = watch::channel(first);
        let (events, asked) = mpsc::channel(4);
        let (stop, stopped) = watch::channel(false);
        let (reported, status) = watch::channel(Status::default());
        let inputs = Inputs { configurations: configured, events: asked, stop: stopped };
        let task = tokio::spawn(run(settings, inputs, reported));
        let supervised = Supervised { address, backend, folder, configurations, events, stop, status, task };
        supervised.answers("one").await;
        supervised
    }

    /// Sends a configuration, whose responses carry this text.
    pub(crate) fn configure(&self, text: &str) {
        let bootstrap = bootstrap(&self.folder, self.address, self.backend.address(), text);
        self.configurations.send_replace(configuration(&self.folder, bootstrap));
    }

    /// Waits until responses carry the text of a configuration.
    pub(crate) async fn answers(&self, text: &str) {
        let answered = || async {
            let response = http::get(self.address, "/", &[]).await.ok()?;
            (response.header("x-configuration") == text).then_some(())
        };
        wait_for(text, PATIENCE, answered).await.unwrap();
    }

    pub(crate) async fn until(&mut self, condition: impl FnMut(&Status) -> bool) -> Status {
        let reached = tokio::time::timeout(PATIENCE, self.status.wait_for(condition)).await;
        let reached = reached.map(|status| status.unwrap().clone());
        reached.unwrap_or_else(|_| panic!("the status is {:?}", self.status.borrow()))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.status.borrow().pid.unwrap()
    }

    pub(crate) async fn end(self) -> Exit {
        tokio::time::timeout(PATIENCE, self.task).await.unwrap().unwrap()
    }
}

pub(crate) fn configuration(folder: &TempDir, bootstrap: String) -> Configuration {
    Configuration { path: folder.path().join("proxy/envoy-rev.json"), text: Some(Arc::from(bootstrap)), overlay: None }
}

fn bootstrap(folder: &TempDir, address: SocketAddr, backend: SocketAddr, text: &str) -> String {
    let socket = |address: SocketAddr| json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}});
    let admin: PathBuf = folder.path().join("admin");
    let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
    let manager =
        "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    let hosts: Value = json!([{
        "name": "all", "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "backend", "timeout": "0s"}}],
        "response_headers_to_add": [{"header": {"key": "x-configuration", "value": text}}],
    }]);
    json!({
        "admin": {"address": {"pipe": {"path": admin}}},
        "static_resources": {
            "listeners": [{
                "name": "inbound", "address": socket(address), "traffic_direction": "INBOUND",
                "filter_chains": [{"filters": [{"name": "http", "typed_config": {
                    "@type": manager, "stat_prefix": "in", "route_config": {"virtual_hosts": hosts},
                    "http_filters": [{"name": "router", "typed_config": {"@type": router}}],
                }}]}],
            }],
            "clusters": [{
                "name": "backend", "type": "STATIC", "connect_timeout": "5s",
                "load_assignment": {
                    "cluster_name": "backend",
                    "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(backend)}}]}],
                },
            }],
        },
    })
    .to_string()
}
