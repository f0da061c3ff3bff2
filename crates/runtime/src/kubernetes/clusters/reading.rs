//! Parses the kubeconfigs in Secrets and files. Their contents, which are secret, are not kept anywhere else.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use config::{FieldPath, Timestamp};
use kube::Client;
use serde_json::Value;
use sources::clusters::{Allowed, Kubeconfig, RejectedKubeconfig, Secrets, Text, hash};

use super::files::Files;

/// The timeout for creating a client from a kubeconfig, which may run a program.
const PATIENCE: Duration = Duration::from_secs(30);

/// Parses a Secret.
pub(super) async fn secret(secrets: &mut Secrets<Client>, object: &Value, allowed: Allowed) {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let made = meta["creationTimestamp"].as_str().and_then(Timestamp::parse);
    let mut texts = Vec::new();
    for (cluster, encoded) in object["data"].as_object().into_iter().flatten() {
        // The API always returns base64 text.
        let Some(bytes) = encoded.as_str().and_then(|text| STANDARD.decode(text).ok()) else {
            continue;
        };
        let hash = hash(&bytes);
        let read = match secrets.knows(name, cluster, hash) {
            true => None,
            false => Some(connection(bytes, allowed).await),
        };
        texts.push(Text { cluster: cluster.as_str().into(), hash, read });
    }
    secrets.put(name, made, texts);
}

/// Parses the kubeconfigs of a directory. The current context names the cluster.
pub(super) async fn files(secrets: &mut Secrets<Client>, files: Files, allowed: Allowed) {
    let gone: Vec<String> = secrets.names().filter(|name| !files.contains_key(*name)).map(str::to_owned).collect();
    gone.iter().for_each(|name| secrets.remove(name));
    for (name, bytes) in files {
        let hash = hash(&bytes);
        // An invalid kubeconfig keeps its previous cluster id, or has the file's name as id.
        let cluster = match Kubeconfig::read(&bytes, allowed) {
            Ok(read) => read.cluster().into(),
            Err(_) => secrets.named_by(&name).next().cloned().unwrap_or_else(|| name.as_str().into()),
        };
        let read = match secrets.knows(&name, &cluster, hash) {
            true => None,
            false => Some(connection(bytes, allowed).await),
        };
        let text = Text { cluster, hash, read };
        secrets.put(&name, None, vec![text]);
    }
}

async fn connection(bytes: Vec<u8>, allowed: Allowed) -> Result<Client, RejectedKubeconfig> {
    let failed =
        |message: &str| RejectedKubeconfig { path: FieldPath::root(), message: message.to_owned(), hint: None };
    let here = tokio::runtime::Handle::current();
    // This may read files and, if allowed, run programs.
    let made = tokio::task::spawn_blocking(move || {
        let kubeconfig = Kubeconfig::read(&bytes, allowed)?;
        here.block_on(kubeconfig.connect())
    });
    match tokio::time::timeout(PATIENCE, made).await {
        Ok(Ok(made)) => made,
        Ok(Err(_)) => Err(failed("reading it failed")),
        Err(_) => Err(failed("its program does not end")),
    }
}
