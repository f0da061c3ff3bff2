//! A process of Envoy.

use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::arguments::{Restart, arguments};
use crate::exchange::Configuration;
use crate::settings::Settings;

/// The ciphers of Envoy's Google gRPC client that comply with FIPS 140.
const CIPHERS: &str = "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:\
                       ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384";
/// The time in which Envoy checks a configuration.
const CHECK_TIME: Duration = Duration::from_secs(30);

/// A running Envoy. It is killed when the value is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    pub(crate) started: Instant,
}

impl Process {
    pub(crate) fn start(settings: &Settings, configuration: &Configuration, restart: Restart) -> io::Result<Process> {
        let arguments = arguments(settings, configuration, restart);
        let child = command(settings, &arguments).spawn()?;
        tracing::info!(pid = child.id(), arguments = shown(&arguments), "started Envoy");
        Ok(Process { child, started: Instant::now() })
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end of the process. The future may be dropped and made again.
    pub(crate) async fn exit(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills the process and waits for its end.
    pub(crate) async fn kill(mut self) {
        if let Err(error) = self.child.kill().await {
            tracing::warn!(%error, "cannot kill Envoy");
        }
    }
}

fn command(settings: &Settings, arguments: &[String]) -> Command {
    let mut command = Command::new(&settings.proxy.binary);
    command.args(arguments).stdin(Stdio::null()).process_group(0).kill_on_drop(true);
    if settings.compliant_ciphers {
        command.env("GRPC_SSL_CIPHER_SUITES", CIPHERS);
    }
    if let Some(user) = settings.user {
        command.uid(user).gid(user);
    }
    command
}

/// The arguments as text, without the overlay, which may have secrets.
fn shown(arguments: &[String]) -> String {
    let overlay = arguments.iter().position(|argument| argument == "--config-yaml").map(|at| at + 1);
    let visible = arguments.iter().enumerate().map(|(at, text)| if Some(at) == overlay { "…" } else { text });
    visible.collect::<Vec<_>>().join(" ")
}

/// Writes the configuration to its file, unless the file is the operator's. It replaces the old file at once.
pub(crate) fn write(configuration: &Configuration) -> io::Result<()> {
    let Some(text) = &configuration.text else { return Ok(()) };
    if let Some(folder) = configuration.path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = beside(&configuration.path);
    fs::write(&new, text.as_bytes())?;
    fs::rename(&new, &configuration.path)
}

/// Removes the file of the configuration, unless it is the operator's.
pub(crate) fn remove(configuration: &Configuration) {
    if configuration.text.is_some()
        && let Err(error) = fs::remove_file(&configuration.path)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(file = %configuration.path.display(), %error, "cannot remove the configuration of Envoy");
    }
}

/// Has Envoy check a configuration, without effect on the running one.
///
/// # Errors
/// The reason why it is not used.
pub(crate) async fn check(settings: &Settings, configuration: &Configuration) -> Result<(), String> {
    let mut checked = configuration.clone();
    if let Some(text) = &configuration.text {
        checked.path = beside(&configuration.path);
        fs::write(&checked.path, text.as_bytes())
            .map_err(|error| format!("cannot write {}: {error}", checked.path.display()))?;
    }
    let mut arguments = arguments(settings, &checked, Restart::Disabled);
    arguments.extend(["--mode".to_owned(), "validate".to_owned()]);
    let ended = tokio::time::timeout(CHECK_TIME, command(settings, &arguments).stdout(Stdio::null()).status()).await;
    remove(&Configuration { path: checked.path, ..checked });
    match ended {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(format!("Envoy rejects the configuration ({})", describe(status))),
        Ok(Err(error)) => Err(format!("cannot start Envoy: {error}")),
        Err(_) => Err(format!("Envoy did not check the configuration in {} seconds", CHECK_TIME.as_secs())),
    }
}

/// The path of a new file that will replace this one, with the same extension.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("new-{name}"))
}

/// An exit status as text.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(9)) => "signal 9; it may have exceeded its memory limit".to_owned(),
        (None, signal) => format!("signal {}", signal.unwrap_or_default()),
    }
}
