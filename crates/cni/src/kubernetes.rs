//! Access to the Kubernetes API.

use std::path::Path;
use std::time::Duration;

use http::{Method, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::pod::Pod;

/// The longest that a request, or a connection, may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Makes a client by a kubeconfig.
pub(crate) async fn client_of_file(file: &Path) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    let kubeconfig = Kubeconfig::read_from(file)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    client(config)
}

/// Makes a client by the service account of the pod that this runs in, or by the kubeconfig of the environment.
pub(crate) async fn client_of_environment() -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    client(Config::infer().await?)
}

fn client(mut config: Config) -> Result<Client, Box<dyn std::error::Error + Send + Sync>> {
    config.connect_timeout = Some(TIMEOUT);
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Reads a pod.
pub(crate) async fn pod(client: &Client, namespace: &str, name: &str) -> Result<Pod, kube::Error> {
    send(client, Method::GET, &pod_path(namespace, name), None).await
}

/// The path of a pod. The names are those of objects, so that they need no escape; what is none is not found.
pub(crate) fn pod_path(namespace: &str, name: &str) -> String {
    let clean = |name: &str| -> String {
        name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-' || *c == '.').collect()
    };
    format!("/api/v1/namespaces/{}/pods/{}", clean(namespace), clean(name))
}

/// Sends a request with a JSON body, and reads the object that it returns.
pub(crate) async fn send<T: serde::de::DeserializeOwned>(
    client: &Client,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<T, kube::Error> {
    let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
    let request = Request::builder().method(method).uri(path).header("content-type", kind).body(body);
    let request =
        request.map_err(|error| kube::Error::BuildRequest(kube::core::request::Error::BuildRequest(error)))?;
    match tokio::time::timeout(TIMEOUT, client.request(request)).await {
        Ok(result) => result,
        Err(_) => Err(kube::Error::Service("the API server did not answer in time".into())),
    }
}
