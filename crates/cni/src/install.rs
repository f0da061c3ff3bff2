//! Installs the plugin on the node: its programs, its kubeconfig and its entry in the CNI configuration.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::conflist::{self, ConflistError, PLUGIN};
use crate::plugin::KUBECONFIG;
use crate::settings::Settings;

/// The plugin cannot be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A file cannot be read or written.
    #[error("cannot {what} {}: {reason}", path.display())]
    File {
        /// The action.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: io::Error,
    },
    /// The address of the API server is not known.
    #[error("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; run the agent in a pod, or set them")]
    NoApiServer,
    /// The CNI configuration cannot be used.
    #[error(transparent)]
    Conflist(#[from] ConflistError),
}

impl InstallError {
    /// The value of the label `result` of the metric `istio_cni_installs_total`.
    pub(crate) fn result(&self) -> &'static str {
        match self {
            InstallError::File { what: "install", .. } => "COPY_BINARIES_FAILURE",
            InstallError::NoApiServer | InstallError::File { what: "write the kubeconfig", .. } => {
                "CREATE_KUBECONFIG_FAILURE"
            }
            _ => "CREATE_CNI_CONFIG_FAILURE",
        }
    }
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    move |reason| InstallError::File { what, path: path.to_owned(), reason }
}

/// Installs all parts that differ from what they should be, and returns the CNI configuration. `None` if the node has none yet.
/// To repeat it writes nothing.
pub(crate) fn install(settings: &Settings) -> Result<Option<PathBuf>, InstallError> {
    let source = &settings.bin_source_dir;
    for entry in fs::read_dir(source).map_err(failed("install", source))? {
        let from = entry.map_err(failed("install", source))?.path();
        let (true, Some(name)) = (from.is_file(), from.file_name()) else { continue };
        let to = settings.bin_target_dir.join(name);
        let text = fs::read(&from).map_err(failed("install", &from))?;
        let mode = fs::metadata(&from).map_err(failed("install", &from))?.permissions().mode();
        write(&to, &text, mode & 0o777).map_err(failed("install", &to))?;
    }
    let kubeconfig = settings.run_dir.join(KUBECONFIG);
    let text = kubeconfig_text(settings)?;
    write(&kubeconfig, text.as_bytes(), settings.kubeconfig_mode)
        .map_err(failed("write the kubeconfig", &kubeconfig))?;

    let Some(path) = conflist::find(settings).map_err(failed("read", &settings.net_dir))? else { return Ok(None) };
    let Some((target, text)) = conflist::installed(settings, &path)? else { return Ok(Some(path)) };
    // The mode of a file of another plugin stays.
    let existing = fs::metadata(&path).map(|meta| meta.permissions().mode() & 0o777).ok();
    let own = if settings.conf_group_read { 0o640 } else { 0o600 };
    let mode = existing.filter(|_| settings.chained).unwrap_or(own);
    write(&target, text.as_bytes(), mode).map_err(failed("write", &target))?;
    if target != path {
        fs::remove_file(&path).map_err(failed("remove", &path))?;
    }
    tracing::info!(file = %target.display(), "added the plugin to the CNI configuration");
    Ok(Some(target))
}

/// Removes all parts. Those that are not there are skipped.
pub(crate) fn remove(settings: &Settings) -> Result<(), InstallError> {
    if let Some(path) = conflist::find(settings).map_err(failed("read", &settings.net_dir))? {
        if !settings.chained {
            remove_file(&path)?;
        } else if let Some(list) = conflist::without_plugin(&conflist::read(&path)?) {
            let mode = fs::metadata(&path).map_err(failed("read", &path))?.permissions().mode();
            write(&path, format!("{list:#}\n").as_bytes(), mode & 0o777).map_err(failed("write", &path))?;
        }
    }
    remove_file(&settings.run_dir.join(KUBECONFIG))?;
    remove_file(&settings.bin_target_dir.join(PLUGIN))
}

fn remove_file(path: &Path) -> Result<(), InstallError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Writes a file in one step, if its content or its mode is another one.
fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mode_is = |meta: fs::Metadata| meta.permissions().mode() & 0o777 == mode;
    if fs::metadata(path).is_ok_and(mode_is) && fs::read(path).is_ok_and(|existing| existing == content) {
        return Ok(());
    }
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the path of a file"));
    };
    // The container runtime skips a file with this name. One that is left of an earlier write is replaced.
    let temporary = directory.join(format!(".{}.tmp", name.to_string_lossy()));
    let _ = fs::remove_file(&temporary);
    let mut options = fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.write(true).create_new(true).open(&temporary)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.sync_all()?;
    fs::rename(&temporary, path)
}

/// A kubeconfig with the token of the agent's service account. JSON is YAML, too.
fn kubeconfig_text(settings: &Settings) -> Result<String, InstallError> {
    if settings.service_host.is_empty() || settings.service_port.is_empty() {
        return Err(InstallError::NoApiServer);
    }
    let host = match settings.service_host.contains(':') {
        true => format!("[{}]", settings.service_host),
        false => settings.service_host.clone(),
    };
    let mut cluster = json!({ "server": format!("{}://{host}:{}", settings.service_protocol, settings.service_port) });
    match settings.skip_tls_verify {
        true => cluster["insecure-skip-tls-verify"] = true.into(),
        false => {
            let default = settings.service_account.join("ca.crt");
            let file = if settings.kube_ca_file.is_empty() { default } else { PathBuf::from(&settings.kube_ca_file) };
            let authority = fs::read(&file).map_err(failed("read", &file))?;
            cluster["certificate-authority-data"] = STANDARD.encode(authority).into();
        }
    }
    let file = settings.service_account.join("token");
    let token = fs::read_to_string(&file).map_err(failed("read", &file))?;
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "local", "cluster": cluster }],
        "users": [{ "name": "istio-cni", "user": { "token": token.trim() } }],
        "contexts": [{ "name": "istio-cni-context", "context": { "cluster": "local", "user": "istio-cni" } }],
        "current-context": "istio-cni-context",
    });
    Ok(format!("{kubeconfig:#}\n"))
}
