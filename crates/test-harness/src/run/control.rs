//! The control plane as a child process.

use std::fs::{File, OpenOptions};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use super::{Result, free_port, http, wait_for};

/// The timeout of a start or a graceful stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running `rutter serve`. Its addresses stay the same when it restarts.
#[derive(Debug)]
pub struct Control {
    binary: PathBuf,
    data: Option<PathBuf>,
    api: Option<SocketAddr>,
    flags: Vec<String>,
    environment: Vec<(String, PathBuf)>,
    log: tempfile::NamedTempFile,
    /// The directory of the Unix socket.
    socket: tempfile::TempDir,
    grpc: SocketAddr,
    secure: SocketAddr,
    webhooks: SocketAddr,
    http: SocketAddr,
    monitoring: SocketAddr,
    child: Option<Child>,
}

impl Control {
    /// Starts the control plane with this configuration directory and additional flags, without an API, and waits until
    /// it is ready.
    pub async fn start(binary: &Path, config: &Path, flags: &[&str]) -> Result<Control> {
        Control::start_on([127, 0, 0, 1].into(), binary, config, flags).await
    }

    /// Does the same, listening on this IP address.
    pub async fn start_on(ip: IpAddr, binary: &Path, config: &Path, flags: &[&str]) -> Result<Control> {
        let mut all =
            vec!["--store".to_owned(), "none".to_owned(), "--config-dir".to_owned(), config.display().to_string()];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Control::new(ip, binary, None, all)?.begun().await
    }

    /// Starts the control plane with a store and its API in this data directory, with additional flags, and waits until
    /// it is ready.
    pub async fn start_with_api(binary: &Path, data: &Path, flags: &[&str]) -> Result<Control> {
        Control::start_with_api_on([127, 0, 0, 1].into(), binary, data, flags).await
    }

    /// Does the same, listening on this IP address.
    pub async fn start_with_api_on(ip: IpAddr, binary: &Path, data: &Path, flags: &[&str]) -> Result<Control> {
        let api = SocketAddr::from((ip, free_port()));
        let mut all = vec!["--data-dir".to_owned(), data.display().to_string()];
        all.extend(["--api-addr".to_owned(), api.to_string()]);
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let mut control = Control::new(ip, binary, Some(data), all)?;
        control.api = Some(api);
        control.begun().await
    }

    /// Starts the control plane with this configuration directory and an API that reads it, in this data directory, with
    /// additional flags, and waits until it is ready.
    pub async fn start_with_files(binary: &Path, config: &Path, data: &Path, flags: &[&str]) -> Result<Control> {
        let config = config.display().to_string();
        Control::start_with_api(binary, data, &[&["--config-dir", &config], flags].concat()).await
    }

    /// Creates a control plane with only these flags and environment variables (names and file paths), without starting
    /// it.
    pub fn idle(binary: &Path, flags: &[&str], environment: &[(&str, &Path)]) -> Result<Control> {
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let mut control = Control::new([127, 0, 0, 1].into(), binary, None, flags)?;
        control.environment = environment.iter().map(|(name, file)| ((*name).to_owned(), (*file).to_owned())).collect();
        Ok(control)
    }

    fn new(ip: IpAddr, binary: &Path, data: Option<&Path>, flags: Vec<String>) -> Result<Control> {
        let address = || SocketAddr::from((ip, free_port()));
        Ok(Control {
            binary: binary.to_owned(),
            data: data.map(Path::to_owned),
            api: None,
            flags,
            environment: Vec::new(),
            log: tempfile::Builder::new().prefix("rutter-").suffix(".log").tempfile()?,
            socket: tempfile::Builder::new().prefix("rutter-").tempdir()?,
            grpc: address(),
            secure: address(),
            webhooks: address(),
            http: address(),
            monitoring: address(),
            child: None,
        })
    }

    async fn begun(mut self) -> Result<Control> {
        self.begin().await?;
        Ok(self)
    }

    /// Starts the control plane, for the first time or after `kill` or `stop`, and waits until it is ready.
    pub async fn begin(&mut self) -> Result<()> {
        self.launch()?;
        self.wait_until_ready().await
    }

    /// Starts the control plane without waiting.
    pub fn launch(&mut self) -> Result<()> {
        let log = OpenOptions::new().append(true).open(self.log.path())?;
        let child = Command::new(&self.binary)
            .arg("serve")
            .args(["--grpc-addr", &self.grpc.to_string()])
            .args(["--secure-grpc-addr", &self.secure.to_string()])
            .args(["--https-addr", &self.webhooks.to_string()])
            .args(["--http-addr", &self.http.to_string()])
            .args(["--monitoring-addr", &self.monitoring.to_string()])
            .arg("--xds-socket")
            .arg(self.socket())
            .args(&self.flags)
            .envs(self.environment.iter().map(|(name, file)| (name, file)))
            .stdin(Stdio::null())
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()
            .map_err(|e| format!("{}: {e}", self.binary.display()))?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until the control plane is ready. Fails if it exits first.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let end = tokio::time::Instant::now() + PATIENCE;
        while !self.readiness().await.is_ok_and(|answer| answer.status.is_success()) {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            if ended.is_some() || tokio::time::Instant::now() > end {
                return Err(
                    format!("the control plane did not become ready; its log ends:\n{}", self.log_end()?).into()
                );
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok(())
    }

    /// Requests `/ready`.
    pub async fn readiness(&self) -> Result<http::Response> {
        http::get(self.http, "/ready", &[]).await
    }

    /// Kills the control plane, as a crash would.
    pub async fn kill(&mut self) -> Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill().await?;
        }
        Ok(())
    }

    /// Stops the control plane (SIGTERM) and waits until it has exited. Returns whether it exited successfully.
    pub async fn stop(&mut self) -> Result<bool> {
        let Some(mut child) = self.child.take() else {
            return Ok(true);
        };
        if let Some(id) = child.id() {
            Command::new("sh").args(["-c", &format!("kill -TERM {id}")]).status().await?;
        }
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.map_err(|_| "it did not stop in time")??;
        Ok(status.success())
    }

    /// The address of the xDS server.
    pub fn grpc(&self) -> SocketAddr {
        self.grpc
    }

    /// The address of the xDS server over TLS.
    pub fn secure(&self) -> SocketAddr {
        self.secure
    }

    /// The address of the webhooks.
    pub fn webhooks(&self) -> SocketAddr {
        self.webhooks
    }

    /// The Unix socket of the xDS server, over which proxies of this user receive secrets.
    pub fn socket(&self) -> PathBuf {
        self.socket.path().join("xds.sock")
    }

    /// The address of the API, if the control plane serves one.
    pub fn api(&self) -> Option<SocketAddr> {
        self.api
    }

    /// The kubeconfig of the API, if the control plane serves one.
    pub fn kubeconfig(&self) -> Option<PathBuf> {
        self.data.as_ref().map(|data| data.join("kubeconfig"))
    }

    /// The process ID; `None` if it is not running.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().and_then(Child::id)
    }

    /// Sends a request to the monitoring address, such as for `/debug/syncz`.
    pub async fn debug(&self, path: &str) -> Result<http::Response> {
        http::get(self.monitoring, path, &[]).await
    }

    /// The sum of a metric over all its labels, or over the lines that contain `labels`. The OpenMetrics suffix of
    /// counters is optional.
    pub async fn metric(&self, name: &str, labels: &str) -> Result<f64> {
        let text = self.debug("/metrics").await?.text();
        let of_metric = |line: &&str| {
            let rest = line.strip_prefix(name).map(|rest| rest.strip_prefix("_total").unwrap_or(rest));
            rest.is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(labels)
        };
        Ok(text.lines().filter(of_metric).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum())
    }

    /// The log so far.
    pub fn log(&self) -> Result<String> {
        Ok(std::io::read_to_string(File::open(self.log.path())?)?)
    }

    /// The last lines of the log, for an error message.
    pub fn log_end(&self) -> Result<String> {
        let log = self.log()?;
        let lines: Vec<&str> = log.lines().collect();
        Ok(lines[lines.len().saturating_sub(30)..].join("\n"))
    }

    /// Waits until the log contains this text.
    pub async fn wait_for_log(&self, text: &str) -> Result<()> {
        let found = || async { self.log().ok().filter(|log| log.contains(text)).map(drop) };
        wait_for(&format!("`{text}` in the log"), PATIENCE, found).await
    }
}
