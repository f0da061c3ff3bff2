//! Creates clients of the Kubernetes API, from a pod's service account or a kubeconfig.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use settings::Settings;

use crate::backend::in_a_pod;

const CONNECT: Duration = Duration::from_secs(10);

/// Creates a client by the settings, and returns it with the server's address. Sends no request: the API may be
/// unavailable.
///
/// # Errors
/// There is no kubeconfig, or it is invalid.
pub(crate) async fn connect(settings: &Settings) -> Result<(Client, String)> {
    let mounted = settings.kubeconfig.clone().or_else(mounted);
    let mut config = match (&mounted, settings.kube_context.as_str()) {
        (None, "") if in_a_pod() => Config::incluster().context("the pod's service account")?,
        (None, "") => {
            Config::infer().await.context("no way to the Kubernetes API; --kubeconfig names a file that says it")?
        }
        (Some(file), context) => {
            from_file(file, context).await.with_context(|| format!("--kubeconfig {}", file.display()))?
        }
        (None, context) => {
            let kubeconfig = Kubeconfig::read().context("the kubeconfig")?;
            let read = Config::from_custom_kubeconfig(kubeconfig, &in_context(context)).await;
            read.with_context(|| format!("--kube-context {context}"))?
        }
    };
    let address = config.cluster_url.to_string();
    tune(&mut config);
    Ok((Client::try_from(config)?, address))
}

/// Creates a client of the cluster with the Secrets that name other clusters. `None` if that is the home cluster.
///
/// # Errors
/// The settings require such a client, and its kubeconfig or service account cannot be used.
pub(super) async fn own(settings: &Settings) -> Result<Option<Client>> {
    let mut config = match &settings.secrets_kubeconfig {
        Some(file) => from_file(file, "").await.with_context(|| format!("--secrets-kubeconfig {}", file.display()))?,
        None if settings.external_istiod.0 && settings.local_cluster_secret_watcher.0 => Config::incluster().context(
            "--local-cluster-secret-watcher: the pod's service account; --secrets-kubeconfig names a file instead",
        )?,
        None => return Ok(None),
    };
    tune(&mut config);
    Ok(Some(Client::try_from(config)?))
}

/// In a pod, the file that `KUBECONFIG` names, if it exists. istiod's deployment always sets the variable, but mounts
/// the file only for a control plane outside of the cluster of its configuration.
fn mounted() -> Option<PathBuf> {
    let file = PathBuf::from(std::env::var_os("KUBECONFIG").filter(|file| !file.is_empty())?);
    let is_there = |file: &PathBuf| std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() > 0);
    Some(file).filter(|file| in_a_pod() && is_there(file))
}

async fn from_file(file: &Path, context: &str) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &in_context(context)).await?)
}

/// The options for a context; empty is the current one.
fn in_context(context: &str) -> KubeConfigOptions {
    KubeConfigOptions {
        context: Some(context.to_owned()).filter(|context| !context.is_empty()),
        ..KubeConfigOptions::default()
    }
}

fn tune(config: &mut Config) {
    config.connect_timeout = Some(CONNECT);
    // Callers have their own backoff.
    config.default_retry = false;
}
