//! A real Envoy as a child process, with a bootstrap that connects to the control plane, and its admin interface.

mod bootstrap;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::{Result, http, wait_for};

/// The start timeout, sufficient for a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of worker threads of one Envoy.
const WORKERS: u64 = 2;

/// The variant of the xDS protocol (ADS).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// State of the world (SotW).
    Sotw,
    /// Delta.
    Delta,
}

/// The node that the proxy identifies as.
#[derive(Clone, Debug)]
pub struct Node {
    /// `TYPE~IP~NAME.NAMESPACE~DOMAIN`.
    pub id: String,
    /// The node metadata.
    pub metadata: Value,
    /// The locality, as `region`, `zone` and `sub_zone`; null if unknown.
    pub locality: Value,
}

impl Node {
    /// A sidecar of the workload `name` with these labels, without traffic interception.
    pub fn sidecar(name: &str, namespace: &str, ip: &str, labels: &[(&str, &str)]) -> Node {
        let mut node = Node::new("sidecar", name, namespace, ip, labels);
        node.metadata["INTERCEPTION_MODE"] = "NONE".into();
        node
    }

    /// A gateway with these labels, by which Gateways select it.
    pub fn gateway(name: &str, namespace: &str, ip: &str, labels: &[(&str, &str)]) -> Node {
        let mut node = Node::new("router", name, namespace, ip, labels);
        node.metadata["UNPRIVILEGED_POD"] = "true".into();
        node
    }

    fn new(kind: &str, name: &str, namespace: &str, ip: &str, labels: &[(&str, &str)]) -> Node {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        Node {
            id: format!("{kind}~{ip}~{name}.{namespace}~{namespace}.svc.cluster.local"),
            metadata: json!({
                "NAMESPACE": namespace,
                "LABELS": labels,
                "CLUSTER_ID": "Kubernetes",
                "INSTANCE_IPS": ip,
                "PROXY_CONFIG": {},
                // More than these Envoys accept, so that tests can make them reject a route.
                "RE2_MAX_PROGRAM_SIZE": "32768",
            }),
            locality: Value::Null,
        }
    }
}

/// The address of a control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum XdsAddress {
    /// The plaintext port.
    Tcp(SocketAddr),
    /// The Unix socket, over which the control plane sends secrets.
    Unix(PathBuf),
}

impl From<SocketAddr> for XdsAddress {
    fn from(address: SocketAddr) -> XdsAddress {
        XdsAddress::Tcp(address)
    }
}

impl From<&Path> for XdsAddress {
    fn from(path: &Path) -> XdsAddress {
        XdsAddress::Unix(path.to_owned())
    }
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    child: Child,
    dir: tempfile::TempDir,
    admin: SocketAddr,
}

impl Envoy {
    /// Starts an Envoy that connects to the control plane at `xds`, and waits until its admin interface responds.
    pub async fn start(binary: &Path, node: &Node, protocol: Protocol, xds: impl Into<XdsAddress>) -> Result<Envoy> {
        Envoy::launch(Command::new(binary), &Envoy::bootstrap(node, protocol, xds)).await
    }

    /// Does the same in this network namespace. The admin interface is at `ip`, which must be reachable from here.
    pub async fn start_in_namespace(
        binary: &Path,
        node: &Node,
        protocol: Protocol,
        xds: SocketAddr,
        (namespace, ip): (&str, &str),
    ) -> Result<Envoy> {
        let mut bootstrap = Envoy::bootstrap(node, protocol, xds);
        bootstrap["admin"]["address"]["socket_address"]["address"] = ip.into();
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(binary);
        Envoy::launch(command, &bootstrap).await
    }

    /// Starts an Envoy with the caller's bootstrap, which must have an admin address.
    pub async fn start_with(binary: &Path, bootstrap: &Value) -> Result<Envoy> {
        Envoy::launch(Command::new(binary), bootstrap).await
    }

    /// The bootstrap of an Envoy that connects to the control plane at `xds`, for callers that modify it.
    pub fn bootstrap(node: &Node, protocol: Protocol, xds: impl Into<XdsAddress>) -> Value {
        bootstrap::bootstrap(node, protocol, &xds.into())
    }

    async fn launch(mut command: Command, bootstrap: &Value) -> Result<Envoy> {
        let dir = tempfile::Builder::new().prefix("rutter-envoy-").tempdir()?;
        let (config, admin_file) = (dir.path().join("bootstrap.json"), dir.path().join("admin"));
        fs::write(&config, serde_json::to_vec_pretty(bootstrap)?)?;
        let shown = command.as_std().get_program().to_string_lossy().into_owned();
        let log = fs::File::create(dir.path().join("log"))?;
        let mut child = command
            .arg("--config-path")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin_file)
            .args(["--disable-hot-restart", "--concurrency", &WORKERS.to_string(), "--log-level", "warning"])
            // Limits how long removed listeners drain.
            .args(["--drain-time-s", "2", "--drain-strategy", "immediate"])
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("{shown}: {e}"))?;
        let admin = || async { fs::read_to_string(&admin_file).ok()?.trim().parse::<SocketAddr>().ok() };
        let admin = match wait_for("Envoy's admin address", PATIENCE, admin).await {
            Ok(admin) => admin,
            Err(error) => {
                let ended = child.try_wait()?;
                let log = fs::read_to_string(dir.path().join("log"))?;
                return Err(format!("Envoy did not start ({error}; {ended:?}); its log:\n{log}").into());
            }
        };
        Ok(Envoy { child, dir, admin })
    }

    /// The process ID; `None` if it is not running.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Requests a page of the admin interface.
    pub async fn admin(&self, path: &str) -> Result<http::Response> {
        http::get(self.admin, path, &[]).await
    }

    /// The numeric statistics whose names match `filter` (a regular expression).
    pub async fn stats(&self, filter: &str) -> Result<BTreeMap<String, u64>> {
        let text = self.admin(&format!("/stats?filter={filter}")).await?.text();
        let number = |line: &str| {
            let (name, value) = line.rsplit_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(text.lines().filter_map(number).collect())
    }

    /// The sum of the statistics whose names match `filter`.
    pub async fn stat(&self, filter: &str) -> Result<u64> {
        Ok(self.stats(filter).await?.values().sum())
    }

    /// The number of bytes received from the control plane.
    pub async fn discovery_bytes(&self) -> Result<u64> {
        self.stat("^cluster.xds-grpc.upstream_cx_rx_bytes_total$").await
    }

    /// One list of the configuration dump, such as `dynamic_route_configs`.
    pub async fn dump(&self, resource: &str) -> Result<Vec<Value>> {
        let answer = self.admin(&format!("/config_dump?resource={resource}")).await?;
        // Envoy answers 404 for a list that is still empty.
        let dump = if answer.status.is_success() { answer.json()? } else { Value::Null };
        Ok(dump["configs"].as_array().cloned().unwrap_or_default())
    }

    /// The active dynamic listeners, by name.
    pub async fn listeners(&self) -> Result<BTreeMap<String, Value>> {
        let listeners = self.dump("dynamic_listeners").await?.into_iter();
        let active = listeners.filter(|l| l["active_state"]["listener"].is_object());
        Ok(active.map(|l| (text(&l["name"]), l["active_state"]["listener"].clone())).collect())
    }

    /// The route configurations, by name, with their versions.
    pub async fn routes(&self) -> Result<BTreeMap<String, (String, Value)>> {
        let routes = self.dump("dynamic_route_configs").await?.into_iter();
        let named =
            |mut r: Value| (text(&r["route_config"]["name"]), (text(&r["version_info"]), r["route_config"].take()));
        Ok(routes.map(named).collect())
    }

    /// The healthy endpoints of a cluster as `IP:PORT`, sorted; `None` while Envoy does not have the cluster.
    pub async fn endpoints(&self, cluster: &str) -> Result<Option<Vec<String>>> {
        let clusters = self.admin("/clusters?format=json").await?.json()?;
        let list = clusters["cluster_statuses"].as_array().cloned().unwrap_or_default();
        let Some(found) = list.into_iter().find(|c| c["name"] == cluster) else {
            return Ok(None);
        };
        let mut endpoints: Vec<String> = found["host_statuses"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|host| &host["address"]["socket_address"])
            .map(|address| format!("{}:{}", address["address"].as_str().unwrap_or_default(), address["port_value"]))
            .collect();
        endpoints.sort();
        Ok(Some(endpoints))
    }

    /// Waits until every worker listens on this address.
    pub async fn wait_for_listener(&self, address: SocketAddr) -> Result<()> {
        let text = address.to_string();
        // Envoy lists a listener before the workers have it; until then connections are refused.
        let found = || async {
            let listed = self.admin("/listeners").await.ok()?.text();
            let taken = self.stat("^listener_manager.listener_create_success$").await.ok()?;
            Some(()).filter(|()| listed.contains(&text) && taken >= WORKERS * listed.lines().count() as u64)
        };
        let result = wait_for(&format!("Envoy to listen on {address}"), PATIENCE, found).await;
        match result {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("{error}; its log:\n{}", self.log()?).into()),
        }
    }

    /// The temporary directory of this Envoy, which is removed with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The log so far.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.dir.path().join("log"))?)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
