//! The way to the API: of a pod, or of a kubeconfig.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use settings::Settings;

/// Where Kubernetes puts the token of a pod's service account.
const TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount/token";
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(10);

/// Whether this is a pod that may talk to its Kubernetes API.
pub(in crate::serve) fn in_a_pod() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some_and(|host| !host.is_empty()) && Path::new(TOKEN).exists()
}

/// A client as the settings want it, and the server's address. Nothing is asked of the API yet: it may be away.
///
/// # Errors
/// There is no kubeconfig, or it cannot be used.
pub(in crate::serve) async fn connect(settings: &Settings) -> Result<(Client, String)> {
    let mut config = match (&settings.kubeconfig, settings.kube_context.as_str()) {
        (None, "") if in_a_pod() => Config::incluster().context("the pod's service account")?,
        (None, "") => Config::infer()
            .await
            .context("no way to the Kubernetes API; --kubeconfig names a file that says it")?,
        (file, context) => {
            let kubeconfig = match file {
                Some(file) => {
                    Kubeconfig::read_from(file).with_context(|| format!("--kubeconfig {}", file.display()))?
                }
                None => Kubeconfig::read().context("the kubeconfig")?,
            };
            let options = KubeConfigOptions {
                context: Some(context.to_owned()).filter(|context| !context.is_empty()),
                ..KubeConfigOptions::default()
            };
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .with_context(|| match file {
                    Some(file) => format!("--kubeconfig {}", file.display()),
                    None => format!("--kube-context {context}"),
                })?
        }
    };
    config.connect_timeout = Some(CONNECT);
    // Who asks says when to ask again.
    config.default_retry = false;
    let address = config.cluster_url.to_string();
    Ok((Client::try_from(config)?, address))
}
