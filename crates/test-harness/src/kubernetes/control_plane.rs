//! A real control plane: etcd, `kube-apiserver` and `kube-controller-manager`, without root.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::certificates::{Authority, signing_key, token};
use super::client::Client;
use super::components::{api_server, controller_manager, etcd, scheduler};
use super::kubeconfig::{Proof, kubeconfig, write_private};
use super::network::Network;
use super::process::Process;
use super::workdir::WorkDir;
use crate::run::http::{self as plain, Response};
use crate::run::{Result, free_port, wait_for};

/// The start timeout, sufficient for a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The settings of a control plane.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the controllers run. They create EndpointSlices and tokens, and finalize namespaces.
    pub controllers: bool,
    /// Whether nodes can be added. The API then listens on an address that nodes reach, which requires root.
    pub node: bool,
    /// Whether pods use a DNS server at [`ControlPlane::dns`], which the caller deploys. Otherwise they have none.
    pub dns: bool,
    /// The audiences of service account tokens, in addition to the API's own.
    pub audiences: Vec<String>,
    /// Additional flags for the API server. A repeated flag overrides the earlier one.
    pub api_flags: Vec<String>,
    /// Additional flags for the controller manager.
    pub controller_flags: Vec<String>,
}

impl Default for Settings {
    /// With controllers, without nodes, with the audience `istio-ca`.
    fn default() -> Settings {
        Settings {
            controllers: true,
            node: false,
            dns: false,
            audiences: vec!["istio-ca".to_owned()],
            api_flags: Vec::new(),
            controller_flags: Vec::new(),
        }
    }
}

/// A running control plane. Its address and users stay the same when its programs restart. Everything is stopped and
/// removed when it is dropped or when this process ends, even in a crash.
#[derive(Debug)]
pub struct ControlPlane {
    pub(super) program: PathBuf,
    address: SocketAddr,
    etcd_address: SocketAddr,
    pub(super) authority: Authority,
    client: Client,
    pub(super) etcd: Process,
    pub(super) api: Process,
    controllers: Option<Process>,
    scheduler: Option<Process>,
    pub(super) network: Option<Network>,
    dns: Option<Ipv4Addr>,
    // Dropped last, after the processes have ended.
    dir: WorkDir,
}

impl ControlPlane {
    /// Starts a control plane in a temporary directory and waits until it is ready, which takes a few seconds. Builds
    /// Kubernetes first if necessary, which takes minutes.
    ///
    /// # Errors
    /// A program cannot be built or does not start; the error contains the end of its log.
    pub async fn start(settings: Settings) -> Result<ControlPlane> {
        ControlPlane::start_in(WorkDir::temporary()?, &settings).await
    }

    pub(super) async fn start_in(dir: WorkDir, settings: &Settings) -> Result<ControlPlane> {
        let program = tokio::task::spawn_blocking(|| super::program(&mut |line| eprintln!("{line}"))).await??;
        if let Some(missing) = settings.node.then(super::missing).flatten() {
            return Err(missing.into());
        }
        let network = settings.node.then(|| Network::make(dir.path())).transpose()?;
        let ip = network.as_ref().map_or(Ipv4Addr::LOCALHOST, Network::host);
        let address = SocketAddr::from((ip, free_port()));
        let etcd_address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let authority = Authority::new()?;
        let token = token()?;
        let plane = ControlPlane {
            client: Client::new(address, authority.certificate(), &token)?,
            etcd: etcd(&program, etcd_address, dir.path()),
            api: api_server(&program, address, etcd_address, network.as_ref(), settings, dir.path()),
            controllers: settings.controllers.then(|| controller_manager(&program, settings, dir.path())),
            // Without nodes there is nothing to schedule.
            scheduler: settings.node.then(|| scheduler(&program, dir.path())),
            program,
            address,
            etcd_address,
            authority,
            dns: network.as_ref().filter(|_| settings.dns).map(Network::dns),
            network,
            dir,
        };
        plane.write_files(&token)?;
        plane.begin().await?;
        Ok(plane)
    }

    /// The path of the administrator's kubeconfig, which contains everything inline and authenticates with a token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The address of the API: loopback, or an address of this machine that only its nodes reach.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the API, `https://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The client URL of etcd, `http://127.0.0.1:PORT`.
    pub fn etcd_endpoint(&self) -> String {
        format!("http://{}", self.etcd_address)
    }

    /// The Service address of the DNS server of pods; none without [`Settings::dns`].
    pub fn dns(&self) -> Option<Ipv4Addr> {
        self.dns
    }

    /// The directory of the logs: one file per program.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// The last lines of the API server's log, for an error message.
    pub fn log_end(&self) -> String {
        self.api.log_end()
    }

    /// Creates a kubeconfig for another user, who authenticates with a certificate and has the rights that RBAC grants;
    /// in the group `system:masters`, all rights.
    ///
    /// # Errors
    /// The certificate cannot be created.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<String> {
        let identity = self.authority.user(name, group)?;
        let proof = Proof::Certificate(&identity);
        Ok(kubeconfig(&self.url(), self.authority.certificate(), name, &proof))
    }

    /// Creates a kubeconfig for an existing service account, with a token that is valid for an hour.
    ///
    /// # Errors
    /// The service account does not exist.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<String> {
        let token = self.kubectl(&["create", "token", name, "--namespace", namespace], "").await?;
        let proof = Proof::Token(token.trim());
        Ok(kubeconfig(&self.url(), self.authority.certificate(), name, &proof))
    }

    /// Runs `kubectl` as the administrator with this standard input and returns its output.
    ///
    /// # Errors
    /// The command fails; the error is its error output.
    pub async fn kubectl(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new(&self.program)
            .arg("kubectl")
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input may have exited already.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("kubectl {}: {}", arguments.join(" "), error.trim()).into())
    }

    /// Sends one request to the API as the administrator. Cheaper than `kubectl` for frequent requests.
    ///
    /// # Errors
    /// There is no response. An error status is not an error here.
    pub async fn request(&self, method: Method, path: &str, body: &serde_json::Value) -> Result<Response> {
        let content = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        let body = match body {
            serde_json::Value::Null => Bytes::new(),
            body => Bytes::from(body.to_string()),
        };
        self.client.send(method, path, content, body).await
    }

    /// Deletes an object in the background: at the end of a test, whose async runtime may end first.
    pub fn delete_soon(&self, path: &str) {
        let (client, path) = (self.client.clone(), path.to_owned());
        let delete = async move {
            // There is no caller to report a failure to.
            let _ = client.send(Method::DELETE, &path, "application/json", Bytes::new()).await;
        };
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.map(|runtime| runtime.block_on(delete))
        });
        drop(thread);
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process ID of the API server; `None` if it is not running.
    pub fn api_server_pid(&self) -> Option<u32> {
        self.api.id()
    }

    /// The process IDs of all running programs.
    pub fn pids(&self) -> Vec<u32> {
        self.processes().filter_map(Process::id).collect()
    }

    /// Starts the programs that are not running and waits until all are ready.
    pub(super) async fn begin(&self) -> Result<()> {
        self.start_etcd().await?;
        self.api.start()?;
        self.ready().await?;
        if let Some(controllers) = &self.controllers {
            controllers.start()?;
            // The controller manager works once it has created this object.
            let path = "/api/v1/namespaces/default/serviceaccounts/default";
            let made = || async {
                let answer = self.request(Method::GET, path, &serde_json::Value::Null).await;
                let made = answer.is_ok_and(|answer| answer.status.is_success());
                (made || controllers.check().is_err()).then_some(())
            };
            wait_for("the controllers to work", PATIENCE, made).await?;
            controllers.check()?;
        }
        self.scheduler.as_ref().map_or(Ok(()), Process::start)
    }

    /// Kills all programs, lets `change` modify etcd's data, and starts them again.
    pub(super) async fn over_a_stop(&self, change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        for process in self.processes() {
            process.kill()?;
        }
        change(&self.dir.path().join("etcd"))?;
        self.begin().await
    }

    /// Calls `look` on etcd's data while etcd is paused.
    pub(super) fn while_etcd_pauses(&self, look: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.etcd.signal("STOP")?;
        let looked = look(&self.dir.path().join("etcd"));
        self.etcd.signal("CONT")?;
        looked
    }

    /// Keeps the programs running after this value is dropped.
    pub(super) fn keep(&self) {
        self.processes().for_each(Process::keep);
    }

    fn processes(&self) -> impl Iterator<Item = &Process> {
        let others = [self.scheduler.as_ref(), self.controllers.as_ref()];
        [&self.etcd, &self.api].into_iter().chain(others.into_iter().flatten())
    }

    pub(super) async fn start_etcd(&self) -> Result<()> {
        self.etcd.start()?;
        let healthy = || async {
            let answer = plain::get(self.etcd_address, "/health", &[]).await;
            let healthy = answer.is_ok_and(|answer| answer.status.is_success());
            (healthy || self.etcd.check().is_err()).then_some(())
        };
        wait_for("etcd to be healthy", PATIENCE, healthy).await?;
        self.etcd.check()
    }

    pub(super) async fn ready(&self) -> Result<()> {
        let ready = || async {
            let answer = self.request(Method::GET, "/readyz", &serde_json::Value::Null).await;
            let ready = answer.is_ok_and(|answer| answer.status.is_success());
            (ready || self.api.check().is_err()).then_some(())
        };
        let waited = wait_for("the API server to be ready", PATIENCE, ready).await;
        self.api.check()?;
        waited.map_err(|error| format!("{error}; its log ends:\n{}", self.api.log_end()).into())
    }

    /// Writes the configuration files of the programs.
    fn write_files(&self, token: &str) -> Result<()> {
        let dir = self.dir.path();
        let network = self.network.as_ref();
        let mut names = vec![self.address.ip().to_string(), "127.0.0.1".to_owned()];
        names.extend(["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map(str::to_owned));
        names.push(network.map_or(IpAddr::from([10, 96, 0, 1]), Network::first_service).to_string());
        let serving = self.authority.server(&names)?;
        let to_nodes = self.authority.user("kube-apiserver-kubelet-client", Some("system:masters"))?;
        let (accounts, public) = signing_key()?;
        for (name, text) in [
            ("ca.crt", self.authority.certificate()),
            ("server.crt", &serving.certificate),
            ("server.key", &serving.key),
            ("kubelet-client.crt", &to_nodes.certificate),
            ("kubelet-client.key", &to_nodes.key),
            ("accounts.key", &accounts),
            ("accounts.pub", &public),
            ("tokens.csv", &format!("{token},admin,admin,system:masters\n")),
        ] {
            write_private(&dir.join(name), text)?;
        }
        let proof = Proof::Token(token);
        let admin = kubeconfig(&self.url(), self.authority.certificate(), "admin", &proof);
        write_private(&self.kubeconfig(), &admin)
    }
}
