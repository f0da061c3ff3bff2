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

/// How long a start may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// How a control plane is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether the controllers of Kubernetes run: they make EndpointSlices, tokens, and take namespaces away.
    pub controllers: bool,
    /// Whether nodes can be added: the API then listens on an address that they reach. Needs root.
    pub node: bool,
    /// The kinds of token that the API gives out, beside its own.
    pub audiences: Vec<String>,
    /// More flags for the API server; a flag that is given twice counts as given last.
    pub api_flags: Vec<String>,
    /// More flags for the controller manager.
    pub controller_flags: Vec<String>,
}

impl Default for Settings {
    /// With controllers, without a node, with the audience `istio-ca`.
    fn default() -> Settings {
        Settings {
            controllers: true,
            node: false,
            audiences: vec!["istio-ca".to_owned()],
            api_flags: Vec::new(),
            controller_flags: Vec::new(),
        }
    }
}

/// A running control plane. Its address and its users stay the same when its programs are started again; everything ends
/// and goes when it is dropped, or when this process ends, however it does.
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
    // Last: the processes have ended when it goes.
    dir: WorkDir,
}

impl ControlPlane {
    /// Starts one in a temporary directory, and waits until it is ready: a few seconds. Kubernetes is built first if it has
    /// not been yet: minutes.
    ///
    /// # Errors
    /// A program cannot be built or does not start; the error has the end of its log.
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
            controllers: settings
                .controllers
                .then(|| controller_manager(&program, settings, dir.path())),
            // Without a node there is nothing to choose.
            scheduler: settings.node.then(|| scheduler(&program, dir.path())),
            program,
            address,
            etcd_address,
            authority,
            network,
            dir,
        };
        plane.write_files(&token)?;
        plane.begin().await?;
        Ok(plane)
    }

    /// The kubeconfig of the administrator: everything in one file, with a token.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// The address of the API: loopback, or one of this machine that only its nodes reach.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as `https://ADDRESS:PORT`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The address of etcd, for clients: `http://127.0.0.1:PORT`.
    pub fn etcd_endpoint(&self) -> String {
        format!("http://{}", self.etcd_address)
    }

    /// Where logs are: one file per program.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }

    /// The last lines of the API server's log, for an error message.
    pub fn log_end(&self) -> String {
        self.api.log_end()
    }

    /// A kubeconfig for another user, who proves by a certificate who it is and may do what RBAC grants it. With the group
    /// `system:masters` that is everything.
    ///
    /// # Errors
    /// The certificate cannot be made.
    pub fn user(&self, name: &str, group: Option<&str>) -> Result<String> {
        let identity = self.authority.user(name, group)?;
        let proof = Proof::Certificate(&identity);
        Ok(kubeconfig(&self.url(), self.authority.certificate(), name, &proof))
    }

    /// A kubeconfig for a service account, which is there already, with a token of an hour.
    ///
    /// # Errors
    /// There is no such account.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<String> {
        let token = self
            .kubectl(&["create", "token", name, "--namespace", namespace], "")
            .await?;
        let proof = Proof::Token(token.trim());
        Ok(kubeconfig(&self.url(), self.authority.certificate(), name, &proof))
    }

    /// Runs our `kubectl` as the administrator with this standard input, and returns what it prints.
    ///
    /// # Errors
    /// It fails; the error is what it says.
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
            // A command that does not read its input may have ended by now.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(format!("kubectl {}: {}", arguments.join(" "), said.trim()).into())
    }

    /// Sends one request to the API as the administrator: cheaper than `kubectl`, for what is asked often.
    ///
    /// # Errors
    /// It is not answered. An answer with a status of an error is no error here.
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

    /// Deletes an object, and waits for nothing: for the end of a test, whose runtime may end first.
    pub fn delete_soon(&self, path: &str) {
        let (client, path) = (self.client.clone(), path.to_owned());
        let delete = async move {
            // Nobody is there any more to be told of a failure.
            let _ = client
                .send(Method::DELETE, &path, "application/json", Bytes::new())
                .await;
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

    /// The process id of the API server, while it runs.
    pub fn api_server_pid(&self) -> Option<u32> {
        self.api.id()
    }

    /// The process ids of all its programs that run.
    pub fn pids(&self) -> Vec<u32> {
        self.processes().filter_map(Process::id).collect()
    }

    /// Starts what does not run, and waits until all is ready.
    pub(super) async fn begin(&self) -> Result<()> {
        self.start_etcd().await?;
        self.api.start()?;
        self.ready().await?;
        if let Some(controllers) = &self.controllers {
            controllers.start()?;
            // It is at work when the first thing that it makes is there.
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

    /// Ends everything at once, and lets `change` change etcd's data before all starts again.
    pub(super) async fn over_a_stop(&self, change: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        for process in self.processes() {
            process.kill()?;
        }
        change(&self.dir.path().join("etcd"))?;
        self.begin().await
    }

    /// Looks at etcd's data while nothing writes them.
    pub(super) fn while_etcd_pauses(&self, look: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        self.etcd.signal("STOP")?;
        let looked = look(&self.dir.path().join("etcd"));
        self.etcd.signal("CONT")?;
        looked
    }

    /// Lets its programs run on when this value goes.
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

    /// Writes what the programs are told by files.
    fn write_files(&self, token: &str) -> Result<()> {
        let dir = self.dir.path();
        let network = self.network.as_ref();
        let mut names = vec![self.address.ip().to_string(), "127.0.0.1".to_owned()];
        names.extend(
            [
                "localhost",
                "kubernetes",
                "kubernetes.default",
                "kubernetes.default.svc",
            ]
            .map(str::to_owned),
        );
        names.push(
            network
                .map_or(IpAddr::from([10, 96, 0, 1]), Network::first_service)
                .to_string(),
        );
        let serving = self.authority.server(&names)?;
        let to_nodes = self
            .authority
            .user("kube-apiserver-kubelet-client", Some("system:masters"))?;
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
